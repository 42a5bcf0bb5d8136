"""Five checkouts that share one store, a custody, and the command line as an operator with an engine has it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

from nl_cutover.testing import plant_store

from ..conftest import SLOT, Done

SEATS = ("antigravity", "claude", "clio", "codex", "opus-vega")
STORE = Path(".neo-ai-data") / "sqlite" / "memory-core-graph.sqlite"
GRAPH = "/app/.neo-ai-data/sqlite/memory-core-graph.sqlite"
HELD = (
    "import json, sqlite3; print(json.dumps(sqlite3.connect('file:{0}?mode=ro', uri=True).execute("
    "\"SELECT json_extract(data, '$.properties.sourceTxId'), json_extract(data, '$.properties.replayCount'), "
    "json_extract(data, '$.properties.tool') FROM Nodes\").fetchall()))"
)


class Scene:
    """`core` is what `container()` gave. Rows of one scene have names that no other has."""

    def __init__(self, folder: Path, core, *, archives: int = 40, actions: int = 60, seed: int = 1, mark: str = ""):
        self.folder, self.core, self.mark = folder, core, mark
        self.custody = folder / "custody"
        self.checkouts = [folder / seat for seat in SEATS]
        self.store = self.checkouts[0] / STORE
        plant_store(self.store, archives=archives, actions=actions, seed=seed)
        for checkout in self.checkouts[1:]:
            (checkout / ".neo-ai-data").mkdir(parents=True)
            (checkout / ".neo-ai-data" / "sqlite").symlink_to(self.store.parent, target_is_directory=True)
        with closing(sqlite3.connect(self.store)) as store:
            store.execute("UPDATE nl_transaction_archive SET source_tx_id = ? || source_tx_id", (mark,))
            store.execute("UPDATE nl_action_log SET tool = ?", (f"tool{mark}",))
            store.commit()
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith(("NEO_", "NL_CUTOVER"))}
        self.environ |= {"HOME": str(folder / "home"), SLOT: core.token, "COLUMNS": "200"}

    def command(self, *words: object) -> list[str]:
        """The words as an operator types them; --custody, --url and --format come by themselves."""
        typed = [str(word) for word in words]
        at = typed.index("--") if "--" in typed else len(typed)
        group = typed[:2] if typed[0] == "plane" else typed[:1]
        extra = ["--format", "json"]
        if group not in (["plane", "status"], ["plane", "evidence"]):
            extra += ["--custody", str(self.custody)]
        if group[0] in ("migrate", "verify", "cut", "plane") and "--url" not in typed:
            extra += ["--url", self.core.url]
        if group[0] == "migrate":
            extra += ["--owner", "neo-operator", "--telemetry", "admit", "--quiet", "0"]
        return [sys.executable, "-m", "nl_cutover", *typed[:at], *extra, *typed[at:]]

    def __call__(self, *words: object, **environ: str) -> Done:
        done = subprocess.run(
            self.command(*words),
            env=self.environ | environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *words: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words),
            env=self.environ,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def settled(self) -> int:
        """How many archives the ledger knows to be stored."""
        try:
            with closing(sqlite3.connect(f"file:{self.custody / 'ledger.sqlite'}?mode=ro", uri=True)) as ledger:
                return ledger.execute("SELECT count(*) FROM archives WHERE archive_id IS NOT NULL").fetchone()[0]
        except sqlite3.OperationalError:
            return 0

    def source(self) -> tuple[list[str], int, int]:
        """Source transactions, replays, actions."""
        with closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True)) as store:
            rows = store.execute("SELECT source_tx_id, replay_count FROM nl_transaction_archive").fetchall()
            actions = store.execute("SELECT count(*) FROM nl_action_log").fetchone()[0]
        return sorted(t for t, _ in rows), sum(n for _, n in rows), actions

    def held(self) -> tuple[list[str], int, int]:
        """The same, of this scene, counted inside the container without this project's code."""
        self.core.container.reload()
        code, out = self.core.container.exec_run(["python3", "-c", HELD.format(GRAPH)])
        assert code == 0, out
        mine = set(self.source()[0])
        rows = json.loads(out)
        archives = [row for row in rows if row[0] in mine]
        actions = Counter(row[2] for row in rows)[f"tool{self.mark}"]
        return sorted(row[0] for row in archives), sum(row[1] or 0 for row in archives), actions

    def receipt(self, kind: str) -> dict:
        return json.loads(sorted((self.custody / "receipts").glob(f"*-{kind}.json"))[-1].read_text())

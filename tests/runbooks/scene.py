"""The place where the papers' commands run: checkouts with planted stores, a settings file, a shell that remembers.

Five checkouts reach one store through links and iris has its own, as the settings file names them. Three more are only
named as arguments: `grace` has empty tables and telemetry switched off, `phoebe` has no store, `nova` a link that
dangles.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from nl_cutover.testing import EmbeddedMemoryCore, embedded_memory_core, plant_store
from tests.exactly_once.fault_proxy import FaultProxy

ROOT = Path(__file__).resolve().parent.parent.parent
PAPERS = [ROOT / "README.md", *sorted((ROOT / "runbooks").glob("*.md"))]
LINKED = ("antigravity", "claude", "clio", "codex", "opus-vega")
STORE = Path(".neo-ai-data/sqlite/memory-core-graph.sqlite")
_LIMIT_S = 60


_HEARTBEAT = re.compile(
    r"^\w+:( \d+ of \d+,)? (\d+/s, about \d+ s left|\d+ s so far)\n", re.MULTILINE
)  # comes on a slow machine alone


class Scene:
    """One folder of checkouts beside one Memory Core. What happens to them is in `changes`."""

    def __init__(self, folder: Path, core: EmbeddedMemoryCore, settings: str) -> None:
        self.folder, self.core, self._settings = folder, core, settings
        self._writer: sqlite3.Connection | None = None
        self._state = folder / "shell-state"
        self._last = 0
        self._own = ExitStack()  # Memory Cores of this scene alone
        folder.mkdir(parents=True)
        self.start_over()

    @property
    def environ(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NEO_", "NL_CUTOVER", "COV_"))}
        path = os.pathsep.join((str(self.folder / "bin"), kept.get("PATH", os.defpath)))
        return kept | {
            "PATH": path,
            "HOME": str(self.folder / "home"),
            "PYTHONUTF8": "1",
            "TERM": "dumb",
            "NL_CUTOVER_ENGINE": "none",
        }

    @property
    def changes(self) -> dict[str, Callable[[], None]]:
        """What a paper may ask for by `<!-- scene: WORDS -->`."""
        return {
            "start over": self.start_over,
            "start over; the token is in its slot": self.token_is_set,
            "start over; everything was migrated": self.migrated,
            "start over; everything was migrated and landed": self.landed,
            "start over; two answers of Memory Core were lost": self.answers_lost,
            "start over; another Memory Core answers now": self.other_core,
            "start over; a fresh Memory Core": self.fresh_core,
            "the settings name the right Memory Core again": self.right_core,
            "start over; a migration was interrupted with Ctrl-C": self.interrupted,
            "start over; iris has an archive that no request can carry": self.too_large,
            "iris's recorder saves one more archive": self.one_more_archive,
            "a writer holds iris's store locked": self.locked,
            "the writer lets go": self.let_go,
        }

    # the shell -------------------------------------------------------------------------------------------------------

    def run(self, command: str) -> str:
        """What `command` prints, both streams, in a shell that keeps its folder, variables, options and `$?`.

        Its stdin holds the token, for `read`; nothing else of it may wait for input.
        """
        script = (
            f". '{self._state}'\n(exit {self._last})\n{command}\nlast=$?\n"
            f"{{ export -p; set +o; printf 'cd %q\\n' \"$PWD\"; }} > '{self._state}'\nexit $last\n"
        )
        done = subprocess.run(
            [_bash(), "--noprofile", "--norc", "-c", script],
            cwd=self.folder,
            env=self.environ,
            input=f"{self.core.token}\n".encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT_S,
            check=False,
        )
        self._last = done.returncode
        return _HEARTBEAT.sub("", done.stdout.decode("utf-8", "backslashreplace"))

    def quietly(self, *arguments: str, expect: int = 0) -> None:
        """Run a verb that the paper does not show."""
        done = subprocess.run(
            [sys.executable, "-m", "nl_cutover", *arguments],
            cwd=self.folder,
            env=self.environ | {"NEO_MCP_REMOTE_TOKEN": self.core.token},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        assert done.returncode == expect, f"{arguments} ended with {done.returncode}\n{done.stdout}{done.stderr}"

    # changes ---------------------------------------------------------------------------------------------------------

    def start_over(self) -> None:
        """Everything as it was at the beginning: no custody, no seal, the planted rows, a fresh shell."""
        self.let_go()
        for child in self.folder.iterdir():
            shutil.rmtree(child) if child.is_dir() else child.unlink()
        for seat in (*LINKED, "iris", "grace", "phoebe", "nova"):
            checkout = self.checkout(seat)
            (checkout / ".neo-ai-data").mkdir(parents=True)
            (checkout / "package.json").write_text('{"name":"neo.mjs"}\n')
        for seat in LINKED[1:]:
            self._link(seat, self.checkout(LINKED[0]))
        self._link("nova", self.folder / "gone")
        shared, own = self._ordered(self.store("antigravity"), self.store("iris"))
        plant_store(shared, archives=40, actions=188, seed=1)
        plant_store(own, archives=12, actions=60, seed=2)
        plant_store(self.store("grace"))
        (self.checkout("grace") / ".env").write_text("NEO_NL_ACTION_LOGGING=false\n")
        (self.folder / "nl-cutover.toml").write_text(
            self._settings.replace("http://127.0.0.1:3102/mc/mcp", self.core.url)
        )
        self._script("bin/nl-cutover", f'exec "{sys.executable}" -m nl_cutover "$@"')
        self._script("land.sh", "echo 'the recorder now sends to Memory Core'")
        self._script("land-broken.sh", "echo 'no such launch agent' >&2\nexit 9")
        (self.folder / "home").mkdir()
        self._state.touch()
        self._last = 0

    def migrated(self) -> None:
        self.start_over()
        self.quietly("migrate", "--telemetry", "admit")
        self._state.write_text(f"export NEO_MCP_REMOTE_TOKEN={self.core.token}\n")

    def landed(self) -> None:
        self.migrated()
        self.quietly("verify")
        self.quietly("cut", "--", "true")
        self._script("land-back.sh", "echo 'the recorder writes to the host again'")

    def fresh_core(self) -> None:
        """A Memory Core that no other paper uses: what it holds is what this paper brought."""
        place = self.folder.parent / f"{self.folder.name}-core-{time.monotonic_ns()}"
        self.core = self._own.enter_context(embedded_memory_core(place, tokens=self.core.tokens))
        self.token_is_set()
        with self._state.open("a") as state:
            state.write(f"export URL={self.core.url}\n")

    def answers_lost(self) -> None:
        """Two saves got no answer: one was stored all the same, one never arrived."""
        self.fresh_core()
        faults = {3: "dropped", 5: "swallowed"}
        saves = []

        def judge(tool: str, subject: str) -> str:
            if tool != "save_nl_transaction":
                return "untouched"
            saves.append(subject)
            return faults.get(len(saves), "untouched")

        with FaultProxy(self.core.url, judge) as proxy:
            self.quietly("migrate", "--telemetry", "admit", "--workers", "1", "--url", proxy.url, expect=7)
        (self.folder / "graph.sqlite").symlink_to(self.core.db)

    def other_core(self) -> None:
        """Everything was migrated; since then another Memory Core answers at the URL of the settings."""
        self.migrated()
        place = self.folder.parent / f"{self.folder.name}-other-{time.monotonic_ns()}"
        other = self._own.enter_context(
            embedded_memory_core(place, tokens=self.core.tokens, plane_id="neo-review-copy")
        )
        self._replace_in_settings(self.core.url, other.url)
        self._right, self.core = self.core, other

    def right_core(self) -> None:
        self._replace_in_settings(self.core.url, self._right.url)
        self.core = self._right

    def token_is_set(self) -> None:
        self.start_over()
        self._state.write_text(f"export NEO_MCP_REMOTE_TOKEN={self.core.token}\n")

    def interrupted(self) -> None:
        """A migration that Ctrl-C ended after some of its rows."""
        self.token_is_set()
        child = subprocess.Popen(
            [sys.executable, "-m", "nl_cutover", "migrate", "--telemetry", "admit", "--workers", "1"],
            cwd=self.folder,
            env=self.environ | {"NEO_MCP_REMOTE_TOKEN": self.core.token},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        _wait_for(lambda: _confirmed(self.folder / "custody" / "ledger.sqlite") >= 3)
        child.send_signal(signal.SIGINT)
        assert child.wait(_LIMIT_S) == 130, "the migration was through before it could be interrupted"

    def one_more_archive(self) -> None:
        """Iris's recorder saves one more archive: a copy of the first, with its own id."""
        with closing(sqlite3.connect(self.store("iris"))) as store, store:
            store.execute(
                "INSERT INTO nl_transaction_archive SELECT '5f0c1d2e-0000-4000-8000-000000000001', name, "
                "source_tx_id, source_agent_id, source_agent_session_id, app_session_id, origin_writer, committed_at, "
                "archived_at, ops, 0, NULL FROM nl_transaction_archive WHERE rowid = 1"
            )

    def too_large(self) -> None:
        """One archive of iris's is larger than a request may be."""
        self.token_is_set()
        with closing(sqlite3.connect(self.store("iris"))) as store, store:
            ops = json.loads(store.execute("SELECT ops FROM nl_transaction_archive WHERE rowid = 1").fetchone()[0])
            ops[0]["forward"]["args"]["properties"]["text"] = "x" * 120_000
            store.execute("UPDATE nl_transaction_archive SET ops = ? WHERE rowid = 1", (json.dumps(ops),))

    def locked(self) -> None:
        """A writer that has begun a transaction in iris's store and does not end it."""
        self._writer = sqlite3.connect(self.store("iris"), isolation_level=None)
        self._writer.execute("BEGIN IMMEDIATE")

    def let_go(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for left in self.folder.glob("*/pid"):  # a server that a paper started and did not come to stop
            try:
                os.kill(int(left.read_text()), signal.SIGTERM)
            except (ProcessLookupError, ValueError):
                pass

    def leave(self) -> None:
        self.let_go()
        self._own.close()

    # places ----------------------------------------------------------------------------------------------------------

    def checkout(self, seat: str) -> Path:
        return self.folder / seat / "neomjs" / "neo"

    def store(self, seat: str) -> Path:
        return self.checkout(seat) / STORE

    def store_ids(self) -> tuple[str, ...]:
        facts = [os.stat(self.store(seat)) for seat in ("antigravity", "iris", "grace")]
        return tuple(f"{f.st_dev:x}-{f.st_ino:x}" for f in facts)

    def _replace_in_settings(self, old: str, new: str) -> None:
        settings = self.folder / "nl-cutover.toml"
        settings.write_text(settings.read_text().replace(old, new))

    def _link(self, seat: str, canonical: Path) -> None:
        target = canonical / ".neo-ai-data" / "sqlite"
        (self.checkout(seat) / ".neo-ai-data" / "sqlite").symlink_to(target, target_is_directory=True)

    def _script(self, name: str, body: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def _ordered(self, first: Path, second: Path) -> tuple[Path, Path]:
        """Empty files whose store ids sort like the arguments: `cut` prints stores in the order of their ids."""
        for path in (first, second):
            path.parent.mkdir(parents=True)
            path.touch()
        if f"{first.stat().st_ino:x}" > f"{second.stat().st_ino:x}":
            spare = self.folder / "spare"
            first.rename(spare)
            second.rename(first)
            spare.rename(second)
        return first, second


@contextmanager
def scene(folder: Path, core: EmbeddedMemoryCore, settings: str) -> Iterator[Scene]:
    made = Scene(folder, core, settings)
    try:
        yield made
    finally:
        made.leave()


def settings_of_the_papers() -> str:
    """The settings file that `runbooks/measure.md` shows: the scene uses that very text."""
    text = (ROOT / "runbooks" / "measure.md").read_text("utf-8")
    found = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, "measure.md shows one settings file"
    return str(found[0])


def _bash() -> str:
    found = shutil.which("bash")
    assert found, "the papers' commands are run by bash, and there is none"
    return found


def _wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not true():
        assert time.monotonic() < deadline, "it never came that far"
        time.sleep(0.002)


def _confirmed(ledger: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as reading:
            return int(reading.execute("SELECT count(*) FROM archives WHERE state = 'confirmed'").fetchone()[0])
    except sqlite3.OperationalError:
        return 0

"""Cuts against two writers that do not stop: no row that a writer was told is stored may be missing from MC.

The number of seeds comes from NL_CUTOVER_SEEDS: a few by default, 1,000 with `full` (./dev soak).
"""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nl_cutover.cut.fencing import SealRequest
from nl_cutover.cut.job import run_cut
from nl_cutover.errors import CutoverError
from nl_cutover.ingress.endpoint import Endpoint, Token
from nl_cutover.ingress.session import Session
from nl_cutover.migration.job import migrate
from nl_cutover.migration.policy import Policy, Telemetry
from nl_cutover.migration.progress import Silent
from nl_cutover.stores.checkouts import discover
from nl_cutover.stores.measurement import measure
from nl_cutover.testing import plant_store
from tests.node import BETTER_SQLITE3, node, node_modules

HERE = Path(__file__).parent
SEEDS = {"": 4, "full": 1000}.get(seeds := os.environ.get("NL_CUTOVER_SEEDS", "")) or int(seeds)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Race:
    def __init__(self, folder: Path, core, seed: int) -> None:
        self.path = folder / "host"
        self.store = self.path / ".neo-ai-data" / "sqlite" / "memory-core-graph.sqlite"
        self.custody = folder / "custody"
        plant_store(self.store, archives=2, actions=3, seed=50_000 + seed)
        self.endpoint = Endpoint(core.url, Token(core.token))

    def measured(self, accounts=None):
        checkouts = discover([self.path], environ={}, home=self.path)
        return measure(checkouts, clock=lambda: datetime.now(UTC), environ={}, accounts=accounts)

    def migrate(self):
        return migrate(
            self.measured(),
            Policy(Telemetry.parse("admit"), owner="all"),
            custody=self.custody,
            new_session=lambda: Session(self.endpoint),
            expected_plane="any",
            expected_root=None,
            acknowledged=None,
            clock=now_ms,
            progress=Silent(),
            workers=2,
        )

    def cut(self):
        from nl_cutover.custody.reading import LedgerReader

        def measured():
            with LedgerReader(self.custody) as reader:
                return self.measured(reader.accounts)

        return run_cut(
            ["true"],
            custody=self.custody,
            request=SealRequest("http://127.0.0.1:3102/mc/mcp", busy_timeout_ms=5_000),
            measured=measured,
            allow_absent=False,
            hold_file=None,
            max_age_ms=900_000,
            clock=now_ms,
            redact=str,
        )


def start(*command: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=cwd)


def told(writer: subprocess.Popen[str]) -> tuple[set[str], list[str]]:
    """What the writer was told: names stored, and the sentences of refusals. Waits until it gives up."""
    out = writer.stdout.read()  # its stdin stays open: it goes on until it has met the seal often enough
    lines = [line.split(" ", 2) for line in out.splitlines()]
    return {x[1] for x in lines if x[0] == "stored"}, [x[2] for x in lines if x[0] == "refused"]


def held_by_mc(core, seed: int) -> Counter[str]:
    graph = sqlite3.connect(f"file:{core.db}?mode=ro", uri=True)
    try:
        sql = "SELECT json_extract(data, '$.properties.sourceTxId'), json_extract(data, '$.properties.tool') FROM Nodes"
        mine = (f"py-{seed}-", f"js-{seed}-")
        return Counter(name for row in graph.execute(sql) for name in row if name and name.startswith(mine))
    finally:
        graph.close()


@pytest.mark.node
@pytest.mark.slow
@pytest.mark.timeout(60 * SEEDS + 700)
def test_no_row_slips_through_a_cut(core, tmp_path):
    modules = node_modules(BETTER_SQLITE3)
    counts: Counter[str] = Counter()
    for seed in range(1, SEEDS + 1):
        folder = tmp_path / str(seed)
        race = Race(folder, core, seed)
        writers = [
            start(sys.executable, str(HERE / "writer.py"), str(race.store), str(seed)),
            start(node(), str(HERE / "writer.mjs"), str(race.store), str(seed), cwd=modules),
        ]
        try:
            for _ in range(200):
                try:
                    race.migrate()
                    report = race.cut()
                except CutoverError:  # a store that changes under an unprotected reading, for one
                    counts["refused before the lock"] += 1
                    continue
                if report.exit_code == 0:
                    break
                assert report.command is None, "a refused cut runs nothing"
                counts["refused under the lock"] += 1
            assert report.exit_code == 0, report.reasons
            answers = [told(writer) for writer in writers]
        finally:
            for writer in writers:
                writer.kill()
                writer.communicate()
        stored = set().union(*(names for names, _ in answers))
        refusals = [sentence for _, sentences in answers for sentence in sentences]
        assert held_by_mc(core, seed) == Counter(dict.fromkeys(stored, 1))
        receipts = [json.loads(p.read_text()) for p in sorted((race.custody / "receipts").glob("*-migrate.json"))]
        mapped = {entry["old"] for entry in receipts[-1]["id_map"]}
        source = sqlite3.connect(race.store)
        archives = {key for (key,) in source.execute("SELECT archive_id FROM nl_transaction_archive")}
        source.close()
        assert mapped == archives
        assert all("sealed by nl-cutover" in sentence for sentence in refusals), set(refusals)
        assert all(sentences for _, sentences in answers), "every writer met the seal"
        counts["landed"] += 1
        counts["stored"] += len(stored)
        counts["failed loudly"] += len(refusals)
    print(f"\n{SEEDS} cuts: {dict(counts)}")
    assert counts["landed"] == SEEDS

"""SIGKILL at every named point with 1 and 8 workers, then resume: nothing lost, nothing doubled.

The number of runs comes from NL_CUTOVER_SEEDS: one a point and worker number by default, 2,000 with `full` (./dev soak).
"""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import FIRST
from tests.migration.test_settle import Job

POINTS = (
    "before intent",
    "after intent",
    "after send",
    "after answer",
    "after record",
    "after read-back",
    "before mark",
    "after mark",
    "after batch intent",
    "after batch answer",
    "before receipt",
)
IN_DOUBT = {"after intent", "after send", "after answer"}
FULL = 2_000
RUNS = {"": 2 * len(POINTS), "full": FULL}.get(seeds := os.environ.get("NL_CUTOVER_SEEDS", "")) or int(seeds)


@pytest.fixture(scope="module")
def core(serve, tmp_path_factory):
    with serve(tmp_path_factory.mktemp("core"), tokens="t") as running:
        yield running


class OneStore(Job):
    """Several runs share one Memory Core; each looks only at its own rows."""

    def held(self):
        mine = set(self.source())
        graph = sqlite3.connect(f"file:{self.core.db}?mode=ro", uri=True)
        try:
            rows = graph.execute(
                "SELECT json_extract(data, '$.properties.sourceTxId'), json_extract(data, '$.properties.replayCount'), "
                "json_extract(data, '$.properties.tool') FROM Nodes"
            ).fetchall()
        finally:
            graph.close()
        archives = sorted(t for t, _, _ in rows if t in mine)
        marks = sum(count for t, count, _ in rows if t in mine)
        return archives, marks, sum(1 for _, _, tool in rows if tool == self.mark)

    def stamp(self, mark: str) -> None:
        """Give this run's rows names that no other run has."""
        self.mark = mark
        store = sqlite3.connect(self.store)
        store.execute("UPDATE nl_transaction_archive SET source_tx_id = ? || source_tx_id", (mark,))
        store.execute("UPDATE nl_action_log SET tool = ?", (mark,))
        store.commit()
        store.close()


@pytest.mark.slow
@pytest.mark.timeout(60 + 10 * RUNS)
@pytest.mark.parametrize("workers", [1, 8])
def test_killed_anywhere_a_run_resumes_without_loss_or_doubling(core, tmp_path, workers):
    counts: Counter[str] = Counter()
    planted = 0 if core.shape == FIRST else 12
    for number in range(RUNS // 2):
        rng = random.Random(f"{workers}-{number}")
        point = POINTS[number % len(POINTS)]
        job = OneStore(tmp_path / str(number), core, archives=6, actions=planted, seed=rng.randrange(10**6))
        job.stamp(f"{workers}-{number}-")
        nth = 1 if "batch" in point or "receipt" in point else rng.randint(1, 2 if "mark" in point else 5)
        command = [sys.executable, str(Path(__file__).parent / "killed.py"), str(job.folder), core.url, str(workers)]
        environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run([*command, point, str(nth)], env=environ, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            counts["never reached"] += 1
        else:
            assert done.returncode == -signal.SIGKILL, done.stderr
            counts["killed"] += 1
        resumed = job.migrate(workers=workers)
        archives, marks, actions = job.held()
        assert max(Counter(archives).values(), default=0) <= 1, "without evidence nothing is doubled"
        in_doubt = resumed.archives.unknown
        assert in_doubt <= workers
        if workers == 1 and done.returncode:
            assert in_doubt == (1 if point in IN_DOUBT else 0), point
            assert resumed.telemetry.unknown == (planted if "batch" in point else 0)
        assert resumed.archives.confirmed + in_doubt == 6
        counts["in doubt"] += in_doubt
        known = resumed.archives.confirmed
        settled = job.migrate(workers=workers, evidence=job.evidence)
        if settled.exit_code and not known:  # a file is believed of absence once a row of the run was read back
            counts["file known late"] += 1
            if not settled.archives.confirmed:
                counts["one row by word"] += 1
                assert not job.held()[0], "what is in the file is adopted at once"
                job.settle(f"{settled.odd[0].key}=resend")
                assert job.migrate(workers=workers).archives.confirmed == 1
            settled = job.migrate(workers=workers, evidence=job.evidence)
        assert settled.exit_code == 0, (point, settled.odd)
        archives, marks, actions = job.held()
        assert archives == job.source(), "with evidence nothing is lost and nothing is doubled"
        assert marks == settled.marks.wanted == settled.marks.made
        assert actions == planted
    print(f"\n{RUNS // 2} runs with {workers} workers: {dict(counts)}")
    assert counts["killed"] > counts["never reached"]

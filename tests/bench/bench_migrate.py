"""Archives per second at 8 workers (save, read-back, journal), as a ratio to a bare loop that makes the same calls.

usage: python tests/bench/bench_migrate.py [ROWS]

The bare loop has no journal and no comparison. Both run against a fresh embedded Memory Core, one after the other, in
alternation, each in a process of its own; the medians are compared. Peak memory is that of the migrating process, plan
and receipt included. With 100,000 ROWS it is the proof of constant memory; the rate there against the rate of 1,000
tells whether time is linear. Ends with 1 where the limit or the goal is missed.
"""

import resource
import statistics
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

from nl_cutover.contract.archives import save_call
from nl_cutover.contract.rows import ARCHIVES
from nl_cutover.ingress.endpoint import Endpoint, Token
from nl_cutover.ingress.operations import Operations
from nl_cutover.ingress.session import Session
from nl_cutover.migration.job import migrate
from nl_cutover.migration.policy import Policy, Replays, Telemetry
from nl_cutover.migration.preparing import source_of
from nl_cutover.migration.progress import Silent
from nl_cutover.stores.checkouts import discover
from nl_cutover.stores.measurement import measure
from nl_cutover.testing import embedded_memory_core, plant_store

WORKERS, ROUNDS = 8, 3
LIMIT_MIB, GOAL = 150, 0.80


def measured(folder: Path):
    return measure(discover([folder], environ={}, home=folder), clock=lambda: datetime.now(UTC), environ={})


def bare(folder: Path, custody: Path, url: str, token: str) -> float:
    endpoint = Endpoint(url, Token(token))
    with source_of(measured(folder)) as source:
        (store,) = source.stores.values()
        calls = iter([save_call(row).arguments for row in source.rows(store, ARCHIVES)])
    lock = threading.Lock()

    def work() -> None:
        with Session(endpoint) as session:
            operations = Operations(session)
            while True:
                with lock:
                    arguments = next(calls, None)
                if arguments is None:
                    return
                operations.get(operations.save(arguments).result["archiveId"])

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def journalled(folder: Path, custody: Path, url: str, token: str) -> float:
    endpoint = Endpoint(url, Token(token))
    stages = []

    class Watch(Silent):
        def stage(self, name, total):
            stages.append(time.perf_counter())

    report = migrate(
        measured(folder),
        Policy(Telemetry.parse("admit"), Replays.RECEIPT, owner="all"),
        custody=custody,
        new_session=lambda: Session(endpoint),
        expected_plane="any",
        expected_root=None,
        acknowledged=None,
        clock=lambda: time.time_ns() // 1_000_000,
        progress=Watch(),
        workers=WORKERS,
    )
    assert report.exit_code == 0
    return stages[1] - stages[0]  # from the first row to the last; planning and the receipt are not calls


def timed(work, *arguments) -> tuple[float, int]:
    """Seconds, and the peak memory (MiB) of a process that did nothing else."""
    took = work(*arguments)
    return took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> int:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    times: dict[str, list[float]] = {"bare": [], "journalled": []}
    peak = 0
    with (
        tempfile.TemporaryDirectory() as name,
        # One task a process: what one leaves in memory is not counted for the next.
        get_context("spawn").Pool(1, maxtasksperchild=1) as pool,
    ):
        folder = Path(name)
        plant_store(folder / "host/.neo-ai-data/sqlite/memory-core-graph.sqlite", archives=rows, actions=0)
        for number in range(ROUNDS if rows <= 2_000 else 1):
            for work in (bare, journalled):
                at = folder / f"{work.__name__}-{number}"
                with embedded_memory_core(at / "core", tokens="t") as core:
                    arguments = (work, folder / "host", at / "custody", core.url, core.token)
                    took, used = pool.apply(timed, arguments)
                times[work.__name__].append(took)
                peak = max(peak, used) if work is journalled else peak
    took = {kind: statistics.median(t) for kind, t in times.items()}
    for kind, seconds in took.items():
        print(f"{kind:10} {rows / seconds:8.0f} archives/s")
    ratio = took["bare"] / took["journalled"]
    print(f"ratio      {ratio:8.2f}  (goal {GOAL:.2f})")
    print(f"peak memory {peak} MiB (limit {LIMIT_MIB}), {rows} archives, {WORKERS} workers")
    return int(ratio < GOAL or peak > LIMIT_MIB)


if __name__ == "__main__":
    sys.exit(main())

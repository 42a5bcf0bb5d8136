"""Archives per second at 8 workers (save, read-back, journal), as a ratio to a bare loop that makes the same calls.

usage: python tests/bench/bench_migrate.py [ROWS]

The bare loop has no journal and no comparison. Both run against a fresh embedded Memory Core, one after the other, in
alternation; the medians are compared. Peak memory is that of the migrating process.
"""

import resource
import statistics
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
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


def measured(folder: Path):
    return measure(discover([folder], environ={}, home=folder), clock=lambda: datetime.now(UTC), environ={})


def bare(folder: Path, endpoint: Endpoint) -> float:
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


def journalled(folder: Path, custody: Path, endpoint: Endpoint) -> float:
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


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    times: dict[str, list[float]] = {"bare": [], "journalled": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plant_store(folder / "host/.neo-ai-data/sqlite/memory-core-graph.sqlite", archives=rows, actions=0)
        for number in range(ROUNDS if rows <= 5_000 else 1):
            with embedded_memory_core(folder / f"core-{number}", tokens="t") as core:
                endpoint = Endpoint(core.url, Token(core.token))
                if rows <= 5_000:
                    times["bare"].append(bare(folder / "host", endpoint))
                times["journalled"].append(journalled(folder / "host", folder / f"custody-{number}", endpoint))
    took = {kind: statistics.median(t) for kind, t in times.items() if t}
    for kind, seconds in took.items():
        print(f"{kind:10} {rows / seconds:8.0f} archives/s")
    if "bare" in took:
        print(f"ratio      {took['bare'] / took['journalled']:8.2f}  (goal 0.80)")
    print(
        f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB, {rows} archives, {WORKERS} workers"
    )


if __name__ == "__main__":
    main()

"""Measuring against the sqlite3 shell reading every column of the same rows.

    python tests/bench/bench_measure.py [GIGABYTES] [--accounted]

1.5 GB is 1,000,000 actions and 100,000 archives. Prints one line: both times, their ratio, the peak memory.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from nl_cutover.contract.rows import ACTIONS, ARCHIVES, DDL
from nl_cutover.stores.checkouts import discover
from nl_cutover.stores.measurement import measure

FULL = 1.5  # GB
MS = 1_780_000_000_000


def payloads(seed: int, size: int) -> list[str]:
    """JSON as a recorder writes it: mostly ASCII, one text in ten with other letters."""
    made = []
    source = random.Random(seed)
    for n in range(400):
        letters = "abcdefghij klmnop" + ("é😀" if n % 10 == 0 else "")
        made.append('{"className":"' + "".join(source.choices(letters, k=source.randint(size // 2, size))) + '"}')
    return made


def make(path: Path, gigabytes: float) -> tuple[int, int]:
    """A store of that size in the recorder's shape; returns (actions, archives)."""
    actions, archives = int(1_000_000 * gigabytes / FULL), int(100_000 * gigabytes / FULL)
    source = random.Random(7)
    args, results, ops = payloads(1, 200), payloads(2, 900), payloads(3, 3000)

    def action_rows() -> Iterator[tuple[object, ...]]:
        for n in range(actions):
            key = f"{source.getrandbits(128):032x}"
            turn = f"neo-opus_{n // 3}"
            yield (key, "neo-opus", f"session-{n // 900}", turn, MS + n, "get_component_tree", args[n % 400],
                   results[n % 399], 1, 12, "Neo.examples.grid", None)  # fmt: skip

    def archive_rows() -> Iterator[tuple[object, ...]]:
        for n in range(archives):
            key = f"{source.getrandbits(128):032x}"
            yield (key, None, f"tx-{n}", "neo-opus", "s", "app", '{"agentId":"neo-opus","sessionId":"s"}', MS + n,
                   MS + n, f"[{ops[n % 400]}]", 0, None)  # fmt: skip

    places = ",".join("?" * 12)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=wal")
        connection.execute("PRAGMA synchronous=OFF")
        for sql in DDL.values():
            connection.execute(sql)
        for column in ("sequence_id", "session_id", "timestamp"):
            connection.execute(f"CREATE INDEX idx_{ACTIONS}_{column} ON {ACTIONS}({column})")
        for column in ("source_tx_id", "archived_at"):
            connection.execute(f"CREATE INDEX idx_{ARCHIVES}_{column} ON {ARCHIVES}({column})")
        connection.execute("BEGIN")
        connection.executemany(f"INSERT INTO {ACTIONS} VALUES ({places})", action_rows())
        connection.executemany(f"INSERT INTO {ARCHIVES} VALUES ({places})", archive_rows())
        connection.execute("COMMIT")
    return actions, archives


def shell(path: Path) -> float:
    """Seconds for the sqlite3 shell to read both tables whole; its output goes nowhere."""
    started = time.perf_counter()
    command = ["sqlite3", f"file:{path}?immutable=1", f"SELECT * FROM {ACTIONS}; SELECT * FROM {ARCHIVES};"]
    with open(os.devnull, "w") as nowhere:
        subprocess.run(command, stdout=nowhere, check=True)
    return time.perf_counter() - started


def ours(path: Path, accounted: bool) -> tuple[float, list[int | None]]:
    """Seconds for `measure`, discovery and control included, and the counts."""
    started = time.perf_counter()
    checkouts = discover([path], environ={}, home=Path("/nonexistent"), closed=True)
    accounts = (lambda *_: True) if accounted else None
    report = measure(checkouts, clock=lambda: datetime.now(UTC), environ={}, accounts=accounts)
    return time.perf_counter() - started, [table.rows for table in report.stores[0].tables]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("gigabytes", type=float, nargs="?", default=0.15)
    parser.add_argument("--accounted", action="store_true", help="digest every row, as against a ledger")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if shutil.which("sqlite3") is None:
        print("no sqlite3 shell on PATH")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.sqlite"
        actions, archives = make(path, options.gigabytes)
        idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        pairs = []
        for _ in range(options.rounds):
            theirs = shell(path)
            seconds, counted = ours(path, options.accounted)
            assert counted == [actions, archives], counted
            pairs.append((theirs, seconds))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        theirs, seconds = min(one for one, _ in pairs), min(one for _, one in pairs)
        print(
            f"{path.stat().st_size / 1e9:.2f} GB, {actions} actions, {archives} archives: "
            f"measure {seconds:.2f} s, sqlite3 shell {theirs:.2f} s, ratio {seconds / theirs:.2f}, "
            f"memory {idle / 1024:.0f} -> {peak / 1024:.0f} MB"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Ingesting against a bare `executemany` of the same nodes and edges into an equal, empty graph.

    python tests/bench/bench_ingest.py [MEMORIES] [SESSIONS]

100,000 memories in 1,000 sessions by default, from JSON lines. Prints one line: rows/s of both and their ratio, and
how much faster the second run is, which has to find everything equal. Exits with 1 when that is not 5 times, in time
of the processor, which other work on the machine does not disturb.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from nl_cutover.memory_core.graph import migrate_graph, open_migrated
from nl_cutover.memory_core.ingestion import ingest, read_source
from nl_cutover.memory_core.sources import read_jsonl
from tests.graph.rows import form, some, write_jsonl

TIMES_FASTER = 5
RUNS = 3


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock, and of the processor."""
    begun, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begun, time.process_time() - used


def ingested(graph: Path, jsonl: Path) -> None:
    with open_migrated(graph) as connection:
        for outcome in ingest(connection, read_source(read_jsonl(jsonl))):
            assert not outcome.errors


def bare(graph: Path, nodes: list[tuple[str, ...]], edges: list[tuple[str, ...]]) -> None:
    with open_migrated(graph) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO Nodes (id, user_id, data) VALUES (?, ?, ?)", nodes)
        connection.executemany("INSERT INTO Edges VALUES (?, ?, ?, ?, ?, ?)", edges)
        connection.execute("COMMIT")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("memories", type=int, nargs="?", default=100_000)
    parser.add_argument("sessions", type=int, nargs="?", default=1_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jsonl = write_jsonl(folder / "rows.jsonl", some(asked.sessions, asked.memories // asked.sessions))
        first, second, plain = [], [], []
        for run in range(RUNS):
            graph, other = folder / f"{run}.sqlite", folder / f"{run}-bare.sqlite"
            for path in (graph, other):
                migrate_graph(path)
            first.append(timed(lambda: ingested(graph, jsonl)))  # noqa: B023 - called at once
            second.append(timed(lambda: ingested(graph, jsonl)))  # noqa: B023
            with closing(sqlite3.connect(graph)) as db:
                nodes = db.execute("SELECT id, user_id, data FROM Nodes").fetchall()
                edges = db.execute("SELECT * FROM Edges").fetchall()
            plain.append(timed(lambda: bare(other, nodes, edges)))  # noqa: B023
            assert form(graph) == form(other)
    rows = asked.memories + asked.sessions
    (one, two, base), (busy_one, busy_two, _) = (
        [min(run[part] for run in runs) for runs in (first, second, plain)] for part in (0, 1)
    )
    faster = busy_one / busy_two
    sys.stdout.write(
        f"ingest {rows} rows: {rows / one:,.0f} rows/s, bare executemany {rows / base:,.0f} rows/s, ratio {base / one:.2f}; "
        f"second run {rows / two:,.0f} rows/s, {one / two:.1f} times faster ({faster:.1f} in processor time)\n"
    )
    return 0 if faster >= TIMES_FASTER else 1


if __name__ == "__main__":
    sys.exit(main())

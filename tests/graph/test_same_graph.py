"""Killed anywhere, run again, or run in two processes at once: the same graph, byte for byte in canonical form.

`NL_CUTOVER_SEEDS` is the number of seeds, "full" for all of them.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from nl_cutover.memory_core.graph import open_migrated
from nl_cutover.memory_core.ingestion import ingest, read_source

from .rows import form, graph_of, query, some, write_jsonl

SEEDS = {"": 4, "full": 200}.get(seeds := os.environ.get("NL_CUTOVER_SEEDS", "")) or int(seeds)
SESSIONS, MEMORIES = 6, 5
ROOT = Path(__file__).parents[2]


def killed(graph: Path, jsonl: Path, statement: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.graph.killed", str(graph), str(jsonl), str(statement)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def ingesting(graph: Path, jsonl: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "nl_cutover", "graph", "ingest", "--db", str(graph), "--jsonl", str(jsonl)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)


def whole_sessions(graph: Path) -> bool:
    """Every session that stands has all its memories with their edges."""
    have = query(graph, "SELECT target, count(*) FROM Edges GROUP BY 1")
    nodes = query(graph, "SELECT count(*) FROM Nodes WHERE id LIKE 'memory:%'")[0][0]
    sessions = query(graph, "SELECT count(*) FROM Nodes WHERE id LIKE 'session:%'")[0][0]
    return len(have) == sessions and nodes == sessions * MEMORIES and all(number == MEMORIES for _, number in have)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_killed_before_any_statement_the_next_run_ends_in_the_same_graph(tmp_path: Path, seed: int) -> None:
    jsonl = write_jsonl(tmp_path / "rows.jsonl", some(SESSIONS, MEMORIES, seed))
    graph = graph_of(tmp_path / "killed.sqlite")
    spare = graph_of(tmp_path / "whole.sqlite")
    statements = int(killed(spare, jsonl, 0).stdout)
    whole = form(spare)
    rng = random.Random(seed)
    assert killed(graph, jsonl, rng.randint(1, statements)).returncode == -signal.SIGKILL
    assert whole_sessions(graph)
    # What is left may take fewer statements than are counted here, so that the second run can end by itself.
    assert killed(graph, jsonl, rng.randint(1, statements)).returncode in (-signal.SIGKILL, 0)
    assert whole_sessions(graph)
    assert killed(graph, jsonl, 0).returncode == 0
    assert form(graph) == whole


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(max(1, SEEDS // 4)))
def test_two_processes_at_once_end_in_the_same_graph(tmp_path: Path, seed: int) -> None:
    rows = some(60, 20, seed)
    first, again = write_jsonl(tmp_path / "1.jsonl", rows), write_jsonl(tmp_path / "2.jsonl", rows[::-1])
    whole = form(graph_of(tmp_path / "whole.sqlite", rows))
    empty = graph_of(tmp_path / "empty.sqlite")
    graph = tmp_path / "graph.sqlite"
    shutil.copy(empty, graph)
    both = [ingesting(graph, jsonl) for jsonl in (first, again)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert form(graph) == whole


def test_a_session_that_another_process_writes_between_the_look_and_the_lock_is_not_written_twice(
    tmp_path: Path,
) -> None:
    """Choreographed: the other one runs to its end when this one is about to take the lock for its first session."""
    rows = some(SESSIONS, MEMORIES)
    jsonl = write_jsonl(tmp_path / "rows.jsonl", rows)
    graph, whole = graph_of(tmp_path / "graph.sqlite"), form(graph_of(tmp_path / "whole.sqlite", rows))
    others: list[subprocess.Popen[bytes]] = []

    def meanwhile(statement: str) -> None:
        if statement == "BEGIN IMMEDIATE" and not others:
            others.append(ingesting(graph, jsonl))
            assert others[0].wait(60) == 0

    with open_migrated(graph) as connection:
        connection.set_trace_callback(meanwhile)
        outcomes = list(ingest(connection, read_source(rows)))
    assert len(others) == 1
    assert not any(o.session_written or o.memories_written or o.edges_written or o.errors for o in outcomes)
    assert query(graph, "SELECT count(*) FROM GraphLog") == query(
        tmp_path / "whole.sqlite", "SELECT count(*) FROM GraphLog"
    )
    assert form(graph) == whole


def test_a_locked_graph_is_an_error_of_the_session_and_the_next_run_mends_it(tmp_path: Path) -> None:
    rows = some(2, 2)
    graph = graph_of(tmp_path / "graph.sqlite")
    with open_migrated(graph) as connection, closing(sqlite3.connect(graph, isolation_level=None)) as holder:
        connection.execute("PRAGMA busy_timeout = 0")
        holder.execute("BEGIN IMMEDIATE")
        assert [o.errors for o in ingest(connection, read_source(rows))] == [
            ("[session:s-0-0] database is locked",),
            ("[session:s-0-1] database is locked",),
        ]
        holder.execute("ROLLBACK")
        assert [o.errors for o in ingest(connection, read_source(rows))] == [(), ()]

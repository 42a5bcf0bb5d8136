"""`nl-cutover graph`: the schema, the sources, the check with its control, and what is refused."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nl_cutover.cli import main
from nl_cutover.errors import UnmeasurableError
from nl_cutover.memory_core import integrity
from nl_cutover.memory_core.graph import open_graph, open_migrated
from nl_cutover.resources import resource
from nl_cutover.testing import plant_store

from .rows import form, graph_of, memory, query, session, some, write_jsonl

Capture = pytest.CaptureFixture[str]
INDICES = {"idx_nodes_memory_user_id", "idx_nodes_session_user_id", "idx_edges_memory_session_id"}


def graph(*words: object, capture: Capture) -> tuple[int, Any, str]:
    """Run the verb; its exit code, its JSON and what it complained."""
    with pytest.raises(SystemExit) as end:
        main(["graph", *map(str, words), "--format", "json"])
    printed = capture.readouterr()
    return int(end.value.code or 0), json.loads(printed.out), printed.err


def indices(path: Path) -> set[str]:
    return {n for (n,) in query(path, "SELECT name FROM sqlite_master WHERE type = 'index'")} & INDICES


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A graph from before Memory and Session, as a Memory Core of then left it."""
    path = tmp_path / "old.sqlite"
    open_graph(path).close()
    with closing(sqlite3.connect(path)) as db, db:
        for index in INDICES:
            db.execute(f"DROP INDEX {index}")
        db.execute("DELETE FROM SchemaVersion WHERE id = 'memory-session'")
        db.execute("DELETE FROM _sqlite_migrations WHERE name LIKE 'memory_and_session%'")
        db.execute('INSERT INTO Nodes (id, data) VALUES (\'kept\', \'{"id":"kept","label":"CONCEPT"}\')')
    return path


# The schema.


def test_migrate_brings_labels_with_indices_on_session_and_owner(old: Path, capsys: Capture) -> None:
    code, report, _ = graph("migrate", "--db", old, capture=capsys)
    assert (code, report["applied"]) == (0, ["memory_and_session_version_1"])
    assert indices(old) == INDICES
    assert query(old, "SELECT id, version FROM SchemaVersion ORDER BY id") == [("graph", 1), ("memory-session", 1)]
    assert query(old, "SELECT id FROM Nodes") == [("kept",)]
    assert graph("migrate", "--db", old, capture=capsys)[1]["applied"] == [], "a second time there is nothing to do"


def test_sqlite_utils_applies_the_same_migration(old: Path) -> None:
    command = [sys.executable, "-m", "sqlite_utils", "migrate", str(old), str(resource("migrations", "graph.py"))]
    subprocess.run(command, check=True, capture_output=True)
    assert indices(old) == INDICES


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        ("Nodes WHERE id = 'session:' || ?", "sqlite_autoindex_Nodes_1"),
        ("Edges WHERE type = 'ORIGINATES_IN' AND target = 'session:' || ?", "idx_edges_memory_session_id"),
        ("Nodes WHERE user_id = ? AND id >= 'session:' AND id < 'session;'", "idx_nodes_session_user_id"),
        ("Nodes WHERE user_id = ? AND id >= 'memory:' AND id < 'memory;'", "idx_nodes_memory_user_id"),
    ],
)
def test_sessions_and_memories_are_found_by_session_and_by_owner_through_an_index(
    tmp_path: Path, wanted: str, index: str
) -> None:
    path = graph_of(tmp_path / "graph.sqlite", some(2, 2))
    [plan] = query(path, f"EXPLAIN QUERY PLAN SELECT * FROM {wanted}", "x")
    assert plan[3].startswith("SEARCH")
    assert f" {index} " in plan[3]


def test_a_connection_that_does_not_trust_the_schema_reads_the_graph(tmp_path: Path) -> None:
    """As a Memory Core's own SQLite does, and this tool's reader of evidence."""
    path = graph_of(tmp_path / "graph.sqlite", some(1, 2))
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA trusted_schema = OFF")
        assert db.execute("SELECT count(*) FROM Nodes").fetchone() == (3,)
        db.execute("DELETE FROM Nodes")


@pytest.mark.parametrize("part", ["graph", "memory-session"])
def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path, capsys: Capture, part: str) -> None:
    path = graph_of(tmp_path / "graph.sqlite")
    query(path, "UPDATE SchemaVersion SET version = 2 WHERE id = ?", part)
    before = form(path), path.read_bytes()
    for verb in (
        ("migrate",),
        ("check",),
        ("ingest", "--jsonl", write_jsonl(tmp_path / "rows", [])),
        ("backfill", "--jsonl", tmp_path / "rows"),
    ):
        code, _, complaint = graph(*verb, "--db", path, capture=capsys)
        assert code == 3
        assert "schema version 2" in complaint
    assert (form(path), path.read_bytes()) == before


def test_a_graph_without_the_schema_is_refused_with_the_next_command(
    old: Path, tmp_path: Path, capsys: Capture
) -> None:
    rows = write_jsonl(tmp_path / "rows", [session("s")])
    for verb in (("check",), ("ingest", "--jsonl", rows), ("backfill", "--jsonl", rows)):
        code, _, complaint = graph(*verb, "--db", old, capture=capsys)
        assert code == 3
        assert f"next: nl-cutover graph migrate --db {old}" in complaint


def test_a_host_store_is_refused_and_not_touched(tmp_path: Path, capsys: Capture) -> None:
    store = tmp_path / "store.sqlite"
    plant_store(store, archives=1, wal=False)
    before = store.read_bytes()
    for verb in (("migrate",), ("check",)):
        code, _, complaint = graph(*verb, "--db", store, capture=capsys)
        assert code == 3
        assert "host store" in complaint
    assert store.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["store.sqlite"]


@pytest.mark.parametrize("verb", ["check", "ingest", "backfill"])
def test_a_graph_that_is_not_there_is_not_made(tmp_path: Path, capsys: Capture, verb: str) -> None:
    rows = [] if verb == "check" else ["--jsonl", write_jsonl(tmp_path / "rows", [])]
    assert graph(verb, "--db", tmp_path / "absent.sqlite", *rows, capture=capsys)[0] == 3
    assert not (tmp_path / "absent.sqlite").exists()


# Ingest and back-fill.


def test_ingest_says_what_it_wrote_and_the_second_time_that_all_was_equal(tmp_path: Path, capsys: Capture) -> None:
    path, rows = (
        graph_of(tmp_path / "g.sqlite"),
        write_jsonl(tmp_path / "rows", [*some(3, 4), memory("late", "unsummarized")]),
    )
    code, report, _ = graph("ingest", "--db", path, "--jsonl", rows, capture=capsys)
    del report["db"]
    assert (code, report) == (
        0,
        {
            "schema": "nl-cutover/graph-ingest/1",
            "verdict": "complete",
            "exit_code": 0,
            "sessions": 3,
            "sessions_written": 3,
            "memories_written": 12,
            "memories_equal": 0,
            "edges_written": 12,
            "waiting": 1,
            "errors": [],
        },
    )
    code, report, _ = graph("ingest", "--db", path, "--jsonl", rows, capture=capsys)
    told = {name: report[name] for name in ("sessions_written", "memories_written", "memories_equal", "edges_written")}
    assert (code, told) == (0, {"sessions_written": 0, "memories_written": 0, "memories_equal": 12, "edges_written": 0})
    code, report, _ = graph("backfill", "--db", path, "--jsonl", rows, capture=capsys)
    assert (code, report["sessions_written"], report["memories_written"], report["waiting"]) == (0, 1, 1, 0)
    assert graph("check", "--db", path, capture=capsys)[0] == 0


def test_rows_that_cannot_be_written_end_in_7_and_are_named(tmp_path: Path, capsys: Capture) -> None:
    path, rows = graph_of(tmp_path / "g.sqlite"), write_jsonl(tmp_path / "rows", [session("s"), memory("m", "s")])
    with rows.open("a") as lines:
        lines.write(
            '\n{"kind":"memory","id":7}\n{"kind":"memory","id":"x","metadata":{"sessionId":"\\ud800"}}\n{"kind":"mem'
        )
    code, report, _ = graph("ingest", "--db", path, "--jsonl", rows, capture=capsys)
    assert (code, report["verdict"], report["memories_written"]) == (7, "partial", 1)
    assert [error.split("]")[0] for error in report["errors"]] == ["[line 4", "[line 5", "[line 6"]


def test_a_report_for_a_person_names_some_errors_and_counts_the_rest(tmp_path: Path, capsys: Capture) -> None:
    rows = [session("s"), *(memory(f"m{n:02}", "s", userId=n) for n in range(30))]
    path, jsonl = graph_of(tmp_path / "g.sqlite"), write_jsonl(tmp_path / "rows", rows)
    with pytest.raises(SystemExit) as end:
        main(["graph", "ingest", "--db", str(path), "--jsonl", str(jsonl)])
    printed = capsys.readouterr().out
    assert end.value.code == 7
    assert "10 more errors" in printed
    assert "its userId is no name" in printed


def test_one_source_is_needed(tmp_path: Path, capsys: Capture) -> None:
    path = graph_of(tmp_path / "g.sqlite")
    assert graph("ingest", "--db", path, capture=capsys)[0] == 2
    both = ("--jsonl", "rows", "--chroma", "http://127.0.0.1:9")
    assert graph("ingest", "--db", path, *both, capture=capsys)[0] == 2
    assert graph("ingest", "--db", path, "--jsonl", tmp_path / "absent", capture=capsys)[0] == 4


def test_chroma_without_its_client_says_what_to_install(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "chromadb", None)
    path = graph_of(tmp_path / "g.sqlite")
    code, _, complaint = graph("ingest", "--db", path, "--chroma", "http://127.0.0.1:9", capture=capsys)
    assert code == 2
    assert "pip install 'nl-cutover[chroma]'" in complaint


# Check.


def test_a_sound_graph_is_counted_by_label(tmp_path: Path, capsys: Capture) -> None:
    path = graph_of(tmp_path / "g.sqlite", some(2, 3))
    code, report, _ = graph("check", "--db", path, capture=capsys)
    found = report["integrity"]
    assert (code, report["verdict"], found["faults"]) == (0, "sound", [])
    assert (found["labels"], found["edges"], found["orphans"]) == ({"MEMORY": 6, "SESSION": 2}, {"ORIGINATES_IN": 6}, 0)
    other = graph_of(tmp_path / "other.sqlite", some(2, 3)[::-1])
    assert graph("check", "--db", other, capture=capsys)[1]["integrity"]["digest"] == found["digest"]


@pytest.mark.parametrize(
    ("damage", "kind", "first"),
    [
        ("DELETE FROM Edges WHERE source = 'memory:m-0-0-0'", "a memory without its edge", "memory:m-0-0-0"),
        (
            "INSERT INTO Edges SELECT 'twin', user_id, source, target, type, data FROM Edges LIMIT 1",
            "a memory with several edges",
            "memory:m-0-0-0",
        ),
        ("DELETE FROM Nodes WHERE id = 'session:s-0-1'", "an edge without its ends", "ORIGINATES_IN:memory:m-0-1-0"),
        (
            "UPDATE Edges SET source = 'session:s-0-1' WHERE source = 'memory:m-0-0-0'",
            "an edge between other nodes",
            "ORIGINATES_IN:memory:m-0-0-0",
        ),
        (
            "UPDATE Edges SET source = 'other' WHERE source = 'memory:m-0-0-0'",
            "an edge between other nodes",
            "ORIGINATES_IN:memory:m-0-0-0",
        ),
        (
            "UPDATE Edges SET target = 'session:s-0-1' WHERE source = 'memory:m-0-0-0'",
            "an edge between other nodes",
            "ORIGINATES_IN:memory:m-0-0-0",
        ),
        *(
            (
                f"UPDATE Edges SET user_id = {owner} WHERE source = 'memory:m-0-0-0'",
                "an edge of another owner",
                "ORIGINATES_IN:memory:m-0-0-0",
            )
            for owner in ("'@mallory'", "NULL", "''")
        ),
        ("UPDATE Nodes SET data = '{' WHERE id = 'other'", "a node that is not JSON", "other"),
    ],
)
def test_each_fault_is_found_and_named(tmp_path: Path, capsys: Capture, damage: str, kind: str, first: str) -> None:
    path = graph_of(tmp_path / "g.sqlite", sorted(some(2, 2), key=lambda row: row.id))
    query(path, "INSERT INTO Nodes (id, data) VALUES ('other', '{}')")
    query(path, damage)
    code, report, _ = graph("check", "--db", path, capture=capsys)
    assert (code, report["verdict"]) == (8, "faulty")
    assert first in {fault["kind"]: fault["ids"] for fault in report["integrity"]["faults"]}[kind]


def test_a_check_that_does_not_see_a_planted_fault_is_no_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: blind to one kind of fault, it must not call a graph sound."""
    blind = {**integrity._FAULTS, "a memory without its edge": "SELECT id FROM Nodes WHERE 0"}
    monkeypatch.setattr(integrity, "_FAULTS", blind)
    path = graph_of(tmp_path / "g.sqlite", some(1, 1))
    with open_migrated(path, read_only=True) as connection, pytest.raises(UnmeasurableError, match="without its edge"):
        integrity.check(connection)


def test_check_writes_nothing(tmp_path: Path, capsys: Capture) -> None:
    path = graph_of(tmp_path / "g.sqlite", some(1, 1))
    query(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    copy = tmp_path / "copy.sqlite"
    shutil.copy(path, copy)
    before = copy.read_bytes()
    assert graph("check", "--db", copy, capture=capsys)[0] == 0
    assert copy.read_bytes() == before

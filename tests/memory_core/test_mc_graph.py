"""The graph's file: its schema, its version, its log."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nl_cutover.errors import RefusedError
from nl_cutover.memory_core.graph import open_graph


def test_the_schema_is_the_graphs(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "graph.sqlite"
    open_graph(path).close()
    open_graph(path).close()
    with closing(sqlite3.connect(path)) as db:
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert {"Nodes", "Edges", "GraphLog", "SchemaVersion"} <= names
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE type = 'trigger'").fetchone() == (6,)
        assert db.execute("SELECT id, version FROM SchemaVersion").fetchall() == [("graph", 1), ("memory-session", 1)]
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_every_change_of_nodes_and_edges_is_logged(tmp_path: Path) -> None:
    path = tmp_path / "graph.sqlite"
    graph = open_graph(path)
    for name in ("a", "b", "a"):
        graph.upsert(name, "thing", name, 1, {}, user=None)
    graph.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("INSERT INTO Edges VALUES ('e', NULL, 'a', 'b', 'KNOWS', '{}')")
        db.execute("UPDATE Edges SET type = 'LIKES'")
        db.execute("DELETE FROM Nodes WHERE id = 'b'")
        logged = db.execute("SELECT entity_type, entity_id FROM GraphLog ORDER BY log_id").fetchall()
        assert db.execute("SELECT count(*) FROM Edges").fetchone() == (0,)
    nodes, edge = [("nodes", "a"), ("nodes", "b"), ("nodes", "a")], ("edges", "e")
    assert logged[:5] == [*nodes, edge, edge]
    assert sorted(logged[5:]) == [edge, ("nodes", "b")]


@pytest.mark.parametrize("version", [0, 2, None])
def test_a_graph_of_another_version_is_refused_and_left_alone(tmp_path: Path, version: int | None) -> None:
    path = tmp_path / "graph.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE SchemaVersion (id TEXT PRIMARY KEY, version INTEGER)")
        db.execute("INSERT INTO SchemaVersion VALUES ('graph', ?)", (version,))
        db.commit()
    before = path.read_bytes()
    with pytest.raises(RefusedError, match=f"schema version {version}"):
        open_graph(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "graph.sqlite"
    path.write_bytes(b"not a database, but long enough to be read as a header" * 20)
    with pytest.raises(RefusedError, match="file is not a database"):
        open_graph(path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RefusedError, match="cannot be served"):
        open_graph(tmp_path / "file" / "graph.sqlite")


def test_a_merge_keeps_old_properties_and_the_owner(tmp_path: Path) -> None:
    graph = open_graph(tmp_path / "graph.sqlite")
    graph.upsert("n", "thing", "first", 1, {"kept": 1, "changed": 1}, user="vega")
    graph.upsert("n", "thing", "second", 2, {"changed": 2}, user="ada")
    node = graph.node("n", "vega")
    graph.close()
    assert node == {
        "id": "n",
        "label": "thing",
        "properties": {
            "name": "second",
            "description": "",
            "updatedAt": 2,
            "kept": 1,
            "changed": 2,
            "userId": "vega",
        },
    }

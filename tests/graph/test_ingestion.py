"""Ingestion, one test for each of the acceptance criteria of neo#10151, and for what its follow-ups learnt."""

from __future__ import annotations

import json
import sqlite3
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nl_cutover.memory_core.graph import open_migrated
from nl_cutover.memory_core.ingestion import Row, backfill, ingest, read_source
from nl_cutover.memory_core.integrity import check, orphans, remove_orphans
from nl_cutover.memory_core.jsontext import stringify

from .rows import form, graph_of, memory, properties, query, row, run, session, some

EDGES = "SELECT source, target FROM Edges WHERE type = 'ORIGINATES_IN' ORDER BY source"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return graph_of(tmp_path / "graph.sqlite")


def hash_of(**payload: str) -> str:
    return sha256(json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


# What a row becomes.


def test_a_session_node_comes_from_its_summarys_metadata(path: Path) -> None:
    run(path, [session("s1", createdAt="2026-01-01", userId="@vega")])
    assert query(path, "SELECT id, user_id, json_extract(data, '$.label') FROM Nodes") == [
        ("session:s1", "@vega", "SESSION")
    ]
    assert properties(path, "session:s1") == {
        "name": "About s1",
        "chromaId": "summary_s1",
        "createdAt": "2026-01-01",
        "liveIngested": True,
        "payloadHash": hash_of(createdAt="2026-01-01", sessionId="s1", title="About s1", userId="@vega"),
        "sessionId": "s1",
        "userId": "@vega",
    }


def test_a_memory_node_per_memory_keyed_by_its_chroma_id(path: Path) -> None:
    run(path, [session("s1"), memory("0123456789abcdef", "s1", createdAt=5), memory("m2", "s1", userId="@ada")])
    assert query(path, "SELECT id, user_id FROM Nodes WHERE json_extract(data, '$.label') = 'MEMORY' ORDER BY id") == [
        ("memory:0123456789abcdef", None),
        ("memory:m2", "@ada"),
    ]
    assert properties(path, "memory:0123456789abcdef") == {
        "name": "0123456789ab",
        "chromaId": "0123456789abcdef",
        "createdAt": 5,
        "liveIngested": True,
        "payloadHash": sha256(b'{"createdAt":5,"sessionId":"s1","userId":""}').hexdigest(),
        "sessionId": "s1",
    }


def test_every_memory_originates_in_its_session(path: Path) -> None:
    run(path, [session("s1"), session("s2"), memory("a", "s1"), memory("b", "s2"), memory("c", "s1")])
    assert query(path, EDGES) == [("memory:a", "session:s1"), ("memory:b", "session:s2"), ("memory:c", "session:s1")]
    [(data,)] = query(path, "SELECT data FROM Edges WHERE source = 'memory:a'")
    assert json.loads(data) == {
        "id": "ORIGINATES_IN:memory:a",
        "source": "memory:a",
        "target": "session:s1",
        "type": "ORIGINATES_IN",
        "properties": {"weight": 1},
    }


def test_the_session_stands_with_all_its_memories_before_an_extraction_step_can_run(path: Path) -> None:
    rows = some(3, 4)
    with open_migrated(path) as connection:
        for outcome in ingest(connection, read_source(rows)):
            # Another connection, as the extractor is: it sees the whole session, and nothing of the next one.
            edges = "SELECT count(*) FROM Edges WHERE target = ?"
            assert query(path, edges, f"session:{outcome.session_id}") == [(4,)]
            assert outcome.errors == ()
    assert len(query(path, EDGES)) == 12


def test_the_node_is_written_before_the_edge(path: Path) -> None:
    """Foreign keys hold at once, not at the commit: an edge before its nodes would be refused."""
    run(path, some(2, 2))
    logged = [row[0] for row in query(path, "SELECT entity_id FROM GraphLog ORDER BY log_id")]
    for edge, target in query(path, "SELECT id, target FROM Edges"):
        assert logged.index(target) < logged.index(edge)
        assert logged.index(edge.removeprefix("ORIGINATES_IN:")) < logged.index(edge)


def test_a_session_that_has_no_memories_stands_alone(path: Path) -> None:
    [outcome] = run(path, [session("s1")])
    assert (outcome.session_written, outcome.memories_written, outcome.errors) == (True, 0, ())


def test_a_session_without_a_title_is_named_by_its_id(path: Path) -> None:
    run(path, [session("s1", title=""), session("s2", title=None)])
    assert [properties(path, f"session:{name}")["name"] for name in ("s1", "s2")] == ["s1", "s2"]


@pytest.mark.parametrize("title", ['"quoted"\\', "ünï 😀", "half \ud83d", "\x00\n\x7f\u2028"])
@pytest.mark.parametrize("created_at", [None, "", 0, 1.5, 1e21, True, -(2**53), 2**60])
def test_the_hash_is_that_of_the_json_that_javascript_writes(path: Path, title: str, created_at: Any) -> None:
    run(path, [session("s1", title=title, createdAt=created_at)])
    when = "" if created_at is None else float(created_at) if created_at == 2**60 else created_at
    text = stringify({"createdAt": when, "sessionId": "s1", "title": title, "userId": ""})
    assert properties(path, "session:s1")["payloadHash"] == sha256(text.encode()).hexdigest()


# Run again.


def test_equal_payloads_are_skipped_and_nothing_is_written(path: Path) -> None:
    rows = some(4, 5)
    run(path, rows)
    before = query(path, "SELECT count(*) FROM GraphLog")
    outcomes = run(path, rows)
    assert query(path, "SELECT count(*) FROM GraphLog") == before
    assert not any(o.session_written or o.memories_written or o.edges_written for o in outcomes)
    assert [o.memories_equal for o in outcomes] == [5] * 4


def test_a_lost_edge_is_repaired_though_the_payload_is_equal(path: Path) -> None:
    rows = some(2, 3)
    run(path, rows)
    whole = form(path)
    query(path, "DELETE FROM Edges WHERE source LIKE '%-0-1'")
    outcomes = run(path, rows)
    assert sum(o.edges_written for o in outcomes) == 1
    assert sum(o.memories_written for o in outcomes) == 0
    assert form(path) == whole


@pytest.mark.parametrize(
    "change",
    [
        "type = 'OTHER'",
        "source = 'memory:m-0-0-1'",
        "source = 'memory:m-0-1-0'",
        "source = 'nowhere'",
        "target = 'session:s-0-1'",
        "id = 'ORIGINATES_IN:memory:m-0-0-1'",
    ],
)
def test_an_edge_that_was_altered_by_hand_is_repaired_by_the_next_run(path: Path, change: str) -> None:
    rows = some(2, 2)
    run(path, rows)
    whole = form(path)
    query(path, "DELETE FROM Edges WHERE id = 'ORIGINATES_IN:memory:m-0-0-1'")
    query(path, f"UPDATE Edges SET {change} WHERE source = 'memory:m-0-0-0'")
    run(path, rows)
    assert form(path) == whole


def test_a_changed_payload_is_written_and_what_others_added_stays(path: Path) -> None:
    run(path, [session("s1"), memory("m", "s1")])
    query(
        path, "UPDATE Nodes SET data = json_set(data, '$.properties.description', 'extracted') WHERE id = 'session:s1'"
    )
    [outcome] = run(path, [session("s1", title="Renamed"), memory("m", "s1")])
    assert outcome.session_written
    assert properties(path, "session:s1")["name"] == "Renamed"
    assert properties(path, "session:s1")["description"] == "extracted"


def test_a_memory_that_moved_has_one_edge_and_it_is_the_new_one(path: Path) -> None:
    run(path, [session("s1"), session("s2"), memory("m", "s1")])
    run(path, [session("s1"), session("s2"), memory("m", "s2")])
    assert query(path, EDGES) == [("memory:m", "session:s2")]


def test_an_edge_that_stands_under_another_id_is_not_doubled(path: Path) -> None:
    run(path, [session("s1"), memory("m", "s1")])
    query(path, "UPDATE Edges SET id = 'as the real one names it'")
    [outcome] = run(path, [session("s1"), memory("m", "s1")])
    assert outcome.edges_written == 0
    assert query(path, "SELECT id FROM Edges") == [("as the real one names it",)]


# Never half a session, and errors by row.


def test_a_failure_in_the_middle_of_a_session_leaves_nothing_of_it(path: Path) -> None:
    query(
        path,
        "CREATE TRIGGER full BEFORE INSERT ON Nodes WHEN NEW.id = 'memory:m-0-1-2' BEGIN SELECT RAISE(FAIL, 'disk full'); END",
    )
    outcomes = run(path, some(3, 4))
    assert [o.errors for o in outcomes] == [(), ("[session:s-0-1] disk full",), ()]
    assert query(path, "SELECT count(*) FROM Nodes WHERE id = 'session:s-0-1' OR id LIKE 'memory:m-0-1-%'") == [(0,)]
    query(path, "DROP TRIGGER full")
    run(path, some(3, 4))
    assert len(query(path, EDGES)) == 12


def test_errors_are_collected_by_row_and_the_others_go_in(path: Path) -> None:
    rows = [
        session("s1"),
        memory("good", "s1"),
        memory("", "s1"),
        row("memory", "no-session", {"createdAt": 1}),
        row("memory", "number", {"sessionId": 7}),
        memory("owner", "s1", userId=3),
        memory("when", "s1", createdAt=[1]),
        memory("half", "s\ud800"),
        memory("nul\0", "s1"),
        row("concept", "c", {"sessionId": "s1"}),
        session("s2", title=5),
    ]
    source = read_source(rows)
    with open_migrated(path) as connection:
        list(ingest(connection, source))
    assert [error.partition("]")[0] + "]" for error in source.errors] == sorted(
        ["[]", "[no-session]", "[number]", "[owner]", "[when]", "[half]", "[nul\0]", "[c]", "[summary_s2]"]
    )
    assert query(path, EDGES) == [("memory:good", "session:s1")]


def test_twins_that_differ_are_refused_and_equal_ones_count_once(path: Path) -> None:
    rows = [
        session("s1"),
        session("s1"),
        memory("a", "s1"),
        memory("a", "s1"),
        memory("b", "s1"),
        memory("b", "s1", createdAt=2),
    ]
    rows += [session("s2"), session("s2", title="Other"), memory("c", "s2")]
    for order in (rows, rows[::-1]):
        source = read_source(order)
        assert len(source.errors) == 3
        with open_migrated(path) as connection:
            list(ingest(connection, source))
    assert query(path, EDGES) == [("memory:a", "session:s1")]
    assert source.unsummarized == [], "disputed is not unsummarized"


def test_a_memory_whose_session_has_no_summary_waits(path: Path) -> None:
    source = read_source([memory("m", "s1")])
    with open_migrated(path) as connection:
        assert list(ingest(connection, source)) == []
    assert source.unsummarized == ["s1"]
    assert query(path, "SELECT count(*) FROM Nodes") == [(0,)]


# Owners.


def test_a_node_of_another_owner_is_left_alone(path: Path) -> None:
    run(path, [session("s1", userId="@vega"), memory("m", "s1", userId="@vega"), memory("n", "s1", userId="@vega")])
    before = query(path, "SELECT * FROM Nodes ORDER BY id")
    rows = [session("s1", userId="@vega"), memory("m", "s1", userId="@ada"), memory("n", "s1", userId="@vega")]
    [outcome] = run(path, rows)
    assert outcome.errors == ("[m] the node memory:m belongs to another owner",)
    assert query(path, "SELECT * FROM Nodes ORDER BY id") == before


def test_of_another_owners_session_nothing_is_written(path: Path) -> None:
    run(path, [session("s1", userId="@vega")])
    [outcome] = run(path, [session("s1", userId="@ada"), memory("m", "s1", userId="@ada")])
    assert outcome.errors == ("[summary_s1] the node session:s1 belongs to another owner",)
    assert query(path, "SELECT id FROM Nodes") == [("session:s1",)]


def test_a_row_that_names_no_owner_takes_none_away(path: Path) -> None:
    run(path, [session("s1", userId="@vega")])
    [outcome] = run(path, [session("s1")])
    assert outcome.errors == ()
    assert query(path, "SELECT user_id FROM Nodes") == [("@vega",)]
    assert properties(path, "session:s1")["userId"] == "@vega"


OWNERS = "SELECT n.user_id, e.user_id FROM Nodes n JOIN Edges e ON e.source = n.id ORDER BY n.id"


def test_an_edge_has_its_memorys_owner_however_the_owner_came_to_be_known(path: Path) -> None:
    run(path, [session("s1"), memory("a", "s1", userId="@vega"), memory("b", "s1")])
    assert query(path, OWNERS) == [("@vega", "@vega"), (None, None)]
    query(path, "DELETE FROM Edges WHERE source = 'memory:a'")
    run(path, [session("s1"), memory("a", "s1"), memory("b", "s1", userId="@ada")])
    assert query(path, OWNERS) == [("@vega", "@vega"), ("@ada", "@ada")]


@pytest.mark.parametrize("owner", ["@mallory", None])
def test_an_edge_whose_owner_was_altered_is_repaired(path: Path, owner: str | None) -> None:
    rows = [session("s1"), memory("a", "s1", userId="@vega"), memory("b", "s1", userId="@vega")]
    run(path, rows)
    before = form(path)
    query(path, "UPDATE Edges SET user_id = ? WHERE source = 'memory:a'", owner)
    [outcome] = run(path, rows)
    assert (outcome.edges_written, outcome.memories_written) == (1, 0)
    assert form(path) == before


def test_an_edge_that_the_server_itself_wrote_may_have_no_owner(path: Path) -> None:
    rows = [session("s1"), memory("a", "s1", userId="@vega")]
    run(path, rows)
    query(path, "UPDATE Edges SET user_id = NULL, id = 'of-the-server'")
    [outcome] = run(path, rows)
    assert outcome.edges_written == 0
    with open_migrated(path) as connection:
        assert check(connection).faults == []


def test_a_node_that_cannot_be_read_is_an_error_of_its_row(path: Path) -> None:
    run(path, [session("s1"), memory("m", "s1"), memory("n", "s1")])
    query(path, "UPDATE Nodes SET data = '{\"id\":\"memory:m\"}' WHERE id = 'memory:m'")
    [outcome] = run(path, [session("s1"), memory("m", "s1"), memory("n", "s1")])
    assert outcome.errors == ("[m] the node memory:m that stands cannot be read",)


# Clean-up.


def test_an_orphan_clean_up_never_takes_memories_or_sessions(path: Path) -> None:
    run(path, [session("alone"), session("s1"), memory("m", "s1")])
    query(path, "DELETE FROM Edges")
    for label in ("nl-transaction-archive", "nl-action-telemetry", "CONCEPT"):
        query(path, "INSERT INTO Nodes (id, data) VALUES (?, ?)", label, json.dumps({"id": label, "label": label}))
    with open_migrated(path) as connection:
        assert orphans(connection) == ["CONCEPT"]
        assert remove_orphans(connection) == 1
        assert orphans(connection) == []
    kept = [row[0] for row in query(path, "SELECT id FROM Nodes ORDER BY id")]
    assert kept == ["memory:m", "nl-action-telemetry", "nl-transaction-archive", "session:alone", "session:s1"]


# Back-fill.


def fill(path: Path, rows: list[Row]) -> Any:
    with open_migrated(path) as connection:
        return list(backfill(connection, read_source(rows)))


def test_backfill_writes_what_is_absent_and_gives_a_minimal_session_where_there_is_no_summary(path: Path) -> None:
    outcomes = fill(path, [session("s1"), memory("a", "s1"), memory("b", "s2", userId="@ada")])
    assert [(o.session_id, o.session_written, o.memories_written) for o in outcomes] == [
        ("s1", True, 1),
        ("s2", True, 1),
    ]
    assert properties(path, "session:s2") == {"name": "s2", "sessionId": "s2", "backfilled": True, "minimal": True}
    assert properties(path, "memory:b")["backfilled"] is True
    assert query(path, EDGES) == [("memory:a", "session:s1"), ("memory:b", "session:s2")]


def test_backfill_leaves_what_stands_and_repairs_its_edge(path: Path) -> None:
    run(path, [session("s1"), memory("a", "s1")])
    query(path, "DELETE FROM Edges")
    before = query(path, "SELECT * FROM Nodes")
    [outcome] = fill(path, [session("s1", title="Later"), memory("a", "s1", createdAt=9)])
    assert (outcome.session_written, outcome.memories_written, outcome.edges_written) == (False, 0, 1)
    assert query(path, "SELECT * FROM Nodes") == before
    assert len(query(path, EDGES)) == 1


def test_a_later_summary_makes_a_minimal_session_whole(path: Path) -> None:
    fill(path, [memory("a", "s1")])
    [outcome] = run(path, [session("s1"), memory("a", "s1")])
    assert outcome.session_written
    assert properties(path, "session:s1")["name"] == "About s1"
    assert "minimal" not in properties(path, "session:s1")


def test_backfill_twice_is_backfill_once(path: Path) -> None:
    rows = [*some(2, 2), memory("a", "elsewhere")]
    fill(path, rows)
    before = query(path, "SELECT count(*) FROM GraphLog")
    fill(path, rows)
    assert query(path, "SELECT count(*) FROM GraphLog") == before


# The same graph, whatever happened on the way.

IDS = st.sampled_from(["a", "b", "c", "ü", "x:y", "memory:a", "session:a", '"', "\\", " ", "0", "a" * 20, "😀", "%"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=4)
    | st.lists(st.none(), max_size=1)
)
METADATA = st.dictionaries(st.sampled_from(["createdAt", "title", "userId", "other", "sessionId"]), SCALARS, max_size=4)
ROWS = st.lists(
    st.builds(
        lambda kind, row_id, session_id, extra: row(kind, row_id, {"sessionId": session_id} | extra),
        st.sampled_from(["session", "memory", "memory", "memory"]),
        IDS,
        IDS,
        st.just({}) | METADATA,
    ),
    max_size=14,
)


@given(rows=ROWS, order=st.randoms(use_true_random=False), stop=st.integers(0, 6), doubled=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
def test_any_order_any_stop_and_any_number_of_runs_end_in_the_same_graph(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], order: Any, stop: int, doubled: bool
) -> None:
    folder = tmp_path_factory.mktemp("same")
    whole = form(graph_of(folder / "one.sqlite", rows))
    other = graph_of(folder / "other.sqlite")
    shuffled = rows * (2 if doubled else 1)
    order.shuffle(shuffled)
    with open_migrated(other) as connection:
        for number, _ in enumerate(ingest(connection, read_source(shuffled))):
            if number == stop:
                break
        assert sound(connection)
    run(other, shuffled)
    assert form(other) == whole
    outcomes = run(other, rows)
    assert form(other) == whole
    assert not any(o.session_written or o.memories_written or o.edges_written for o in outcomes)


def sound(connection: sqlite3.Connection) -> bool:
    return check(connection).faults == []

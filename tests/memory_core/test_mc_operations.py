"""The operations without a server: JavaScript's notion of true, blank and finite; injected clock and ids."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nl_cutover.contract.surface import derive_tools
from nl_cutover.contract.wire import ADMIT, GET, HEALTH, MARK, SAVE
from nl_cutover.memory_core.auth import Identity
from nl_cutover.memory_core.graph import open_graph
from nl_cutover.memory_core.jsontext import parse
from nl_cutover.memory_core.operations import Operations, Plane
from nl_cutover.memory_core.retention import Retention
from nl_cutover.memory_core.surface import load_document
from nl_cutover.testing import FixedClock

NOBODY = Identity()


class Bench:
    def __init__(self, path: Path) -> None:
        self.clock = FixedClock(1_000)
        self.graph = open_graph(path)
        ids = (f"00000000-0000-4000-8000-{number:012}" for number in count(1))
        tools = derive_tools(load_document())
        plane = Plane("a-plane", "/app/.neo-ai-data")
        self.retention = Retention(self.graph, clock=self.clock)
        self.operations = Operations(
            self.graph, tools, plane, clock=self.clock, new_id=lambda: next(ids), retention=self.retention
        )

    def call(self, tool: str, arguments: Any, caller: Identity = NOBODY) -> Any:
        answer = self.operations.call(tool, arguments, caller)
        return answer.text if answer.structured is None else parse(answer.structured)

    def save(self, transaction: dict[str, Any], **arguments: Any) -> Any:
        whole = {"status": "committed", "ops": [{}], "originWriter": {"agentId": "a", "sessionId": "s"}}
        return self.call(SAVE, {"transaction": whole | transaction, **arguments})


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench") / "graph.sqlite")
    yield made
    made.graph.close()


@pytest.mark.parametrize(
    ("agent", "taken"),
    [
        *((value, True) for value in (7, -1, [], {}, "0", True, 1.5)),
        *((value, False) for value in (0, 0.0, "", None, False)),
    ],
)
def test_an_origin_writer_needs_ids_that_are_true_in_javascript(bench: Bench, agent: Any, taken: bool) -> None:
    answer = bench.save({"originWriter": {"agentId": agent, "sessionId": "s"}})
    assert answer["saved"] is taken
    assert answer.get("reason") == (None if taken else "missing-origin-writer")


@pytest.mark.parametrize("ops", [None, {}, "x", [], 5])
def test_ops_must_be_a_filled_array(bench: Bench, ops: Any) -> None:
    assert bench.save({"ops": ops}) == {"saved": False, "reason": "invalid-transaction"}


@pytest.mark.parametrize("first", [None, 1, [], {"originWriter": "agent"}, {"originWriter": {"agentId": "a"}}])
def test_the_first_op_can_stand_in_only_with_a_writer(bench: Bench, first: Any) -> None:
    answer = bench.save({"originWriter": None, "ops": [first]})
    assert answer == {"saved": False, "reason": "missing-origin-writer"}


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("\u00a0 a \ufeff\n", "a"),
        ("\u2003\t", None),
        ("", None),
        (None, None),
        ("\x1c", "\x1c"),
        ("\u0085b", "\u0085b"),
    ],
)
def test_a_name_is_trimmed_as_javascript_does(bench: Bench, sent: str | None, kept: str | None) -> None:
    archive_id = bench.save({}, name=sent)["archiveId"]
    assert bench.call(GET, {"archiveId": archive_id})["name"] == kept


@pytest.mark.parametrize(
    ("transaction", "field", "kept"),
    [
        ({"txId": ""}, "sourceTxId", ""),
        ({"txId": 5}, "sourceTxId", 5),
        ({"txId": None}, "sourceTxId", None),
        ({"id": "x"}, "sourceTxId", None),
        ({"committedAt": "5"}, "committedAt", None),
        ({"committedAt": True}, "committedAt", None),
        ({"committedAt": float("inf")}, "committedAt", None),
        ({"committedAt": 0.5}, "committedAt", 0.5),
        ({"committedAt": -1}, "committedAt", -1),
    ],
)
def test_what_is_kept_of_a_transaction(bench: Bench, transaction: dict[str, Any], field: str, kept: Any) -> None:
    saved = bench.save(transaction)
    found = bench.call(GET, {"archiveId": saved["archiveId"]})
    assert saved[field] == found[field] == kept
    assert type(found[field]) is type(kept)


def test_clock_and_ids_are_the_ones_passed_in(bench: Bench) -> None:
    bench.clock.at_ms = 5_000
    saved = bench.save({})
    assert saved["archivedAt"] == 5_000
    assert saved["archiveId"].startswith("00000000-0000-4000-8000-")
    bench.clock.advance(7)
    marked = bench.call(MARK, {"archiveId": saved["archiveId"]})
    assert marked == {"updated": True, "replayCount": 1, "lastReplayedAt": 5_007}
    found = bench.call(GET, {"archiveId": saved["archiveId"]})
    assert (found["archivedAt"], found["lastReplayedAt"], found["name"]) == (5_000, 5_007, saved["archiveId"])


@pytest.mark.parametrize("archive_id", ["", "x", "\ud800", "../x", "nl-transaction-archive:x", "é"])
def test_an_id_that_names_nothing_is_not_found(bench: Bench, archive_id: str) -> None:
    assert bench.call(GET, {"archiveId": archive_id}) == {"status": "not-found"}
    assert bench.call(MARK, {"archiveId": archive_id}) == {"updated": False, "status": "not-found"}


@pytest.mark.parametrize(
    ("token", "taken"),
    [
        ("11111111-1111-4111-8111-111111111111", True),
        ("AAAAAAAA-bbbb-0000-ffff-0123456789Ab", True),
        ("11111111-1111-4111-8111-111111111111\n", False),
        ("{11111111-1111-4111-8111-111111111111}", False),
        ("11111111111141118111111111111111", False),
        ("١1111111-1111-4111-8111-111111111111", False),
        ("", False),
    ],
)
def test_a_token_is_a_bare_uuid_of_any_version(bench: Bench, token: str, taken: bool) -> None:
    answer = bench.call(ADMIT, {"actions": [{"sequenceId": token}]})
    assert answer == {"admitted": int(taken), "refused": int(not taken)}


def test_a_value_too_deep_to_be_written_is_a_result(bench: Bench) -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    answer = bench.save({"ops": [deep]})
    assert answer == {"saved": False, "reason": "archive-store-unavailable: Maximum call stack size exceeded"}


def test_healthcheck_tells_the_plane(bench: Bench) -> None:
    answer = bench.call(HEALTH, {})
    assert answer["status"] == "healthy"
    assert answer["plane"] == {"id": "a-plane", "dataRoot": "/app/.neo-ai-data"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.dictionaries(st.sampled_from(["status", "ops", "originWriter", "txId", "committedAt"]), JSON))
def test_no_transaction_breaks_a_save(bench: Bench, transaction: dict[str, Any]) -> None:
    assert isinstance(bench.save(transaction)["saved"], bool)

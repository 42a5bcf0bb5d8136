"""Validation strips, refuses as a whole, and never trips over what is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nl_cutover.contract.surface import derive_tools
from nl_cutover.contract.wire import ADMIT, GET, HEALTH, MARK, SAVE
from nl_cutover.memory_core.surface import load_document
from nl_cutover.memory_core.validation import IDENTITY_KEYS, UNDEFINED, ArgumentError, refuse_identity, validate

TOOLS = derive_tools(load_document())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
DECLARED = ["transaction", "appSessionId", "name", "archiveId", "actions"]
ARGUMENTS = st.just(UNDEFINED) | JSON | st.dictionaries(st.sampled_from(DECLARED), JSON)
ACTION = st.fixed_dictionaries(
    {},
    optional={
        "sequenceId": st.text(),
        "sessionId": st.none() | st.text(),
        "timestamp": st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        "success": st.booleans(),
        "targets": st.fixed_dictionaries({}, optional={"classNames": st.lists(st.text(max_size=3), max_size=2)}),
    },
)


def test_the_surface_is_the_five_operations() -> None:
    assert set(TOOLS) == {SAVE, GET, MARK, ADMIT, HEALTH}


@given(st.sampled_from(sorted(TOOLS)), ARGUMENTS)
def test_it_returns_or_refuses_and_never_raises_anything_else(tool: str, arguments: Any) -> None:
    try:
        cleaned = validate(TOOLS[tool].input_schema, arguments)
    except ArgumentError as refusal:
        issues = json.loads(str(refusal))
        assert issues
        assert all(list(issue)[:2] == ["expected", "code"] for issue in issues)
    else:
        assert set(cleaned) <= set(TOOLS[tool].input_schema["properties"])


@given(st.lists(ACTION, max_size=3), st.dictionaries(st.text(min_size=1), JSON, max_size=3))
def test_undeclared_keys_vanish_and_declared_ones_stay(actions: list[dict[str, Any]], extra: dict[str, Any]) -> None:
    clean = {"actions": actions}
    noisy = extra | {"actions": [extra | action for action in actions]}
    declared = set(TOOLS[ADMIT].input_schema["properties"]["actions"]["items"]["properties"])
    if not declared & set(extra):
        assert validate(TOOLS[ADMIT].input_schema, noisy) == clean


@given(JSON)
def test_an_open_bag_travels_as_it_is(inside: Any) -> None:
    transaction = {"anything": inside, "agentId": 7}
    assert validate(TOOLS[SAVE].input_schema, {"transaction": transaction})["transaction"] is transaction


def test_all_issues_are_told_in_order_with_their_paths() -> None:
    actions = [{"success": 1}, {"targets": {"classNames": "x", "componentIds": [None, "b"]}}, "no"]
    with pytest.raises(ArgumentError) as refusal:
        validate(TOOLS[ADMIT].input_schema, {"actions": actions})
    assert [(issue["path"], issue["message"]) for issue in json.loads(str(refusal.value))] == [
        (["actions", 0, "success"], "Invalid input: expected boolean, received number"),
        (["actions", 1, "targets", "classNames"], "Invalid input: expected array, received string"),
        (["actions", 1, "targets", "componentIds", 0], "Invalid input: expected string, received null"),
        (["actions", 2], "Invalid input: expected object, received string"),
    ]


def test_booleans_are_no_numbers_and_infinity_is_none() -> None:
    for value, received in ((True, "boolean"), (float("inf"), "number")):
        with pytest.raises(ArgumentError, match=f"expected number, received {received}"):
            validate(TOOLS[ADMIT].input_schema, {"actions": [{"timestamp": value}]})


def test_more_rows_than_the_newest_schema_allows_still_pass() -> None:
    assert len(validate(TOOLS[ADMIT].input_schema, {"actions": [{}] * 400})["actions"]) == 400


@pytest.mark.parametrize("key", IDENTITY_KEYS)
def test_an_identity_in_the_arguments_is_refused_at_the_top_only(key: str) -> None:
    with pytest.raises(ArgumentError, match=f"spoof rejected: '{key}'"):
        refuse_identity({key: None})
    refuse_identity({"transaction": {key: "x"}})

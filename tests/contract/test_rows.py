"""Digests, keys and values of source rows, as properties."""

import hashlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nl_cutover.contract import javascript as js
from nl_cutover.contract.archives import SaveCall, carried_digest, compare, save_call
from nl_cutover.contract.rows import ACTIONS, ARCHIVES, COLUMNS, Row, Text, key_of_text, key_text, row_digest
from nl_cutover.contract.telemetry import Action, admit_arguments, batches, project
from nl_cutover.contract.wire import ADMIT, BATCH_LIMIT, BODY_LIMIT, envelope
from nl_cutover.verdicts import Confirmed, Mismatch, Refused

value = (
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.binary(max_size=9) | st.binary(max_size=9).map(Text)
)


def archive(**columns) -> Row:
    base = {
        "archive_id": Text(b"old-1"),
        "source_tx_id": Text(b"tx:1"),
        "origin_writer": Text(b'{"agentId":"a","sessionId":"s"}'),
        "archived_at": 1,
        "ops": Text(b'[{"a":1}]'),
        "replay_count": 0,
    } | columns
    return Row(ARCHIVES, tuple(base.get(name) for name in COLUMNS[ARCHIVES]))


def action(**columns) -> Row:
    base = {
        "id": Text(b"row-1"),
        "agent_id": Text(b"agent"),
        "sequence_id": Text(b"agent_1"),
        "timestamp": 1,
        "tool": Text(b"create_component"),
        "args": Text(b"{}"),
    } | columns
    return Row(ACTIONS, tuple(base.get(name) for name in COLUMNS[ACTIONS]))


@given(st.lists(value, min_size=2, max_size=4), st.lists(value, min_size=2, max_size=4))
def test_digests_are_equal_only_for_equal_values(left, right):
    names = [f"c{i}" for i in range(4)]
    same = [repr((type(v), v)) for v in left] == [repr((type(v), v)) for v in right]
    a, b = row_digest(names[: len(left)], left), row_digest(names[: len(right)], right)
    if not same:
        assert a != b
    else:
        assert a == b


def plain_digest(columns, values) -> str:
    """The same rule in its plainest words: ledgers and receipts hold digests that must stay what they are."""

    def part(value) -> bytes:
        match value:
            case None:
                tag, body = b"n", b""
            case int():
                tag, body = b"i", str(value).encode("ascii")
            case float():
                tag, body = b"r", struct.pack(">d", value)
            case Text():
                tag, body = b"t", value
            case _:
                tag, body = b"b", value
        return tag + len(body).to_bytes(8, "big") + body

    pairs = zip(columns, values, strict=True)
    return hashlib.sha256(b"".join(part(Text(name.encode())) + part(value) for name, value in pairs)).hexdigest()


@given(st.lists(st.tuples(st.text(max_size=5), value), max_size=13))
def test_a_digest_is_what_it_was_in_every_ledger(pairs):
    names, values = [name for name, _ in pairs], [v for _, v in pairs]
    assert row_digest(names, values) == plain_digest(names, values)
    with pytest.raises(ValueError, match="zip"):
        row_digest([*names, "more"], values)


def test_text_blob_and_number_of_one_spelling_differ():
    digests = {row_digest(["c"], [v]) for v in (Text(b"7"), b"7", 7, 7.0, None, Text(b""), b"")}
    assert len(digests) == 7


@given(value, value)
def test_keys_in_words_are_injective(left, right):
    a, b = key_text(left, "d"), key_text(right, "d")
    assert (a == b) == (repr((type(left), left)) == repr((type(right), right)))
    a.encode("utf-8")


@given(st.text())
def test_a_text_key_comes_back(text):
    if text.isprintable():
        assert key_of_text(key_text(Text(text.encode()), "d")) == text


def test_replays_change_the_row_but_not_its_content():
    a, b = archive(replay_count=1), archive(replay_count=2, last_replayed_at=5)
    assert a.digest != b.digest
    assert a.content_digest == b.content_digest
    assert a.content_digest != archive(name=Text(b"n")).content_digest


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"archive_id": None}, "archive_id is NULL"),
        ({"archive_id": b"blob"}, "archive_id is a blob"),
        ({"archive_id": Text(b"\xff")}, "archive_id is not valid UTF-8"),
        ({"ops": Text(b"[]")}, "non-empty array"),
        ({"ops": Text(b"{}")}, "non-empty array"),
        ({"ops": b'[{"a":1}]'}, "ops is a blob"),
        ({"ops": Text(b"[NaN]")}, "ops: NaN is not JSON"),
        ({"ops": Text(b'[{"n":9007199254740993}]')}, "ops: a number with more digits"),
        ({"ops": Text(b'[{"a":1,"a":2}]')}, "ops: an object holds the same key twice"),
        ({"ops": Text(b'[{"a":{"module":1}}]')}, "module"),
        ({"ops": Text(b'["\xff"]')}, "ops is not valid UTF-8"),
        ({"origin_writer": Text(b'{"agentId":"a"}')}, "missing-origin-writer"),
        ({"origin_writer": Text(b'{"agentId":0,"sessionId":"s"}')}, "missing-origin-writer"),
        ({"origin_writer": Text(b"null")}, "missing-origin-writer"),
        ({"committed_at": Text(b"2026")}, "committed_at is text"),
        ({"committed_at": 2**53 + 1}, "committed_at has more digits"),
        ({"committed_at": float("inf")}, "committed_at is infinite"),
        ({"source_tx_id": None}, "source_tx_id is NULL"),
        ({"name": 5}, "name is an integer"),
        ({"replay_count": -1}, "not a count"),
        ({"ops": Text(b'["' + b"x" * 102_400 + b'"]')}, "too large"),
    ],
)
def test_an_archive_that_mc_could_not_keep_is_refused_without_its_values(columns, reason):
    refused = save_call(archive(**columns))
    assert isinstance(refused, Refused)
    assert reason in refused.reason


@given(st.dictionaries(st.sampled_from(COLUMNS[ARCHIVES]), value, max_size=4))
def test_any_row_is_either_a_call_or_a_reason(columns):
    assert isinstance(save_call(archive(**columns)), SaveCall | Refused)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(JSON, min_size=1, max_size=3), st.none() | st.text(), st.none() | st.integers(0, 2**53), st.booleans())
def test_what_was_carried_has_the_digest_that_the_answer_has(ops, name, committed, marked):
    """`compare` needs the row; its digest does not, and says the same of an answer."""
    text = json.dumps(ops).encode()
    named = None if name is None else Text(name.encode("utf-8", "replace"))
    row = archive(ops=Text(text), name=named, committed_at=committed)
    call = save_call(row)
    if isinstance(call, Refused):
        return
    sent = js.parse(call.arguments.decode())
    found = {"sourceTxId": sent["transaction"]["txId"], "appSessionId": sent["appSessionId"]} | {
        key: sent["transaction"][key] for key in ("originWriter", "committedAt", "ops")
    }
    found["name"] = "new-id" if marked and not call.named else sent["name"]
    assert isinstance(compare(row, found, b"", named_by_mark="new-id"), Confirmed)
    assert carried_digest(found, "new-id") == call.digest
    changed = found | {"ops": [*found["ops"], None]}
    assert isinstance(compare(row, changed, b""), Mismatch)
    assert carried_digest(changed, "new-id") != call.digest


@given(st.dictionaries(st.sampled_from(COLUMNS[ACTIONS]), value, max_size=4))
def test_any_action_is_either_projected_or_refused(columns):
    assert isinstance(project(action(**columns)), Action | Refused)


def test_a_name_that_mc_trims_is_expected_trimmed():
    call = save_call(archive(name=Text(b"  n ")))
    assert isinstance(call, SaveCall)
    assert call.name_trimmed
    assert not save_call(archive(name=Text(b" "))).named


def test_a_difference_is_named_by_path_and_never_by_value():
    row = archive(ops=Text(b'[{"a":"SECRET-1"}]'))
    found = {
        "sourceTxId": "tx:1",
        "originWriter": {"agentId": "a", "sessionId": "s"},
        "ops": [{"a": "SECRET-2"}],
    }
    mismatch = compare(row, found, b"")
    assert isinstance(mismatch, Mismatch)
    assert mismatch.path == '$["ops"][0]["a"]'
    assert "SECRET" not in repr(mismatch)


def test_dropped_columns_never_reach_the_wire():
    marked = {name: Text(b"SENTINEL-" + name.encode()) for name in ("id", "agent_id", "sequence_id", "result")} | {
        "args": Text(b'{"x":"SENTINEL-args"}'),
        "reward": 0.123456,
    }
    projected = project(action(**marked)).encode("t")
    assert "SENTINEL" not in projected
    assert "0.123456" not in projected
    assert "SENTINEL-kept" in project(action(app_name=Text(b"SENTINEL-kept"))).encode("t"), "the control"


@given(st.lists(st.integers(0, 60_000), max_size=250))
def test_batches_keep_order_and_both_limits(sizes):
    actions = [(i, project(action(app_name=Text(b"x" * size)))) for i, size in enumerate(sizes)]
    made = list(batches(actions))
    assert [i for batch in made for i, _ in batch] == list(range(len(sizes)))
    for batch in made:
        body = envelope(10**18, ADMIT, admit_arguments(("0" * 36, a) for _, a in batch))
        assert len(batch) <= BATCH_LIMIT
        assert len(body) <= BODY_LIMIT


@pytest.mark.parametrize("success", [0, None, 2, Text(b"1"), b"1", 0.5])
def test_only_one_is_success(success):
    assert '"success":false' in project(action(success=success)).fields
    assert '"success":true' in project(action(success=1)).fields

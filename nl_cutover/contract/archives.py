"""An archive row as a `save_nl_transaction` call, and what `get_nl_transaction` must give back for it.

`ops` and `origin_writer` are JSON text written by JavaScript: they travel verbatim inside the request. Rules of
admission: neo#16202, PR#17740 (`status: committed`, a non-empty `ops` array, an origin writer with both ids).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ..verdicts import Comparison, Confirmed, Mismatch, Refused
from . import javascript as js
from .rows import Row
from .values import json_number, json_text, number, required_text, text
from .wire import BODY_LIMIT, ENVELOPE_BYTES, SAVE

DEPTH_LIMIT = 600  # levels; a reply nests a few more, and all of it has to be walked
MARKS_LIMIT = 10_000  # each mark is a call
COMPARED = ("name", "sourceTxId", "appSessionId", "originWriter", "committedAt", "ops")


class SaveCall(msgspec.Struct, frozen=True):
    """A call that MC admits. `arguments` is JSON text; `writer` is `originWriter.agentId` in words."""

    arguments: bytes
    digest: str  # of the canonical form of the fields in COMPARED
    source_tx_id: str
    writer: str
    replays: int
    named: bool
    name_trimmed: bool
    wire_bytes: int


def save_call(row: Row) -> SaveCall | Refused:
    """Build the call, or say why MC could not keep this row as it is. No value appears in a reason."""
    try:
        return _save_call(row)
    except js.NotFaithful as error:
        return Refused(str(error))
    except RecursionError:
        return Refused("nested too deep to be compared")


def _save_call(row: Row) -> SaveCall | Refused:
    if not required_text(row, "archive_id"):
        return Refused("no usable key: archive_id is empty")
    expected = _expected(row, js.parse_exact)
    writer, ops = expected["originWriter"], expected["ops"]
    if not isinstance(ops, list) or not ops:
        return Refused("invalid-transaction: ops is not a non-empty array")
    if not isinstance(writer, dict) or not (_truthy(writer.get("agentId")) and _truthy(writer.get("sessionId"))):
        return Refused("missing-origin-writer: origin_writer lacks agentId or sessionId")
    if _depth(ops) > DEPTH_LIMIT:
        return Refused(f"ops: nested deeper than {DEPTH_LIMIT} levels, too deep to be compared")
    if _owns_module(ops):
        return Refused("transaction-not-data-only: ops holds a `module` key, which the recorder never writes")
    raw_name = text(row, "name")
    arguments = save_arguments(row)
    wire_bytes = len(arguments) + ENVELOPE_BYTES[SAVE]
    if wire_bytes > BODY_LIMIT:
        return Refused(f"too large: its save request has {wire_bytes:,} bytes, the ingress takes {BODY_LIMIT:,}")
    return SaveCall(
        arguments=arguments,
        digest=js.digest(expected),
        source_tx_id=expected["sourceTxId"],
        writer=_writer_name(writer["agentId"]),
        replays=_replays(row),
        named=expected["name"] is not None,
        name_trimmed=expected["name"] != raw_name,
        wire_bytes=wire_bytes,
    )


def save_arguments(row: Row) -> bytes:
    """The arguments of the call for a row that `save_call` found fit, `ops` and `originWriter` verbatim."""
    tx_id, committed = json_text(required_text(row, "source_tx_id")), json_number(number(row, "committed_at"))
    # The first servers do not trim the name, later ones do: trimmed here, all of them keep the same.
    # The first servers read `id`, later ones `txId`; each passes over the other (neo@902ddd4d).
    return (
        f'{{"transaction":{{"txId":{tx_id},"id":{tx_id},"status":"committed","committedAt":{committed},'
        f'"originWriter":{required_text(row, "origin_writer")},"ops":{required_text(row, "ops")}}},'
        f'"appSessionId":{json_text(text(row, "app_session_id"))},"name":{json_text(_stored_name(text(row, "name")))}}}'
    ).encode()


def compare(row: Row, found: dict[str, Any], reply: bytes, *, named_by_mark: str | None = None) -> Comparison:
    """Compare a `found` answer of `get_nl_transaction` with its source row.

    `found` is the parsed answer, `reply` the bytes that it came in. `named_by_mark` is the archive id when marks were
    made on an unnamed archive: newer servers then answer the id as its name (neo#16202, GraphService.upsertNode).
    """
    expected = _expected(row, js.parse)
    if expected["name"] is None and named_by_mark is not None and found.get("name") == named_by_mark:
        expected["name"] = named_by_mark
    actual = {key: found.get(key) for key in COMPARED}
    # Equal texts of equally parsed values are equal values; only what differs is put into the slow canonical form.
    if _printed(expected) != _printed(actual):
        expected_digest, actual_digest = js.digest(expected), js.digest(actual)
        if expected_digest != actual_digest:
            return Mismatch(js.first_difference(expected, actual) or "$", expected_digest, actual_digest)
    same = all(
        f'"{key}":{required_text(row, column)}'.encode() in reply
        for key, column in (("ops", "ops"), ("originWriter", "origin_writer"))
    )
    return Confirmed(bytes_equal=same)


def carried_digest(found: dict[str, Any], archive_id: str) -> str:
    """The `SaveCall.digest` of a `found` answer: of the archive that MC has under `archive_id`, whoever saved it.

    SHA-256 over the RFC 8785 form of the fields in COMPARED. A name that is the id itself was given by a mark.
    """
    carried = {key: found.get(key) for key in COMPARED}
    if carried["name"] == archive_id:
        carried["name"] = None
    return js.digest(carried)


def _printed(value: Any) -> str:
    return json.dumps(value, sort_keys=True, check_circular=False)


def _expected(row: Row, parse: Callable[[str], Any]) -> dict[str, Any]:
    return {
        "name": _stored_name(text(row, "name")),
        "sourceTxId": required_text(row, "source_tx_id"),
        "appSessionId": text(row, "app_session_id"),
        "originWriter": _json(row, "origin_writer", parse),
        "committedAt": number(row, "committed_at"),
        "ops": _json(row, "ops", parse),
    }


def _json(row: Row, column: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(required_text(row, column))
    except js.NotFaithful as error:
        message = str(error)
        raise js.NotFaithful(message if message.startswith(column) else f"{column}: {message}") from None


def _stored_name(name: str | None) -> str | None:
    return None if name is None else js.trim(name) or None


def _truthy(value: Any) -> bool:
    return isinstance(value, dict | list) or bool(value)


def _levels(value: Any) -> Iterator[list[Any]]:
    """The containers of a value, level by level: no recursion, whatever the depth."""
    level = [value]
    while level := [v for v in level if isinstance(v, dict | list)]:
        yield level
        level = [inner for v in level for inner in (v.values() if isinstance(v, dict) else v)]


def _depth(value: Any) -> int:
    return sum(1 for _ in _levels(value))


def _owns_module(value: Any) -> bool:
    return any(isinstance(v, dict) and "module" in v for level in _levels(value) for v in level)


def _writer_name(agent_id: Any) -> str:
    name = agent_id if isinstance(agent_id, str) else js.canonical(agent_id)
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _replays(row: Row) -> int:
    count = number(row, "replay_count")
    if count is None:
        return 0
    if count < 0 or count != int(count):
        raise js.NotFaithful("replay_count is not a count")
    if count > MARKS_LIMIT:
        raise js.NotFaithful(f"replay_count is larger than {MARKS_LIMIT:,}, which no host ever replayed")
    return int(count)

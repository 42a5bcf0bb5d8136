"""An action row as the relocated recorder itself would admit it: eight fields, targets read out of `args`.

Rules: neo#16202 (RecorderService of the brain repository). Dropped by contract: `agent_id`, `result`, raw `args`,
`reward`, the row's `id` and the host's `sequence_id`, for which a random token stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from ..verdicts import Refused
from . import javascript as js
from .rows import Row, Text
from .values import json_number, json_text, number, required_text, text
from .wire import ADMIT, BATCH_LIMIT, BODY_LIMIT, ENVELOPE_BYTES

ADMITTED = ("sequenceId", "sessionId", "timestamp", "tool", "success", "durationMs", "appName", "targets")
_COMPONENT_TOOL = re.compile("component|instance", re.IGNORECASE | re.ASCII)
_KEYS = frozenset({"componentId", "component_id"})
_COMPONENT_KEYS = _KEYS | {"id"}
_TOKEN_BYTES = len('"sequenceId":"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx",')
_FRAME_BYTES = ENVELOPE_BYTES[ADMIT] + len('{"actions":[]}')

Targets = tuple[list[str], list[str]]  # class names, component ids


class Action(msgspec.Struct, frozen=True):
    """An admissible action. `sequence` is the host's sequence id, None where every row is a group of its own."""

    sequence: bytes | None
    timestamp: float | None  # ms since epoch
    fields: str  # JSON members after `sequenceId`

    def encode(self, token: str) -> str:
        return f'{{"sequenceId":"{token}",{self.fields}}}'

    @property
    def wire_bytes(self) -> int:
        return len(self.fields.encode()) + _TOKEN_BYTES + len("{}")


def project(row: Row) -> Action | Refused:
    """Project one row of `nl_action_log`, or say why MC would not take it. No value appears in a reason."""
    try:
        return sendable(_project(row))
    except js.NotFaithful as error:
        return Refused(str(error))


def sendable(action: Action) -> Action | Refused:
    """The action, if a request can carry it."""
    if action.wire_bytes + _FRAME_BYTES > BODY_LIMIT:
        size = action.wire_bytes + _FRAME_BYTES
        return Refused(f"too large: alone it makes a request of {size:,} bytes, the ingress takes {BODY_LIMIT:,}")
    return action


def _project(row: Row) -> Action:
    if not required_text(row, "id"):
        raise js.NotFaithful("no usable key: id is empty")
    tool, sequence = text(row, "tool"), row["sequence_id"]
    return make_action(
        bytes(sequence) if isinstance(sequence, Text) and sequence else None,
        session_id=text(row, "session_id"),
        timestamp=number(row, "timestamp"),
        tool=tool,
        success=row["success"],
        duration_ms=number(row, "duration_ms"),
        app_name=text(row, "app_name"),
        targets=targets(tool or "", text(row, "args")),
    )


def make_action(
    sequence: bytes | None,
    *,
    session_id: str | None,
    timestamp: float | None,
    tool: str | None,
    success: object,
    duration_ms: float | None,
    app_name: str | None,
    targets: Targets,
) -> Action:
    """The action of values whose types are right. `success` is 1 or true; anything else is none."""
    classes, components = targets
    fields = (
        f'"sessionId":{json_text(session_id)},"timestamp":{json_number(timestamp)},'
        f'"tool":{json_text(tool)},"success":{"true" if isinstance(success, int | float) and success == 1 else "false"},'
        f'"durationMs":{json_number(duration_ms)},"appName":{json_text(app_name)},'
        f'"targets":{{"classNames":[{_list(classes)}],"componentIds":[{_list(components)}]}}'
    )
    return Action(sequence, timestamp, fields)


def targets(tool: str, args: str | None) -> Targets:
    """Class names and component ids named by a call, in order, each once. Malformed or scalar `args` name nothing."""
    return targets_of(tool, _parse(args))


def targets_of(tool: str, parsed: object) -> Targets:
    """`targets` of arguments that are already parsed. Nothing of them is kept but the strings."""
    classes: dict[str, None] = {}
    components: dict[str, None] = {}
    if not isinstance(parsed, dict):
        return [], []
    identifies = _COMPONENT_KEYS if _COMPONENT_TOOL.search(tool) else _KEYS
    for key, value in parsed.items():
        if key == "className":
            _add(classes, value)
        elif key in identifies:
            _add(components, value)
        elif key == "componentIds" and isinstance(value, list):
            for member in value:
                _add(components, member)
    for bag in (parsed.get("config"), parsed.get("properties")):
        if isinstance(bag, dict):
            _add(classes, bag.get("className"))
            _add(components, bag.get("componentId"))
    return list(classes), list(components)


def _parse(args: str | None) -> Any:
    if args is None:
        return None
    try:
        return js.parse(args)
    except js.TooDeep:
        raise
    except js.NotFaithful:
        return None


def _add(into: dict[str, None], value: Any) -> None:
    if isinstance(value, str) and value:
        into[value] = None


def _list(values: list[str]) -> str:
    return ",".join(map(js.encode_string, values))


T = TypeVar("T")


def batches(actions: Iterable[tuple[T, Action]]) -> Iterator[list[tuple[T, Action]]]:
    """Group actions, in order, into batches that one request can carry: by bytes and by BATCH_LIMIT."""
    batch: list[tuple[T, Action]] = []
    size = _FRAME_BYTES
    for item in actions:
        added = item[1].wire_bytes + 1
        if batch and (len(batch) == BATCH_LIMIT or size + added > BODY_LIMIT):
            yield batch
            batch, size = [], _FRAME_BYTES
        batch.append(item)
        size += added
    if batch:
        yield batch


def admit_arguments(actions: Iterable[tuple[str, Action]]) -> bytes:
    """The arguments of one `admit_nl_actions` call, from (token, action) pairs."""
    return ('{"actions":[' + ",".join(action.encode(token) for token, action in actions) + "]}").encode()


def action_digest(fields: dict[str, Any]) -> str:
    """SHA-256 of an admitted row's eight fields; an absent one is null, as MC stores it."""
    return js.digest({name: fields.get(name) for name in ADMITTED})

"""A host's entry as the action that MC admits: eight fields, read once, so that nothing of the entry stays in memory.

An entry has the names that the recorder's own log had (`session_id`, `sequence_id`, `timestamp`, `tool`, `args`,
`success`, `duration_ms`, `app_name`). Whatever else it holds - `agent_id`, `result`, `reward`, `id` - is not looked at.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..contract.javascript import NotFaithful
from ..contract.telemetry import Action, Targets, make_action, sendable, targets, targets_of
from ..verdicts import Refused

ENTRY_LIMIT = 1 << 20  # characters of one entry: to parse more of them would keep the host's own threads waiting
SEQUENCES = 1_000


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """What an entry said when it was recorded. Its strings are shared with the host, as strings cannot change."""

    sequence: str | None
    session_id: str | None
    timestamp: float | None  # ms since epoch
    tool: str | None
    success: bool
    duration_ms: float | None
    app_name: str | None
    args: str | None  # JSON text that is still to be read, or None where `targets` says it already
    targets: Targets
    size: int  # characters


def snapshot(entry: Mapping[str, Any]) -> Snapshot:
    """Raises an exception of any kind for an entry that cannot be admitted; values of other types are such a case."""
    get = entry.get
    tool, args, sequence = _text(get("tool")), get("args"), get("sequence_id")
    sequence = (_text(sequence) or None) if isinstance(sequence, str) else None
    session_id, app_name, success = _text(get("session_id")), _text(get("app_name")), get("success")
    named: Targets = ([], [])
    size = len(tool or "") + len(session_id or "") + len(app_name or "") + len(sequence or "")
    if isinstance(args, str):
        args = str.__str__(args)
        size += len(args)
    else:
        named, args = targets_of(tool or "", args), None
        size += sum(map(len, named[0])) + sum(map(len, named[1]))
    if size > ENTRY_LIMIT:
        raise ValueError("larger than any request")
    return Snapshot(
        sequence,
        session_id,
        _number(get("timestamp")),
        tool,
        isinstance(success, int | float) and success == 1,
        _number(get("duration_ms")),
        app_name,
        args,
        named,
        size,
    )


def project(held: Snapshot) -> Action | Refused:
    """The action of a snapshot, or why MC would not take it."""
    try:
        named = held.targets if held.args is None else targets(held.tool or "", held.args)
    except NotFaithful as error:
        return Refused(str(error))
    return sendable(
        make_action(
            None if held.sequence is None else held.sequence.encode("utf-8", "surrogatepass"),
            session_id=held.session_id,
            timestamp=held.timestamp,
            tool=held.tool,
            success=held.success,
            duration_ms=held.duration_ms,
            app_name=held.app_name,
            targets=named,
        )
    )


def _text(value: object) -> str | None:
    """Plain text: what a class of the host's makes of it must not come to the thread that sends."""
    if value is None or isinstance(value, str):
        return value if value is None else str.__str__(value)
    raise TypeError("not text")


def _number(value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError("not a number")
    number = float(value)
    if number != value or number - number != 0:  # more digits than a double holds; NaN and the infinities
        raise ValueError("not a number that JSON carries")
    return number


class Tokens:
    """One random token a host sequence, for the latest `limit` of them: correlation without identification.

    The oldest is forgotten first, and its sequence then gets another token. An action without a sequence is a group of
    its own.
    """

    def __init__(self, new_token: Callable[[], str], limit: int = SEQUENCES) -> None:
        self._new_token, self._limit = new_token, limit
        self._tokens: dict[bytes, str] = {}
        self._lock = threading.Lock()

    def of(self, sequence: bytes | None) -> str:
        if sequence is None:
            return self._new_token()
        with self._lock:
            token = self._tokens.get(sequence)
            if token is None:
                if len(self._tokens) >= self._limit:
                    del self._tokens[next(iter(self._tokens))]
                token = self._tokens[sequence] = self._new_token()
            return token

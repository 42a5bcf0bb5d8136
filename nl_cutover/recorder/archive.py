"""The archive: save, read, mark. Mandatory, never gated by the telemetry leaf, and without any local fallback.

What MC answers is read under JavaScript's rules: every number is a double. Whoever saves owns: MC gives an archive
back to the bearer that saved it, and answers `not-found` to everybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from .. import verdicts
from ..contract.javascript import encode
from ..contract.wire import BODY_LIMIT, ENVELOPE_BYTES, SAVE
from ..ingress.session import Session
from ..verdicts import Delivered, Delivery, NotSent, Unknown
from .connection import Connection
from .guard import NotDataError, require_data

KEPT = ("txId", "status", "committedAt", "domain", "originWriter", "ops")  # what MC reads of a transaction
_UNAVAILABLE = "archive-store-unavailable: "


class Saved(msgspec.Struct, frozen=True, tag="saved", tag_field="result"):
    archive_id: str
    source_tx_id: str | None
    archived_at: float | None  # ms since epoch, by MC's clock; older servers do not say


class Refused(msgspec.Struct, frozen=True, tag="refused", tag_field="result"):
    """`outcome_unknown`: the call left and nobody can say whether it was saved. Saving again may double it."""

    reason: str
    outcome_unknown: bool = False


class Found(msgspec.Struct, frozen=True, tag="found", tag_field="result", rename="camel"):
    """The record as MC keeps it. `origin_writer` is what the saver declared, `custodian` who it was."""

    archive_id: str
    ops: list[Any]
    name: str | None = None
    source_tx_id: str | None = None
    app_session_id: str | None = None
    origin_writer: dict[str, Any] | None = None
    custodian: str | None = None
    committed_at: float | None = None
    archived_at: float | None = None
    replay_count: float = 0
    last_replayed_at: float | None = None


class NotFound(msgspec.Struct, frozen=True, tag="not-found", tag_field="result"):
    """Never archived, or another identity's: MC does not tell the two apart."""


class Unavailable(msgspec.Struct, frozen=True, tag="unavailable", tag_field="result"):
    """It could not be read. Says nothing about whether it is there."""

    reason: str


class Marked(msgspec.Struct, frozen=True, tag="marked", tag_field="result"):
    """One replay was counted. Older servers do not say what the count is now."""

    replay_count: float | None
    last_replayed_at: float | None


class NotMarked(msgspec.Struct, frozen=True, tag="not-marked", tag_field="result"):
    """`outcome_unknown`: the replay may have been counted. A second mark would be a second replay."""

    reason: str
    outcome_unknown: bool = False


class Archive:
    """The three operations. Safe to share between threads; calls run one at a time.

    `aliases`: ids of before the cut to what MC calls the same archives now, as receipts tell
    (`custody.receipts.aliases`).
    """

    def __init__(
        self, connect: Callable[[], Session] | Connection, *, aliases: Mapping[str, str] | None = None
    ) -> None:
        self._connection = connect if isinstance(connect, Connection) else Connection(connect)
        self._aliases = aliases or {}

    def save(
        self, transaction: Mapping[str, Any], *, name: str | None = None, app_session_id: str | None = None
    ) -> Saved | Refused:
        """Save a committed transaction: `{txId, status, committedAt, originWriter, ops}`. Not idempotent."""
        try:
            arguments = _arguments(transaction, name, app_session_id)
        except (NotDataError, RecursionError) as error:
            return Refused(f"transaction-not-data-only: {error}")
        if (size := len(arguments) + ENVELOPE_BYTES[SAVE]) > BODY_LIMIT:
            return Refused(f"too large: the request has {size:,} bytes, the ingress takes {BODY_LIMIT:,}")
        outcome = self._connection.call(lambda to: to.save(arguments))
        if isinstance(outcome, Delivered):
            told = outcome.result
            return Saved(told["archiveId"], _typed(told, "sourceTxId", str), _typed(told, "archivedAt", float))
        return Refused(*_why_not(outcome, "it may have been saved"))

    def get(self, archive_id: str) -> Found | NotFound | Unavailable:
        """Read an archive by its id, or by the id that it had before the cut."""
        outcome = self._connection.call(lambda to: to.get(self.resolve(archive_id)))
        if not isinstance(outcome, Delivered):
            return Unavailable(_why_not(outcome, "it could not be read")[0])
        match outcome.result["status"]:
            case "found":
                try:
                    return msgspec.convert({**outcome.result, "result": "found"}, Found)
                except msgspec.ValidationError as error:
                    return Unavailable(f"the record is not one: {error}")
            case "not-found":
                return NotFound()
            case _:
                return Unavailable(str(outcome.result.get("reason") or "the server does not say why"))

    def mark_replayed(self, archive_id: str) -> Marked | NotMarked:
        """Count one replay of an archive. Not idempotent."""
        outcome = self._connection.call(lambda to: to.mark(self.resolve(archive_id)))
        if isinstance(outcome, Delivered):
            told = outcome.result
            return Marked(_typed(told, "replayCount", float), _typed(told, "lastReplayedAt", float))
        return NotMarked(*_why_not(outcome, "it may have been counted"))

    def resolve(self, archive_id: str) -> str:
        """What MC calls the archive: the alias of an id of before the cut, any other id as it is."""
        return self._aliases.get(archive_id, archive_id)

    @property
    def refused_server_requests(self) -> int:
        """How many requests that the server initiated were refused."""
        return self._connection.refused_server_requests

    def close(self) -> None:
        self._connection.close()


def _arguments(transaction: Mapping[str, Any], name: str | None, app_session_id: str | None) -> bytes:
    if not isinstance(transaction, Mapping):
        raise NotDataError("transaction is not an object")
    kept = {key: transaction[key] for key in KEPT if key in transaction}
    for key, value in (*kept.items(), ("name", name), ("appSessionId", app_session_id)):
        require_data(value, key)
    # The first servers read `id`, later ones `txId`; each passes over the other (neo@902ddd4d).
    kept |= {"id": kept["txId"]} if "txId" in kept else {}
    return encode({"transaction": kept, "appSessionId": app_session_id, "name": name}).encode()


def _typed(told: Mapping[str, Any], key: str, kind: type) -> Any:
    value = told.get(key)
    return value if isinstance(value, kind) else None


def _why_not(outcome: Delivery, doubt: str) -> tuple[str, bool]:
    match outcome:
        case NotSent(reason=reason):
            return _UNAVAILABLE + reason, False
        case Unknown(reason=reason):
            return f"{_UNAVAILABLE}{reason}; {doubt}", True
        case verdicts.Refused(reason=reason):
            return reason, False
        case Delivered():
            raise AssertionError("a delivered call needs no reason")

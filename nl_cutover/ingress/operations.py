"""The four operations: arguments in, a closed outcome out. A 200 counts only with the fields that were promised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..contract.javascript import encode_string
from ..contract.wire import ADMIT, GET, MARK, SAVE
from ..verdicts import Delivered, Delivery, Refused, Unknown
from .delivery import clip, structured
from .session import Session


class Operations:
    """The operations over one session; one instance a thread."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def save(self, arguments: bytes) -> Delivery:
        """Delivered with `archiveId`; Refused with the server's reason when it says `saved: false`."""
        return self._call(SAVE, arguments, _saved)

    def get(self, archive_id: str) -> Delivery:
        """Delivered with `status` found | not-found | unavailable.

        Older servers answer null for an archive that is absent, private or unreadable: that tells nothing, and is
        `unavailable` here.
        """
        return self._call(GET, _archive(archive_id), lambda result: _got(result, archive_id), reading=True)

    def mark(self, archive_id: str) -> Delivery:
        """Delivered when MC counted one replay; Refused when it says `updated: false`."""
        return self._call(MARK, _archive(archive_id), _marked)

    def admit(self, arguments: bytes, count: int) -> Delivery:
        """Delivered with `admitted` and `refused` that add up to `count`."""
        return self._call(ADMIT, arguments, lambda result: _admitted(result, count))

    def _call(
        self, tool: str, arguments: bytes, check: Callable[[Any], Delivery | dict[str, Any]], *, reading: bool = False
    ) -> Delivery:
        answer = self.session.call(tool, arguments, reading=reading)
        if not isinstance(answer, Delivered):
            return answer
        checked = check(structured(answer.result))
        return Delivered(checked, answer.reply) if isinstance(checked, dict) else checked


def _archive(archive_id: str) -> bytes:
    return f'{{"archiveId":{encode_string(archive_id)}}}'.encode()


def _saved(result: Any) -> Delivery | dict[str, Any]:
    if isinstance(result, dict):
        archive_id = result.get("archiveId")
        if result.get("saved") is True and isinstance(archive_id, str) and archive_id.isprintable() and archive_id:
            return result
        if result.get("saved") is False:
            return Refused(clip(result.get("reason")) or "the server did not say why", proven=True)
    return Unknown("the server answered a save without `saved` and `archiveId`")


def _got(result: Any, archive_id: str) -> Delivery | dict[str, Any]:
    if result is None:
        return {"status": "unavailable"}
    if isinstance(result, dict):
        if result.get("archiveId", archive_id) != archive_id:
            return Unknown("the server answered a read with another archive")
        if result.get("status") in ("found", "not-found", "unavailable"):
            return result
        if "status" not in result and isinstance(result.get("archiveId"), str):
            return {"status": "found"} | result
    return Unknown("the server answered a read without a status")


def _marked(result: Any) -> Delivery | dict[str, Any]:
    if isinstance(result, dict):
        if result.get("updated") is True:
            return result
        if result.get("updated") is False and result.get("status") == "not-found":
            return Refused("not-found")
        if result.get("updated") is False:  # the store failed; older servers do not say so
            return Unknown(f"the mark may be half applied: {clip(result.get('reason'))}".rstrip(": "))
    return Unknown("the server answered a mark without `updated`")


def _admitted(result: Any, count: int) -> Delivery | dict[str, Any]:
    if isinstance(result, dict):
        admitted, refused = result.get("admitted"), result.get("refused")
        if isinstance(admitted, int | float) and isinstance(refused, int | float) and admitted + refused == count:
            return result
    return Unknown("the server's counts do not add up to the rows that were sent")

"""What a cut came to."""

from __future__ import annotations

import msgspec

SCHEMA = "nl-cutover/cut/1"


class CommandResult(msgspec.Struct, frozen=True):
    """The landing command: its words and the tail of its output, redacted. `exit_code` is negative for a signal."""

    words: str
    exit_code: int
    output_tail: str
    seconds: float


class StoreCut(msgspec.Struct, frozen=True):
    """Rows as counted under the lock. `seal`: planted | removed | left | stood before | none.

    `sealed_by`: when the cut that planted the seal that stands began; empty where none stands or no cut did.
    """

    id: str
    path: str
    archives: int | None
    actions: int | None
    unaccounted: int | None  # None where nobody asked the ledger
    seal: str
    sealed_by: str = ""


class CutReport(msgspec.Struct, frozen=True, kw_only=True):
    """`nl-cutover/cut/1`. `reasons` say why a cut was refused or undone; empty when it landed."""

    schema: str = SCHEMA
    verdict: str
    exit_code: int
    at: str
    host: str
    stores: list[StoreCut]
    command: CommandResult | None
    reasons: list[str]
    next_steps: list[str]
    receipt: str | None = None

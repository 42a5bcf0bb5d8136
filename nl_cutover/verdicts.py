"""Closed result families, and the one table of exit codes.

A result that is not a success is a value with a reason, never a log line and never a 0.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any

import msgspec


class ExitCode(IntEnum):
    """What the process says to its caller. A reader treats any other code as failure."""

    PROVED = 0
    FAULT = 1
    USAGE = 2
    REFUSED = 3
    UNMEASURABLE = 4
    UNREACHABLE = 5
    CREDENTIALS = 6
    PARTIAL = 7
    DIFFERENCE = 8
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        return EXIT_MEANINGS[self]


EXIT_MEANINGS: dict[ExitCode, str] = {
    ExitCode.PROVED: "proved",
    ExitCode.FAULT: "a fault of this program",
    ExitCode.USAGE: "usage",
    ExitCode.REFUSED: "refused: rows not accounted for, or a policy",
    ExitCode.UNMEASURABLE: "unmeasurable: something could not be read",
    ExitCode.UNREACHABLE: "the plane could not be reached; nothing was sent",
    ExitCode.CREDENTIALS: "credentials",
    ExitCode.PARTIAL: "partial: rows refused, or outcomes unknown",
    ExitCode.DIFFERENCE: "verification found a difference",
    ExitCode.INTERRUPTED: "interrupted; the run can be resumed",
}


class Zero(StrEnum):
    """Why a measured table has no rows: an absence only when it is sealed."""

    SEALED = "sealed"  # triggers in the store refuse every insert
    GATED = "gated"  # the telemetry leaf is set off in every checkout that reaches the store
    LIVE = "live"  # a writer can fire at any time


class Measured(msgspec.Struct, frozen=True, tag="measured", tag_field="state"):
    """A count that may be trusted: every row was walked, in one read transaction."""

    rows: int
    zero: Zero | None = None
    unaccounted: int = 0


class Absent(msgspec.Struct, frozen=True, tag="absent", tag_field="state"):
    """The table or file is truly not there. It is latent: a recorder creates it on first use."""

    reason: str


class Unmeasurable(msgspec.Struct, frozen=True, tag="unmeasurable", tag_field="state"):
    """It could not be read. Never printed as 0; always blocks the cut."""

    reason: str
    hint: str = ""


Measurement = Measured | Absent | Unmeasurable


class Delivered(msgspec.Struct, frozen=True, tag="delivered", tag_field="outcome"):
    """The server executed the call and answered with every field the operation promises.

    `result` is `structuredContent` (or the text block of older servers) parsed under JavaScript's rules: every number
    a double, lone surrogates kept. `reply` is the event's bytes, verbatim.
    """

    result: dict[str, Any]
    reply: bytes


class Refused(msgspec.Struct, frozen=True, tag="refused", tag_field="outcome"):
    """The server (or this tool, before sending) said no. Final for that row in this run.

    `proven`: the answer itself proves that nothing was stored, so that a later run may ask again.
    """

    reason: str
    proven: bool = False


class NotSent(msgspec.Struct, frozen=True, tag="not-sent", tag_field="outcome"):
    """The call provably did not execute; `kind` says whether the run may go on.

    kind: `unreachable` | `credentials` | `session-lost` | `too-large` | `busy` | `host` | `redirect`
    """

    kind: str
    reason: str
    retry_after: float | None = None  # seconds


class Unknown(msgspec.Struct, frozen=True, tag="unknown", tag_field="outcome"):
    """The call may or may not have executed. Only evidence decides it; a write is never resent by guess.

    `retry_after`: seconds after which a reading call may ask a busy server (503) again; None for any other failure.
    """

    reason: str
    retry_after: float | None = None


Delivery = Delivered | Refused | NotSent | Unknown


class Confirmed(msgspec.Struct, frozen=True, tag="confirmed", tag_field="comparison"):
    """What MC returned equals the source row; `bytes_equal` tells byte from canonical equality."""

    bytes_equal: bool


class Mismatch(msgspec.Struct, frozen=True, tag="mismatch", tag_field="comparison"):
    """MC returned something else. `path` names the first difference; values are never printed."""

    path: str
    expected_digest: str
    actual_digest: str


Comparison = Confirmed | Mismatch

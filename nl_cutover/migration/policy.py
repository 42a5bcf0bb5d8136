"""What the operator decided: telemetry, replays, owner."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from ..errors import UsageError
from .lives import GAP_HOURS


class TelemetryMode(StrEnum):
    ADMIT = "admit"
    LEAVE = "leave"
    DISCARD = "discard"


class Telemetry(msgspec.Struct, frozen=True):
    """`admit`, `leave` (the cut stays refused) or `discard` with the exact number of rows."""

    mode: TelemetryMode
    count: int | None = None

    @classmethod
    def parse(cls, text: str) -> Telemetry:
        """`admit | leave | discard=N`. Raises UsageError."""
        if text in ("admit", "leave"):
            return cls(TelemetryMode(text))
        if match := re.fullmatch(r"discard=(\d{1,12})", text):
            return cls(TelemetryMode.DISCARD, int(match[1]))
        raise UsageError(
            f"--telemetry takes admit, leave or discard=N, not {text!r}",
            "discard wants the exact number of action rows, as `nl-cutover measure` prints it",
        )

    def __str__(self) -> str:
        return self.mode if self.count is None else f"{self.mode}={self.count}"


class Replays(StrEnum):
    MARKS = "marks"  # replay_count is carried by that many marks
    RECEIPT = "receipt"  # replay_count stays in the receipt alone


class Policy(msgspec.Struct, frozen=True):
    telemetry: Telemetry
    replays: Replays = Replays.MARKS
    owner: str | None = None
    life_gap_hours: float = GAP_HOURS
    identities: dict[str, str] = {}  # originWriter.agentId -> credential slot; not used when an owner is named
    choices: dict[str, str] = {}  # archive id with several contents -> the store (id, prefix or path) whose is sent

    def slot_of(self, writer: str) -> str | None:
        """The credential slot that saves a writer's rows: "" is the default one; None when there is none."""
        if self.owner is not None or not self.identities:
            return ""
        return self.identities.get(writer)

"""Each kind of receipt as a type: what its reader may rely on, and where its published JSON Schema comes from.

A field that a type does not know is left alone: newer versions may say more.
"""

from __future__ import annotations

from typing import Annotated, Literal, Union

import msgspec

from ..custody.reading import Digest, Mapped, Odd
from ..cut.report import CommandResult, StoreCut
from ..ingress.preflight import Plane
from ..migration.plan import Loss, Plan, StorePlan
from ..migration.report import Archives, Marks, TelemetryCounts
from ..migration.verify import Difference
from ..stores.sealing import SealState
from ..stores.summary import Totals
from ..verdicts import ExitCode

SCHEMA = "nl-cutover/receipt/1"

Time = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]
Rows = Annotated[int, msgspec.Meta(ge=0)]
State = Literal["measured", "absent", "unmeasurable"]


class Tool(msgspec.Struct, frozen=True):
    """Who wrote the receipt, and on which host."""

    name: str
    version: str
    python: str
    sqlite: str
    platform: str
    host: str


class MeasuredCheckout(msgspec.Struct, frozen=True):
    seat: str
    path: str
    state: State
    store: str | None


class MeasuredTable(msgspec.Struct, frozen=True):
    """`unaccounted` is None unless the table was compared with a ledger."""

    name: str
    state: State
    rows: Rows | None
    zero: Literal["sealed", "gated", "live"] | None
    unaccounted: Rows | None


class MeasuredStore(msgspec.Struct, frozen=True):
    id: str
    path: str
    aliases: list[str]
    open_mode: str | None
    tables: list[MeasuredTable]
    seal: SealState


class MeasuredFacts(msgspec.Struct, frozen=True):
    checkouts: list[MeasuredCheckout]
    stores: list[MeasuredStore]


class Receipt(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every receipt has. `previous` is the SHA-256 of the one before it; `run` is None before a run began."""

    schema: Literal["nl-cutover/receipt/1"]
    number: Annotated[int, msgspec.Meta(ge=1)]
    previous: Digest | None
    at: Time
    tool: Tool
    run: str | None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    verdict: str
    exit_code: ExitCode


class RunPlane(msgspec.Struct, frozen=True):
    plane_id: str | None
    data_root: str | None


class MeasureOutcome(Verdict, frozen=True, kw_only=True):
    totals: Totals
    control: bool


class MeasureReceipt(Receipt, frozen=True, kw_only=True, tag="measure"):
    plane: RunPlane | None  # of the run that the rows were compared with
    measured: MeasuredFacts
    outcome: MeasureOutcome


class PlanReceipt(Receipt, frozen=True, kw_only=True, tag="plan"):
    plan: Plan
    measured: MeasuredFacts
    outcome: Verdict


class MigratedPlan(msgspec.Struct, frozen=True, kw_only=True):
    digest: Digest
    acknowledged: bool
    owner: str | None
    owner_stated: bool
    writers: dict[str, int]
    identities: dict[str, int]
    slots: dict[str, str]
    telemetry: str
    replays: str
    stores: list[StorePlan]
    notes: list[str]


class MigrateOutcome(Verdict, frozen=True, kw_only=True):
    archives: Archives
    marks: Marks
    telemetry: TelemetryCounts
    sent: int
    in_doubt_at_start: int
    refused_server_requests: int
    stopped: str | None


class Settled(msgspec.Struct, frozen=True):
    """One decision about an unknown outcome; `at` in ms since epoch."""

    at: int
    what: str
    key: str
    decision: str
    by: str
    detail: str


class Beside(msgspec.Struct, frozen=True):
    """What was looked at beside the ingress; `not_proved` says in words what could not be."""

    not_proved: list[str] = []


class MigrateReceipt(Receipt, frozen=True, kw_only=True, tag="migrate"):
    plane: Plane
    container: Beside = Beside()
    plan: MigratedPlan
    measured: MeasuredFacts
    losses: list[Loss]
    outcome: MigrateOutcome
    odd: list[Odd]
    settled: list[Settled]
    id_map: list[Mapped]


class SettleOutcome(Verdict, frozen=True, kw_only=True):
    left: Rows


class SettleReceipt(Receipt, frozen=True, kw_only=True, tag="settle"):
    evidence: str | None
    settled: list[Settled]
    outcome: SettleOutcome


class VerifyOutcome(Verdict, frozen=True, kw_only=True):
    expected: Rows
    checked: Rows
    equal: Rows
    bytes_equal: Rows
    missing: Rows
    excluded: Rows
    differences: list[Difference]


class VerifyReceipt(Receipt, frozen=True, kw_only=True, tag="verify"):
    plane: Plane
    measured: MeasuredFacts
    outcome: VerifyOutcome


class LandingReceipt(Receipt, frozen=True, kw_only=True, tag="landing"):
    """The landing command is about to begin. `cut`: when the cut began, as its seals say."""

    cut: Time


class CutOutcome(Verdict, frozen=True, kw_only=True):
    host: str
    stores: list[StoreCut]
    command: CommandResult | None
    reasons: list[str]


class CutReceipt(Receipt, frozen=True, kw_only=True, tag="cut"):
    measured: MeasuredFacts
    outcome: CutOutcome


Kinds = Union[  # noqa: UP007 - a type alias that msgspec reads at run time
    MeasureReceipt,
    PlanReceipt,
    MigrateReceipt,
    SettleReceipt,
    VerifyReceipt,
    LandingReceipt,
    CutReceipt,
]

"""`nl-cutover plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import (
    AbsentOption,
    Checkouts,
    ClosedOption,
    ConfigOption,
    CustodyOption,
    ExpectOption,
    Format,
    FormatOption,
    OwnerOption,
    Roots,
    finish,
)

if TYPE_CHECKING:
    from ..migration.policy import Policy

TelemetryOption = Annotated[
    str, typer.Option("--telemetry", help="admit | leave | discard=N, N being the exact count.", metavar="POLICY")
]
ReplaysOption = Annotated[
    str, typer.Option("--replays", help="marks | receipt: how replay counts travel.", metavar="HOW")
]

LifeGapOption = Annotated[
    float,
    typer.Option("--life-gap", help="Hours after which an equal sequence id is another process life.", min=0.0),
]
GAP_HOURS = 96.0


def plan(
    checkouts: Checkouts = None,
    root: Roots = None,
    telemetry: TelemetryOption = "leave",
    replays: ReplaysOption = "marks",
    life_gap: LifeGapOption = GAP_HOURS,
    owner: OwnerOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the plan as JSON.", metavar="FILE")] = None,
    expect_checkouts: ExpectOption = None,
    allow_absent: AbsentOption = False,
    closed: ClosedOption = False,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Say what a migration would send, refuse and lose. Sends nothing; needs no ingress."""
    from ..migration.plan import build_plan
    from ..migration.preparing import source_of
    from ..output.json import as_json
    from ..output.views import plan_document
    from .measuring import measured, now_ms
    from .settings import load

    settings = load(config=config, checkouts=checkouts, roots=root, custody=custody, owner=owner)
    policy = policy_of(telemetry, replays, settings.owner, life_gap)
    report = measured(settings, expect=expect_checkouts, closed=closed)
    with source_of(report) as source:
        made = build_plan(source, policy, now_ms=now_ms())
    if out is not None:
        from ..errors import UsageError

        try:
            out.write_text(as_json(made))
        except OSError as error:
            raise UsageError(f"the plan cannot be written to {out}: {error.strerror}") from None
    finish(made, plan_document(made), format)


def policy_of(telemetry: str, replays: str, owner: str | None, life_gap: float) -> Policy:
    from ..errors import UsageError
    from ..migration.policy import Policy, Replays, Telemetry

    try:
        how = Replays(replays)
    except ValueError:
        raise UsageError(f"--replays takes marks or receipt, not {replays!r}") from None
    return Policy(Telemetry.parse(telemetry), how, owner, life_gap)

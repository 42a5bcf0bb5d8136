"""`nl-cutover plan`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import (
    Checkouts,
    ClosedOption,
    ConfigOption,
    CustodyOption,
    EngineOption,
    ExpectOption,
    Format,
    FormatOption,
    OwnerOption,
    ReceiptOption,
    Roots,
    finish,
    finite,
)

if TYPE_CHECKING:
    from ..migration.plan import Plan
    from ..migration.policy import Policy
    from .settings import Settings

TelemetryOption = Annotated[
    str | None,
    typer.Option("--telemetry", help="admit | leave | discard=N, the exact count.  [default: leave]", metavar="POLICY"),
]
ReplaysOption = Annotated[
    str | None,
    typer.Option("--replays", help="marks | receipt: how replay counts travel.  [default: marks]", metavar="HOW"),
]

LifeGapOption = Annotated[
    float | None,
    typer.Option(
        "--life-gap",
        help="Hours after which an equal sequence id is another process life.  [default: 96]",
        min=0.0,
        callback=finite,
    ),
]

ChooseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--choose",
        help="Of an archive id with several contents, send the one of this store (id, its beginning, or path).",
        metavar="ARCHIVE=STORE",
    ),
]


def plan(
    checkouts: Checkouts = None,
    root: Roots = None,
    telemetry: TelemetryOption = None,
    replays: ReplaysOption = None,
    life_gap: LifeGapOption = None,
    owner: OwnerOption = None,
    choose: ChooseOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the plan as JSON.", metavar="FILE")] = None,
    expect_checkouts: ExpectOption = None,
    closed: ClosedOption = False,
    engine: EngineOption = None,
    receipt: ReceiptOption = False,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Say what a migration would send, refuse and lose. Sends nothing; needs no ingress."""
    from ..migration.plan import build_plan
    from ..migration.preparing import source_of
    from ..output.json import as_json
    from ..output.progress import Heartbeat
    from ..output.views import plan_document
    from .measuring import measured, now_iso, now_ms
    from .settings import load

    settings = load(config=config, checkouts=checkouts, roots=root, custody=custody, owner=owner, engine=engine)
    policy = policy_of(telemetry, replays, life_gap, choose, settings)
    report = measured(settings, expect=expect_checkouts, closed=closed)
    with Heartbeat(sys.stderr) as beat, source_of(report) as source:
        beat.stage("plan", 0)
        made = build_plan(source, policy, now_ms=now_ms())
    if receipt:
        from ..papers.taking import plan_receipt

        made = plan_receipt(settings.custody, report, made, now_iso())
    if out is not None:
        from ..errors import UsageError

        try:
            out.write_text(as_json(made))
        except OSError as error:
            raise UsageError(f"the plan cannot be written to {out}: {error.strerror}") from None
    finish(made, plan_document(made), format)


def policy_of(
    telemetry: str | None,
    replays: str | None,
    life_gap: float | None,
    choose: list[str] | None,
    settings: Settings,
    made: Plan | None = None,
) -> Policy:
    """The policy of the flags, or of a plan that was made before. Raises UsageError where the two contradict."""
    from ..errors import UsageError
    from ..migration.choosing import parse_choices
    from ..migration.lives import GAP_HOURS
    from ..migration.policy import Policy, Replays, Telemetry

    owner, choices = settings.owner, parse_choices(choose or [])
    if made is not None:
        stated = made.owner if made.owner_stated else None
        for flag, given, planned in (
            ("--telemetry", telemetry, made.telemetry),
            ("--replays", replays, made.replays),
            ("--life-gap", life_gap, made.life_gap_hours),
            ("--owner", owner, stated),
        ):
            if given is not None and given != planned:
                raise UsageError(f"{flag} {given} contradicts the plan, which says {planned}", "make a new plan")
        planned_choices = {choice.key: choice.store for choice in made.choices}
        if choices and choices != planned_choices:
            words = ", ".join(f"{key}={store}" for key, store in planned_choices.items()) or "nothing is chosen"
            raise UsageError(f"--choose contradicts the plan, which says {words}", "leave it out, or make a new plan")
        choices = planned_choices
        telemetry, replays, life_gap, owner = made.telemetry, made.replays, made.life_gap_hours, stated
    try:
        how = Replays(replays or "marks")
    except ValueError:
        raise UsageError(f"--replays takes marks or receipt, not {replays!r}") from None
    gap = GAP_HOURS if life_gap is None else life_gap
    return Policy(Telemetry.parse(telemetry or "leave"), how, owner, gap, settings.identities, choices)

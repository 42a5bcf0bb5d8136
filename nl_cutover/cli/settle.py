"""`nl-cutover settle`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import (
    Checkouts,
    ClosedOption,
    ConfigOption,
    CustodyOption,
    ExpectOption,
    Format,
    FormatOption,
    Roots,
    finish,
)
from .plan import LifeGapOption

GraphOption = Annotated[
    Path | None,
    typer.Option("--graph", help="Evidence: MC's graph file, or a consistent copy, read-only.", metavar="FILE"),
]
QuietOption = Annotated[
    float, typer.Option("--quiet", help="Seconds since a call before its absence is believed.", min=0.0)
]


def settle(
    checkouts: Checkouts = None,
    root: Roots = None,
    row: Annotated[
        list[str] | None,
        typer.Option(
            "--row",
            help="Decide one: ID=resend|exclude|saved:ARCHIVE, batch:N=resend|admitted, mark:ID=made|not-made.",
            metavar="ROW=DECISION",
        ),
    ] = None,
    graph: GraphOption = None,
    quiet: QuietOption = 15.0,
    life_gap: LifeGapOption = None,
    expect_checkouts: ExpectOption = None,
    closed: ClosedOption = False,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Decide outcomes that nobody knows: by evidence, or by your word. Sends nothing; a receipt says who and how."""
    from ..errors import UsageError
    from ..migration.evidence import GraphFile
    from ..migration.job import settle as settle_run
    from ..migration.lives import GAP_HOURS
    from ..output.views import settle_document
    from .measuring import measured, now_ms
    from .settings import load

    if graph is None and not row:
        raise UsageError("settle needs evidence or a decision", "--graph FILE, or --row ROW=DECISION")
    settings = load(config=config, checkouts=checkouts, roots=root, custody=custody)
    evidence = None if graph is None else GraphFile(graph)
    report = measured(settings, expect=expect_checkouts, closed=closed)
    result = settle_run(
        report,
        custody=settings.custody,
        evidence=evidence,
        rows=row or [],
        life_gap_hours=GAP_HOURS if life_gap is None else life_gap,
        quiet_ms=quiet * 1000,
        clock=now_ms,
    )
    finish(result, settle_document(result), format)

"""`nl-cutover settle`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import ConfigOption, CustodyOption, Format, FormatOption, finish

GraphOption = Annotated[
    Path | None,
    typer.Option("--graph", help="Evidence: MC's graph file, or a consistent copy, read-only.", metavar="FILE"),
]
QuietOption = Annotated[
    float, typer.Option("--quiet", help="Seconds since a call before its absence is believed.", min=0.0)
]


def settle(
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
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Decide outcomes that nobody knows: by evidence, or by your word. Sends nothing; a receipt says who and how."""
    from ..errors import UsageError
    from ..migration.evidence import GraphFile
    from ..migration.job import settle as settle_run
    from ..output.views import settle_document
    from .measuring import now_ms
    from .settings import load

    if graph is None and not row:
        raise UsageError("settle needs evidence or a decision", "--graph FILE, or --row ROW=DECISION")
    settings = load(config=config, custody=custody)
    evidence = None if graph is None else GraphFile(graph)
    result = settle_run(
        custody=settings.custody,
        evidence=evidence,
        rows=row or [],
        quiet_ms=quiet * 1000,
        clock=now_ms,
    )
    finish(result, settle_document(result), format)

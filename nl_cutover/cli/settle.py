"""`nl-cutover settle`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import (
    ConfigOption,
    ContainerOption,
    CustodyOption,
    EngineOption,
    Format,
    FormatOption,
    ProjectOption,
    ServiceOption,
    finish,
    finite,
)

GraphOption = Annotated[
    Path | None,
    typer.Option("--graph", help="Evidence: MC's graph file, or a consistent copy, read-only.", metavar="FILE"),
]
EvidenceOption = Annotated[
    str | None,
    typer.Option("--evidence", help="`container`: read inside Memory Core's container, or fail.", metavar="WHERE"),
]
QuietOption = Annotated[
    float,
    typer.Option("--quiet", help="Seconds since a call before its absence is believed.", min=0.0, callback=finite),
]


def settle(
    row: Annotated[
        list[str] | None,
        typer.Option(
            "--row",
            help="Decide one: ID=resend|exclude|saved:ARCHIVE, batch:N=resend|admitted|exclude, mark:ID=made|not-made.",
            metavar="ROW=DECISION",
        ),
    ] = None,
    graph: GraphOption = None,
    evidence: EvidenceOption = None,
    quiet: QuietOption = 15.0,
    container: ContainerOption = None,
    project: ProjectOption = None,
    service: ServiceOption = None,
    engine: EngineOption = None,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Decide outcomes that nobody knows: by evidence, or by your word. Sends nothing; a receipt says who and how."""
    from ..errors import UsageError
    from ..migration.evidence import GraphFile
    from ..migration.job import settle as settle_run
    from ..output.views import settle_document
    from .engines import evidence_of_run
    from .measuring import now_ms
    from .settings import load

    inside = wants_container(evidence, graph)
    if graph is None and not row and not inside:
        raise UsageError(
            "settle needs evidence or a decision", "--evidence container, --graph FILE, or --row ROW=DECISION"
        )
    settings = load(
        config=config, custody=custody, engine=engine, container=container, project=project, service=service
    )
    looked_up = None if graph is None else GraphFile(graph)
    result = settle_run(
        custody=settings.custody,
        evidence=evidence_of_run(settings) if inside else looked_up,
        rows=row or [],
        quiet_ms=quiet * 1000,
        clock=now_ms,
    )
    finish(result, settle_document(result), format)


def wants_container(evidence: str | None, graph: Path | None) -> bool:
    """Whether `--evidence` asks for the container. Raises UsageError for any other word, or for a graph file beside it."""
    from ..errors import UsageError

    if evidence not in (None, "container"):
        raise UsageError(f"--evidence takes container, not {evidence!r}", "a graph file is named by --graph FILE")
    if evidence is not None and graph is not None:
        raise UsageError("--evidence container and --graph are two sources of evidence", "name one of them")
    return evidence is not None

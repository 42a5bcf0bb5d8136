"""`nl-cutover report` and `nl-cutover explain`: a run, told to somebody who was not there."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, assert_never

import typer

from .common import ConfigOption, CustodyOption, Format, FormatOption, finish, say

if TYPE_CHECKING:
    from ..papers.verifying import Read

RunArgument = Annotated[
    str | None,
    typer.Argument(
        help="The run's id, its custody directory, or one receipt.  [default: the run of --custody]",
        metavar="RUN",
        show_default=False,
    ),
]


class ReportFormat(StrEnum):
    MARKDOWN = "markdown"
    HTML = "html"
    JSON = "json"


def report(
    run: RunArgument = None,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: Annotated[
        ReportFormat, typer.Option("--format", help="html is one file that needs nothing else.")
    ] = ReportFormat.MARKDOWN,
) -> None:
    """Tell a run from its receipts: who reached what, rows by outcome, losses, times, the id map. Its exit code is the run's."""
    from ..errors import CustodyError
    from ..output.json import as_json
    from ..output.page import as_html
    from ..output.paper_views import as_paste
    from ..papers.story import tell

    where, chain = _run_of(run, custody, config)
    if not chain:
        raise CustodyError(f"custody {where} holds no receipt", "a receipt is left by migrate, settle, verify and cut")
    story = tell(chain)
    match format:
        case ReportFormat.MARKDOWN:
            text = as_paste(story, where if where.is_file() else None)
        case ReportFormat.HTML:
            text = as_html(story)
        case ReportFormat.JSON:
            text = as_json(story)
        case _:
            assert_never(format)
    say(text)
    raise typer.Exit(story.exit_code)


def explain(
    run: RunArgument = None,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Say in one sentence why a run is blocked, and which command is next. Reads, never writes."""
    from ..errors import UsageError
    from ..migration.report import report_from_ledger
    from ..output.paper_views import explain_document
    from ..papers.explaining import explain as explained
    from .measuring import now_iso

    where, chain = _run_of(run, custody, config)
    if where.is_file():
        raise UsageError(
            f"{where} is a receipt, and explain asks the ledger",
            f"name the custody directory; of a receipt alone: nl-cutover report {where}",
        )
    result = explained(report_from_ledger(where, at=now_iso(), losses=[]), [one.receipt for one in chain])
    finish(result, explain_document(result), format)


def _run_of(run: str | None, custody: Path | None, config: Path | None) -> tuple[Path, list[Read]]:
    """The custody directory of a run, or the one receipt that was named, and the receipts, checked. Raises UsageError
    when another run is there."""
    from ..custody.directory import RECEIPTS
    from ..custody.receipts import chain
    from ..errors import UsageError
    from ..papers.verifying import consistent
    from .settings import load

    named = Path(run) if run is not None and Path(run).exists() else None
    if named is not None and named.absolute().name == RECEIPTS and named.is_dir() and not (named / RECEIPTS).exists():
        named = named.absolute().parent
    where = named or load(config=config, custody=custody).custody
    paper = consistent([where] if where.is_file() else [link.path for link in chain(where)])
    found = list(paper.chains[0]) if paper.chains else []
    ids = {one.receipt.run for one in found if one.receipt.run is not None}
    if run is not None and named is None and run not in ids:
        raise UsageError(
            f"custody {where} holds {', '.join(sorted(ids)) or 'no run'}, not {run}",
            "name its --custody, the folder, or a receipt",
        )
    return where, found

"""`nl-cutover receipt`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..verdicts import ExitCode
from .common import ConfigOption, CustodyOption, Format, FormatOption, finish

app = typer.Typer(help="Read the receipts of a custody directory.", no_args_is_help=True)


@app.command("show")
def show(
    number: Annotated[
        int | None, typer.Argument(help="Which receipt.  [default: the last]", show_default=False)
    ] = None,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Show one receipt, after checking the chain up to the last one."""
    from ..custody.receipts import chain, read
    from ..errors import UsageError
    from ..output.documents import Document, Table
    from .settings import load

    settings = load(config=config, custody=custody)
    links = chain(settings.custody)
    wanted = [link for link in links if number is None or link.number == number][-1:]
    if not wanted:
        raise UsageError(
            f"custody {settings.custody} holds {len(links)} receipts, none with number {number or 'any'}",
            "a receipt is left by migrate, verify and cut",
        )
    link = wanted[0]
    body: dict[str, Any] = read(link.path)[1]
    outcome = body.get("outcome", {})
    facts = [
        ("receipt", f"{link.number} of {len(links)}, {link.kind}"),
        ("run", str(body.get("run"))),
        ("at", str(body.get("at"))),
        ("chain", "every receipt follows the one before it"),
        ("sha256", link.sha256),
        ("path", str(link.path)),
        ("says", f"{outcome.get('verdict')} (exit {outcome.get('exit_code')})"),
    ]
    rows = [[entry["old"], entry["new"], entry["digest"][:16]] for entry in body.get("id_map", [])]
    document = Document(
        title="nl-cutover receipt",
        verdict="intact",
        exit_code=int(ExitCode.PROVED),
        meaning=ExitCode.PROVED.meaning,
        facts=facts,
        tables=[Table("id map", ["old id", "new id", "row digest"], rows)] if rows else [],
        notes=[],
        next_steps=[],
    )
    finish(body, document, format)

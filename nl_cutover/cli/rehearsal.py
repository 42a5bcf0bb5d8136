"""`nl-cutover copy`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..verdicts import ExitCode
from .common import (
    Checkouts,
    ClosedOption,
    ConfigOption,
    EngineOption,
    ExpectOption,
    Format,
    FormatOption,
    Roots,
    finish,
)

REHEARSAL_PLANE = "neo-rehearsal"


def copy(
    folder: Annotated[Path, typer.Argument(help="A new folder for the copies.", metavar="DIR")],
    checkouts: Checkouts = None,
    url: Annotated[str, typer.Option("--url", help="The ingress of a Memory Core to throw away.")] = "",
    root: Roots = None,
    expect_checkouts: ExpectOption = None,
    closed: ClosedOption = False,
    engine: EngineOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Copy every store, consistently and read-only, and write settings beside the copies: a cut is rehearsed there."""
    from ..errors import UsageError
    from ..migration.preparing import require_measured
    from ..output.documents import Table
    from ..output.views import ending
    from ..stores.copying import copy_checkouts
    from .measuring import measured
    from .settings import CONFIG_NAME, as_toml, load

    settings = load(config=config, checkouts=checkouts, roots=root, engine=engine)
    if url in ("", settings.url):
        raise UsageError(
            "a rehearsal needs the --url of a Memory Core of its own",
            f"nl-cutover mc serve --plane-id {REHEARSAL_PLANE} serves one",
        )
    report = measured(settings, expect=expect_checkouts, closed=closed)
    require_measured(report)
    made = copy_checkouts(report, folder)
    # The plane is another one too: were --url forgotten, the real Memory Core would be refused.
    written = as_toml(
        url=url,
        custody="custody",
        owner=settings.owner,
        plane=REHEARSAL_PLANE,
        checkouts=[(seat, path.name) for seat, path in made],
        identities=settings.identities,
    )
    (folder / CONFIG_NAME).write_text(written, "utf-8")
    rows = [[c.seat, path.name, c.store or "-"] for c, (_, path) in zip(report.checkouts, made, strict=True)]
    facts = [
        ("folder", str(folder.absolute())),
        ("stores", str(len(report.stores))),
        ("url", url),
        ("plane", REHEARSAL_PLANE),
    ]
    tables = [Table("", ["seat", "checkout", "copy of"], rows)]
    steps = [f"cd {folder}; nl-cutover measure"]
    document = ending("copy", "copied", ExitCode.PROVED, facts, tables, next_steps=steps)
    told = {"schema": "nl-cutover/copy/1", "verdict": "copied", "exit_code": 0, "folder": str(folder.absolute())}
    finish(
        told | {"checkouts": [dict(zip(("seat", "checkout", "store"), r, strict=True)) for r in rows]}, document, format
    )

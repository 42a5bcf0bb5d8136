"""`nl-cutover cut`."""

from __future__ import annotations

from typing import Annotated

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
    Roots,
    UrlOption,
    finish,
)

UpdatesOption = Annotated[
    str, typer.Option("--updates", help="allow | refuse: whether archives may still count replays.", metavar="HOW")
]
CreateOption = Annotated[
    bool, typer.Option("--create-missing", help="Make the tables that are absent, so that they are sealed too.")
]
LockOption = Annotated[float, typer.Option("--lock-timeout", help="Seconds to wait for a store's lock.", min=0)]


def cut(
    ctx: typer.Context,
    checkouts: Checkouts = None,
    root: Roots = None,
    max_age: Annotated[
        float, typer.Option("--max-age", help="Oldest verification that is good enough, in minutes.", min=0)
    ] = 15,
    updates: UpdatesOption = "allow",
    create_missing: CreateOption = False,
    lock_timeout: LockOption = 5,
    url: UrlOption = None,
    expect_checkouts: ExpectOption = None,
    allow_absent: AbsentOption = False,
    closed: ClosedOption = False,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Land: count under the lock, seal every store, run `-- COMMAND...`, count again; undo it all if anything fails."""
    from ..cut.job import run_cut
    from ..errors import UsageError
    from ..output.redaction import redact
    from ..output.views import cut_document
    from ..stores.sealing import Updates
    from .measuring import measured, now_ms
    from .settings import load

    command: list[str] = ctx.obj or []
    if not command:
        raise UsageError("cut lands a command, and none is named", "nl-cutover cut CHECKOUT... -- COMMAND...")
    if updates not in tuple(Updates):
        raise UsageError(f"--updates takes allow or refuse, not {updates!r}")
    settings = load(config=config, checkouts=checkouts, roots=root, custody=custody, url=url)
    result = run_cut(
        command,
        custody=settings.custody,
        url=settings.url,
        measured=lambda: measured(settings, expect=expect_checkouts, closed=closed, ledger=True),
        allow_absent=allow_absent,
        updates=Updates(updates),
        create_missing=create_missing,
        busy_timeout_ms=int(lock_timeout * 1000),
        max_age_ms=int(max_age * 60_000),
        clock=now_ms,
        redact=redact,
    )
    finish(result, cut_document(result), format)

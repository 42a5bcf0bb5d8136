"""`nl-cutover cut`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import (
    AbsentOption,
    Checkouts,
    ClosedOption,
    ConfigOption,
    CreateOption,
    CustodyOption,
    EngineOption,
    ExpectOption,
    Format,
    FormatOption,
    LockOption,
    Roots,
    UpdatesOption,
    UrlOption,
    finish,
    finite,
)


def cut(
    ctx: typer.Context,
    checkouts: Checkouts = None,
    root: Roots = None,
    max_age: Annotated[
        float,
        typer.Option("--max-age", help="Oldest verification that is good enough, in minutes.", min=0, callback=finite),
    ] = 15,
    hold_file: Annotated[
        Path | None, typer.Option("--hold-file", help="Do not land while this file exists.", metavar="PATH")
    ] = None,
    updates: UpdatesOption = "allow",
    create_missing: CreateOption = False,
    lock_timeout: LockOption = 5,
    url: UrlOption = None,
    expect_checkouts: ExpectOption = None,
    allow_absent: AbsentOption = False,
    closed: ClosedOption = False,
    engine: EngineOption = None,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Land: count under the lock, seal every store, run `-- COMMAND...`, count again; a failed landing is undone."""
    import os
    from functools import partial

    from ..cut.fencing import SealRequest
    from ..cut.job import run_cut
    from ..errors import RefusedError, UsageError
    from ..migration.containers import moved_since
    from ..output.redaction import redact
    from ..output.views import cut_document
    from .engines import engine_of
    from .measuring import measured, now_ms, updates_of
    from .settings import load

    command: list[str] = ctx.obj or []
    if not command:
        raise UsageError("cut lands a command, and none is named", "nl-cutover cut CHECKOUT... -- COMMAND...")
    request_updates = updates_of(updates)
    settings = load(config=config, checkouts=checkouts, roots=root, custody=custody, url=url, engine=engine)
    secrets = [
        v for slot in (settings.token_env, *settings.identities.values()) if (v := os.environ.get(slot, "").strip())
    ]
    if moved := moved_since(settings.custody, lambda: engine_of(settings)):
        raise RefusedError(
            f"Memory Core's container is not the one that was proved: {'; '.join(moved)}",
            "prove it as it is now: nl-cutover verify CHECKOUT..., then cut again; nothing was landed",
        )
    result = run_cut(
        command,
        custody=settings.custody,
        measured=lambda: measured(settings, expect=expect_checkouts, closed=closed, ledger=True),
        allow_absent=allow_absent,
        request=SealRequest(settings.url, request_updates, create_missing, int(lock_timeout * 1000)),
        hold_file=hold_file,
        max_age_ms=int(max_age * 60_000),
        clock=now_ms,
        redact=partial(redact, secrets=secrets),
    )
    finish(result, cut_document(result), format)

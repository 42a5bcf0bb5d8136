"""How verbs measure: the same discovery and the same reading, whatever is done with it."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ..stores.report import Report
    from ..stores.sealing import Updates
    from .settings import Settings


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def now_iso() -> str:
    return utc_now().isoformat(timespec="milliseconds").replace("+00:00", "Z")


def measured(settings: Settings, *, expect: int | None, closed: bool, ledger: bool = False) -> Report:
    """Discover the settings' checkouts and measure their stores; with `ledger`, against the custody's ledger."""
    from ..custody.directory import exists
    from ..errors import UsageError
    from ..output.progress import Heartbeat
    from ..stores.checkouts import discover
    from ..stores.measurement import Options, measure
    from .engines import container_mounts

    if not settings.checkouts and not settings.roots:
        raise UsageError(
            "no checkout is named", "name checkouts, or --root DIR, or list them in nl-cutover.toml under `checkouts`"
        )
    checkouts = discover(
        [path for path, _ in settings.checkouts],
        roots=settings.roots,
        environ=os.environ,
        home=Path.home(),
        expect=expect,
        closed=closed,
    )
    seats = {path.absolute(): seat for path, seat in settings.checkouts if seat is not None}
    named = [msgspec.structs.replace(c, seat=seats.get(c.path, c.seat)) for c in checkouts]
    looked = container_mounts(settings)
    options = Options(mounts=looked.mounts)
    with Heartbeat(sys.stderr) as beat:
        beat.stage("measure", 0)
        if not ledger or not exists(settings.custody):
            report = measure(named, clock=utc_now, environ=os.environ, options=options)
        else:
            from ..custody.reading import LedgerReader

            with LedgerReader(settings.custody) as reader:
                report = measure(named, clock=utc_now, environ=os.environ, accounts=reader.accounts, options=options)
    warnings = (*report.warnings, *([looked.warning] if looked.warning else []))
    return msgspec.structs.replace(report, containers=looked.words, warnings=warnings)


def utc_now() -> datetime:
    return datetime.now(UTC)


def updates_of(text: str) -> Updates:
    """`allow` or `refuse`. Raises UsageError."""
    from ..errors import UsageError
    from ..stores.sealing import Updates

    try:
        return Updates(text)
    except ValueError:
        raise UsageError(f"--updates takes allow or refuse, not {text!r}") from None

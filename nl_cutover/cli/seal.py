"""`nl-cutover seal` and `nl-cutover unseal`."""

from __future__ import annotations

from .common import (
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
)


def seal(
    checkouts: Checkouts = None,
    root: Roots = None,
    updates: UpdatesOption = "allow",
    create_missing: CreateOption = False,
    lock_timeout: LockOption = 5,
    url: UrlOption = None,
    expect_checkouts: ExpectOption = None,
    closed: ClosedOption = False,
    engine: EngineOption = None,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Fence every store: inserts into both tables fail from now on. All stores or none; reversible to the byte."""
    import socket

    from ..custody.directory import store_locks
    from ..cut.fencing import SealRequest
    from ..cut.sealing import seal_stores
    from ..migration.preparing import require_measured
    from ..output.views import seal_document
    from .measuring import measured, now_iso, updates_of
    from .settings import load

    how = updates_of(updates)
    settings = load(config=config, checkouts=checkouts, roots=root, custody=custody, url=url, engine=engine)
    report = measured(settings, expect=expect_checkouts, closed=closed)
    require_measured(report)
    request = SealRequest(settings.url, how, create_missing, int(lock_timeout * 1000))
    with store_locks(store.id for store in report.stores):
        result = seal_stores(report, request, host=socket.gethostname(), at=now_iso)
    finish(result, seal_document(result), format)


def unseal(
    checkouts: Checkouts = None,
    root: Roots = None,
    lock_timeout: LockOption = 5,
    expect_checkouts: ExpectOption = None,
    closed: ClosedOption = False,
    engine: EngineOption = None,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Take the seals away: recorders can write again."""
    import socket

    from ..custody.directory import store_locks
    from ..cut.sealing import unseal_stores
    from ..migration.preparing import require_measured
    from ..output.views import seal_document
    from .measuring import measured, now_iso
    from .settings import load

    settings = load(config=config, checkouts=checkouts, roots=root, custody=custody, engine=engine)
    report = measured(settings, expect=expect_checkouts, closed=closed)
    require_measured(report)
    with store_locks(store.id for store in report.stores):
        result = unseal_stores(report, host=socket.gethostname(), at=now_iso, busy_timeout_ms=int(lock_timeout * 1000))
    finish(result, seal_document(result), format)

"""`nl-cutover measure`."""

from __future__ import annotations

from .common import (
    AbsentOption,
    Checkouts,
    ClosedOption,
    ConfigOption,
    CustodyOption,
    EngineOption,
    ExpectOption,
    Format,
    FormatOption,
    ReceiptOption,
    Roots,
    finish,
)


def measure(
    checkouts: Checkouts = None,
    root: Roots = None,
    expect_checkouts: ExpectOption = None,
    allow_absent: AbsentOption = False,
    closed: ClosedOption = False,
    engine: EngineOption = None,
    receipt: ReceiptOption = False,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Count both tables in every physical store, read-only. Exit 0: every row is accounted for."""
    import socket

    from ..output.views import measure_document
    from ..stores.summary import summarize
    from .measuring import measured
    from .settings import load

    settings = load(config=config, checkouts=checkouts, roots=root, custody=custody, engine=engine)
    report = measured(settings, expect=expect_checkouts, closed=closed, ledger=True)
    result = summarize(report, host=socket.gethostname(), allow_absent=allow_absent)
    if receipt:
        from ..papers.taking import measure_receipt

        result = measure_receipt(settings.custody, report, result)
    finish(result, measure_document(result), format)

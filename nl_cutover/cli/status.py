"""`nl-cutover status`."""

from __future__ import annotations

from .common import ConfigOption, CustodyOption, Format, FormatOption, finish


def status(custody: CustodyOption = None, config: ConfigOption = None, format: FormatOption = Format.TABLE) -> None:
    """Say where the run of a custody directory stands, and what keeps it there. Reads, never writes."""
    import msgspec

    from ..custody.receipts import chain
    from ..migration.plan import Loss
    from ..migration.report import report_from_ledger
    from ..output.views import run_document
    from .measuring import now_iso
    from .settings import load

    settings = load(config=config, custody=custody)
    links = [link for link in chain(settings.custody) if link.kind == "migrate"]
    losses = msgspec.convert(links[-1].body["losses"], list[Loss]) if links else []
    report = report_from_ledger(
        settings.custody, at=now_iso(), losses=losses, receipt=str(links[-1].path) if links else None
    )
    finish(report, run_document(report), format)

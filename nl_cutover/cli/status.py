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
    from ..papers.explaining import explain
    from ..papers.verifying import Paper
    from ..verdicts import ExitCode
    from .measuring import now_iso
    from .settings import load

    settings = load(config=config, custody=custody)
    papers = chain(settings.custody)
    links = [link for link in papers if link.kind == "migrate"]
    losses = msgspec.convert(links[-1].body["losses"], list[Loss]) if links else []
    report = report_from_ledger(
        settings.custody, at=now_iso(), losses=losses, receipt=str(links[-1].path) if links else None
    )
    if report.exit_code == ExitCode.PROVED and papers:  # the ledger does not know what was read back, or landed
        told = explain(report, [one.receipt for one in Paper([link.path for link in papers]).read.values()])
        report = msgspec.structs.replace(report, next_steps=[f"{step} ({told.why})" for step in told.next_steps])
    finish(report, run_document(report), format)

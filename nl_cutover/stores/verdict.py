"""From a measurement to an exit code: one pure function."""

from __future__ import annotations

from ..verdicts import ExitCode
from .report import Report

WORDS: dict[ExitCode, str] = {
    ExitCode.PROVED: "clear",
    ExitCode.REFUSED: "refused",
    ExitCode.UNMEASURABLE: "unmeasurable",
}


def verdict_of(report: Report, *, allow_absent: bool = False) -> ExitCode:
    """PROVED only when everything was read and every row is accounted for.

    Unmeasurable wins over refused: a number that could not be read may be any number. A checkout that reaches no store
    is refused unless `allow_absent`: its recorder makes one on first use. No checkouts at all is not a clean result.
    """
    if not report.control.ok or not report.checkouts:
        return ExitCode.UNMEASURABLE
    states = [checkout.state for checkout in report.checkouts]
    tables = [table for store in report.stores for table in store.tables]
    if "unmeasurable" in states or any(table.state == "unmeasurable" for table in tables):
        return ExitCode.UNMEASURABLE
    if "absent" in states and not allow_absent:
        return ExitCode.REFUSED
    if any(table.unaccounted for table in tables):
        return ExitCode.REFUSED
    return ExitCode.PROVED


def word(code: ExitCode) -> str:
    """`clear`, `refused` or `unmeasurable`."""
    return WORDS[code]

"""What stands against sealing what was measured: the verdict of `measure` and the gate of the cut ask the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..verdicts import ExitCode
from ..wording import counted, fitted
from .report import Report, StoreReport, TableReport

Reason = tuple[ExitCode, str]

WORDS: dict[ExitCode, str] = {
    ExitCode.PROVED: "clear",
    ExitCode.REFUSED: "refused",
    ExitCode.UNMEASURABLE: "unmeasurable",
}


def checkout_reasons(report: Report, *, allow_absent: bool) -> list[Reason]:
    """Checkouts that could not be looked at, and, unless `allow_absent`, those whose store is yet to be made."""
    reasons = []
    for checkout in report.checkouts:
        if checkout.state == "unmeasurable":
            reasons.append((ExitCode.UNMEASURABLE, f"checkout {checkout.seat}: {checkout.reason}"))
        elif checkout.state == "absent" and not allow_absent:
            sentence = f"{checkout.seat} reaches no store: a recorder makes one on first use, unsealed"
            reasons.append((ExitCode.REFUSED, f"{sentence}; leave the checkout out, or say --allow-absent"))
    return reasons


def table_reasons(
    store: StoreReport, tables: Sequence[TableReport], *, create_missing: bool, accounted: bool = True
) -> list[Reason]:
    """Why this store may not be sealed: unreadable or absent tables, and, if asked, rows without an account."""
    reasons = []
    for table in tables:
        if table.state == "unmeasurable":
            sentence = f"{table.name} of store {store.id} cannot be read: {table.reason}"
            reasons.append((ExitCode.UNMEASURABLE, sentence))
        elif table.state == "absent" and not create_missing:
            sentence = f"{table.name} is absent from store {store.id}: a recorder would make it on first use; "
            reasons.append((ExitCode.REFUSED, f"{sentence}cut --create-missing makes and seals it"))
        elif accounted and table.unaccounted:
            reasons.append((ExitCode.REFUSED, unaccounted(table.name, store.id, table.unaccounted, table.rows or 0)))
    return reasons


def unaccounted(table: str, store: str, count: int, rows: int) -> str:
    of = f"{count} of {counted(rows, 'row|s')} of {table} in store {store}"
    return f"{of} {fitted(count, 'is|are')} not accounted for"


def worst(reasons: Iterable[Reason]) -> ExitCode:
    """Unmeasurable wins over refused: a number that could not be read may be any number."""
    return max((code for code, _ in reasons), default=ExitCode.PROVED)


def verdict_of(report: Report, *, allow_absent: bool = False) -> ExitCode:
    """PROVED when every row is accounted for. No checkouts at all is not a clean result.

    An absent table holds no row: here it is no reason, as a live zero is none; the cut asks for `--create-missing`.
    """
    if not report.control.ok or not report.checkouts:
        return ExitCode.UNMEASURABLE
    reasons = checkout_reasons(report, allow_absent=allow_absent)
    for store in report.stores:
        reasons += table_reasons(store, store.tables, create_missing=True)
    return worst(reasons)


def word(code: ExitCode) -> str:
    """`clear`, `refused` or `unmeasurable`."""
    return WORDS[code]

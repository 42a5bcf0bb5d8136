"""A measurement with its verdict and what to do next: the JSON contract `nl-cutover/measure/1`."""

from __future__ import annotations

import msgspec

from ..contract.rows import ACTIONS, ARCHIVES
from ..verdicts import ExitCode, Zero
from .report import CheckoutReport, Control, Report, StoreReport
from .verdict import checkout_reasons, table_reasons, verdict_of, word

SCHEMA = "nl-cutover/measure/1"


class Totals(msgspec.Struct, frozen=True):
    """Rows over measured tables only, always beside the number of places that could not be measured."""

    archives: int
    actions: int
    unaccounted: int
    unmeasurable: int


class MeasureReport(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = SCHEMA
    verdict: str
    exit_code: int
    at: str
    host: str
    checkouts: tuple[CheckoutReport, ...]
    stores: tuple[StoreReport, ...]
    totals: Totals
    control: Control
    sqlite_version: str
    warnings: tuple[str, ...]
    containers: str
    next_steps: list[str]
    receipt: str | None = None


def summarize(report: Report, *, host: str, allow_absent: bool = False) -> MeasureReport:
    """The report, its totals, its verdict, its next steps. Pure."""
    code = verdict_of(report, allow_absent=allow_absent)
    tables = [table for store in report.stores for table in store.tables]
    reasons = {t.reason for t in tables if t.state == "unmeasurable"}  # counted once, whoever reaches the store
    totals = Totals(
        archives=sum(t.rows or 0 for t in tables if t.name == ARCHIVES),
        actions=sum(t.rows or 0 for t in tables if t.name == ACTIONS),
        unaccounted=sum(t.unaccounted or 0 for t in tables),
        unmeasurable=sum(t.state == "unmeasurable" for t in tables)
        + sum(c.state == "unmeasurable" and c.reason not in reasons for c in report.checkouts),
    )
    return MeasureReport(
        verdict=word(code),
        exit_code=int(code),
        at=report.at,
        host=host,
        checkouts=report.checkouts,
        stores=report.stores,
        totals=totals,
        control=report.control,
        sqlite_version=report.sqlite_version,
        warnings=report.warnings,
        containers=report.containers,
        next_steps=_next_steps(report, code, totals, allow_absent=allow_absent),
    )


def _next_steps(report: Report, code: ExitCode, totals: Totals, *, allow_absent: bool) -> list[str]:
    steps: list[str] = []
    if not report.control.ok:
        steps.append(f"nothing here may be believed: the planted control failed ({report.control.reason})")
    hints = [c.hint for c in report.checkouts if c.state == "unmeasurable" and c.hint]
    hints += [t.hint for s in report.stores for t in s.tables if t.state == "unmeasurable" and t.hint]
    steps += list(dict.fromkeys(hints))[:5]
    latent = checkout_reasons(report, allow_absent=allow_absent)
    for store in report.stores:
        latent += table_reasons(store, store.tables, create_missing=False, accounted=False)
    steps += [sentence for reason, sentence in latent if reason is ExitCode.REFUSED][:5]
    if totals.unaccounted:
        steps.append("see what would move, and what is lost: nl-cutover plan CHECKOUT...")
        steps.append("move it: nl-cutover migrate CHECKOUT... --telemetry admit")
    if code is ExitCode.PROVED:
        if any(t.zero is Zero.LIVE for s in report.stores for t in s.tables):
            steps.append("a live zero holds for this moment only; the next writer ends it")
        if report.stores and all(s.seal.complete for s in report.stores):
            steps.append("every store is sealed: no row can be added to it; deleting it is a person's work")
        else:
            absent = any(t.state == "absent" for s in report.stores for t in s.tables)
            missing = "--create-missing " if absent else ""
            steps.append(f"land it, sealed: nl-cutover cut CHECKOUT... {missing}-- COMMAND")
    return steps

"""Each report as a document. Nothing is computed here: a view only chooses what is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from .. import __version__
from ..verdicts import ExitCode
from ..wording import counted
from .documents import Document, Table, shorten

if TYPE_CHECKING:
    from ..cut.report import CutReport, StoreCut
    from ..cut.sealing import SealReport
    from ..migration.plan import Loss, Plan
    from ..migration.report import RunReport, SettleReport
    from ..migration.verify import VerifyReport
    from ..stores.sealing import SealState
    from ..stores.summary import MeasureReport

_SHOWN = 20  # rows of a list; --format json has them all


class _Ends(Protocol):
    @property
    def verdict(self) -> str: ...
    @property
    def exit_code(self) -> int: ...


def document(
    title: str,
    report: _Ends,
    facts: Sequence[tuple[str, str]],
    tables: Sequence[Table] = (),
    notes: Sequence[str] = (),
    next_steps: Sequence[str] = (),
) -> Document:
    """The document of a report."""
    return ending(title, report.verdict, ExitCode(report.exit_code), facts, tables, notes, next_steps)


def ending(
    title: str,
    verdict: str,
    code: ExitCode,
    facts: Sequence[tuple[str, str]],
    tables: Sequence[Table] = (),
    notes: Sequence[str] = (),
    next_steps: Sequence[str] = (),
) -> Document:
    """What every document has: its verdict, its code, the tool."""
    return Document(
        title=f"nl-cutover {title}",
        verdict=verdict,
        exit_code=int(code),
        meaning=code.meaning,
        facts=[*facts, ("tool", f"nl-cutover {__version__}")],
        tables=[table for table in tables if table.rows],
        notes=list(notes),
        next_steps=list(next_steps),
    )


def measure_document(report: MeasureReport) -> Document:
    """Checkouts, stores and both tables of each; a dash where there is no number."""
    checkouts = [[c.seat, c.state, c.store or "-", c.path, c.reason] for c in report.checkouts]
    tables = [
        [
            t.name,
            store.id,
            t.state,
            _count(t.rows),
            t.zero or "-",
            _count(t.unaccounted),
            t.reason or "",
        ]
        for store in report.stores
        for t in store.tables
    ]
    stores = [
        [
            s.id,
            ", ".join(s.seats),
            shorten(s.path, 60),
            s.open_mode or "-",
            s.journal_mode or "-",
            str(s.wal_bytes),
            _seal(s.seal),
            s.holders.sentence(),
        ]
        for s in report.stores
    ]
    totals = report.totals
    zeros = [f"{t.name} in {s.id} is a {t.zero} zero" for s in report.stores for t in s.tables if t.zero]
    facts = [
        ("host", report.host),
        ("at", report.at),
        ("checkouts", str(len(report.checkouts))),
        ("stores", str(len(report.stores))),
        (
            "measured rows",
            f"{counted(totals.archives, 'archive|s')}, {counted(totals.actions, 'action|s')}",
        ),
        ("unaccounted", str(totals.unaccounted)),
        ("unmeasurable", str(totals.unmeasurable)),
        *([("zeros", "; ".join(zeros))] if zeros else []),
        ("containers", report.containers),
        ("control", "planted rows came back" if report.control.ok else report.control.reason),
        *([("receipt", report.receipt)] if report.receipt else []),
    ]
    return document(
        "measure",
        report,
        facts,
        [
            Table("tables", ["table", "store", "state", "rows", "zero", "unaccounted", "reason"], tables),
            Table(
                "stores", ["store", "reached by", "path", "opened", "journal", "wal bytes", "sealed", "held by"], stores
            ),
            Table("checkouts", ["seat", "state", "store", "path", "reason"], checkouts),
        ],
        [
            *report.warnings,
            *(f"{s.id}: {warning}" for s in report.stores for warning in s.warnings),
            *(f"{s.id}, {t.name}: {warning}" for s in report.stores for t in s.tables for warning in t.warnings),
        ],
        report.next_steps,
    )


def _seal(seal: SealState) -> str:
    stands = "both tables" if seal.complete else ", ".join(seal.sealed) or "-"
    return f"{stands}, cut of {seal.by}" if seal.by else stands


def _losses(losses: Sequence[Loss]) -> Table:
    return Table("losses", ["what", "count", "in words"], [[x.kind, str(x.count), x.sentence] for x in losses])


def plan_document(plan: Plan) -> Document:
    facts = [
        ("digest", plan.digest),
        ("owner", f"{plan.owner or '-'}{' (one owner for all, stated)' if plan.owner_stated else ''}"),
        ("identities", ", ".join(f"{slot} ({n})" for slot, n in plan.identities.items()) or "the default token"),
        ("archives", f"{plan.archives_to_send} of {plan.archives} to send, {plan.duplicates} twice on the host"),
        ("replays", f"{plan.marks} carried as {plan.replays}"),
        ("telemetry", f"{plan.telemetry}: {plan.actions_to_send} of {counted(plan.actions, 'action|s')} to send"),
        *([("receipt", plan.receipt)] if plan.receipt else []),
    ]
    refused = [[row.key, row.table, row.store, row.reason] for row in plan.refused[:_SHOWN]]
    choices = [
        [c.key, f"{c.store} ({c.content[:12]})", ", ".join(f"{x.store} ({x.content[:12]})" for x in c.left)]
        for c in plan.choices[:_SHOWN]
    ]
    more = [counted(len(plan.refused) - _SHOWN, "more refused row|s")] if len(plan.refused) > _SHOWN else []
    steps = (
        ["mend what blocks the plan, then make it anew"]
        if plan.blockers
        else [
            "write it down with --out plan.json",
            "run exactly it: nl-cutover migrate CHECKOUT... --plan plan.json",
        ]
    )
    return document(
        "plan",
        plan,
        facts,
        [
            _losses(plan.losses),
            Table("chosen", ["archive", "sent from", "not chosen"], choices),
            Table("refused", ["key", "table", "store", "reason"], refused),
        ],
        [*(f"blocked: {reason}" for reason in plan.blockers), *plan.notes, *more],
        steps,
    )


def run_document(report: RunReport) -> Document:
    a, m, t = report.archives, report.marks, report.telemetry
    facts = [
        ("run", report.run),
        ("at", report.at),
        ("plane", f"{report.plane or '-'} at {report.url}"),
        *_line(report),
        ("owner", report.owner or "-"),
        ("custodian (MC says)", ", ".join(report.custodians) or "-"),
        (
            "archives",
            f"{a.confirmed} of {a.rows} confirmed, {a.refused} refused, {a.unknown} unknown, {a.pending} pending, "
            f"{a.differs} different, {a.excluded} excluded",
        ),
        ("marks", f"{m.made} of {m.wanted} made, {counted(m.unknown, 'archive|s')} unknown"),
        (
            "telemetry",
            f"{t.admitted} of {t.rows} admitted, {t.refused} refused, {t.left} left, {t.discarded} discarded, "
            f"{t.unknown} unknown, {t.pending} pending, {t.excluded} excluded",
        ),
        *([] if report.sent is None else [("sent now", counted(report.sent, "writing call|s"))]),
        *([("not proved", "; ".join(report.not_proved))] if report.not_proved else []),
        ("receipt", report.receipt or "-"),
    ]
    odd = [[o.key, o.kind, o.state, o.reason] for o in report.odd[:_SHOWN]]
    notes = [report.stopped] if report.stopped else []
    if report.custodians and report.custodians != [report.owner]:
        notes.append(f"the token's identity owns the archives: {', '.join(report.custodians)}, not {report.owner}")
    notes += [counted(len(report.odd) - _SHOWN, "more such row|s")] if len(report.odd) > _SHOWN else []
    return document(
        "run",
        report,
        facts,
        [_losses(report.losses), Table("not where they belong", ["key", "what", "state", "reason"], odd)],
        notes,
        report.next_steps,
    )


def settle_document(report: SettleReport) -> Document:
    facts = [("run", report.run), ("at", report.at), ("left", str(report.left)), ("receipt", report.receipt or "-")]
    rows = [[d.key, d.what, d.decision, d.by, d.detail] for d in report.decisions[:_SHOWN]]
    decisions = Table("decisions", ["row", "what", "decision", "by", "detail"], rows)
    return document("settle", report, facts, [decisions], (), report.next_steps)


def _line(report: RunReport | VerifyReport) -> list[tuple[str, str]]:
    """How the ingress was reached, where that is out of the ordinary."""
    proxy = [("through the proxy", report.proxy)] if report.proxy else []
    return [*proxy, *([("waited", f"{report.waited_s:g} s for a busy server")] if report.waited_s else [])]


def verify_document(report: VerifyReport) -> Document:
    facts = [
        ("run", report.run),
        ("at", report.at),
        ("archives", f"{report.expected} expected, {report.checked} checked, {report.equal} equal"),
        ("equal to the byte", str(report.bytes_equal)),
        ("missing", f"{report.missing}, and {report.excluded} excluded by the operator"),
        *_line(report),
        ("not seen", "telemetry, other identities, rows that came after the snapshot"),
        ("receipt", report.receipt or "-"),
    ]
    rows = [[d.old, d.new or "-", d.what] for d in report.differences[:_SHOWN]]
    differences = Table("differences", ["old id", "new id", "what"], rows)
    return document("verify", report, facts, [differences], (), report.next_steps)


def cut_document(report: CutReport) -> Document:
    facts = [
        ("at", report.at),
        ("host", report.host),
        ("command", report.command.words if report.command else "-"),
        ("command exit", "-" if report.command is None else str(report.command.exit_code)),
        ("receipt", report.receipt or "-"),
    ]
    return document("cut", report, facts, [_sealed(report.stores)], report.reasons, report.next_steps)


def seal_document(report: SealReport) -> Document:
    facts = [("at", report.at), ("host", report.host)]
    return document(
        "seal" if report.verdict == "sealed" else "unseal",
        report,
        facts,
        [_sealed(report.stores)],
        (),
        report.next_steps,
    )


def _sealed(stores: Sequence[StoreCut]) -> Table:
    rows = [
        [s.id, shorten(s.path, 60), _count(s.archives), _count(s.actions), _count(s.unaccounted), s.seal]
        for s in stores
    ]
    return Table("stores", ["store", "path", "archives", "actions", "unaccounted", "seal"], rows)


def _count(rows: int | None) -> str:
    return "-" if rows is None else str(rows)

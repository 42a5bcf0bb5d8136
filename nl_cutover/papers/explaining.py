"""Why a run stands where it stands, in one sentence, with the next command."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

import msgspec

from ..custody.reading import Odd
from ..migration.report import RunReport
from ..verdicts import ExitCode
from ..wording import counted, fitted
from .kinds import CutReceipt, Kinds, LandingReceipt, MeasureReceipt, PlanReceipt, SettleReceipt, VerifyReceipt

_AGAIN = "nl-cutover migrate CHECKOUT..., as it was given before: it sends nothing twice"
_MEASURE = "nl-cutover measure CHECKOUT..."


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`nl-cutover/explain/1`. `verdict`: landed | ready | blocked. `next_steps` begins with the command to give now."""

    schema: str = "nl-cutover/explain/1"
    run: str
    verdict: str
    exit_code: int
    at: str
    why: str
    next_steps: list[str]


def explain(report: RunReport, chain: Sequence[Kinds]) -> Explanation:
    """One sentence about a run, from its ledger and its receipts, oldest first. Pure."""
    newest = deciding(chain)
    code, why, step = _reason(report, newest)
    verdict = (
        "landed" if landed(newest) and code == ExitCode.PROVED else "ready" if code == ExitCode.PROVED else "blocked"
    )
    return Explanation(
        run=report.run, verdict=verdict, exit_code=int(code), at=report.at, why=why, next_steps=[step] if step else []
    )


def deciding(chain: Sequence[Kinds]) -> Kinds | None:
    """The receipt that says where the run stands: plans and settlings prove nothing, and after a landing only a
    measurement or verification that is not clear says more than the landing did."""
    telling = [r for r in chain if not isinstance(r, PlanReceipt | SettleReceipt)]
    newest = telling[-1] if telling else None
    standing = next((r for r in reversed(telling) if not isinstance(r, MeasureReceipt | VerifyReceipt)), None)
    if isinstance(standing, LandingReceipt) or (landed(standing) and not _blocks(newest)):
        return standing
    return newest


def landed(receipt: Kinds | None) -> bool:
    command = receipt.outcome.command if isinstance(receipt, CutReceipt) else None
    return command is not None and command.exit_code == 0


def _blocks(receipt: Kinds | None) -> bool:
    return isinstance(receipt, MeasureReceipt | VerifyReceipt) and receipt.outcome.exit_code != ExitCode.PROVED


def _reason(report: RunReport, newest: Kinds | None) -> tuple[ExitCode, str, str]:
    if isinstance(newest, LandingReceipt):
        return (
            ExitCode.PARTIAL,
            f"the landing command began at {newest.at} and nobody wrote down how it ended: it may have landed",
            f"look at what it does, then: {_MEASURE}",
        )
    if isinstance(newest, CutReceipt) and landed(newest):
        return _after_landing(newest)
    code = ExitCode(report.exit_code)
    if code != ExitCode.PROVED:
        return code, *_unfinished(report)
    if isinstance(newest, CutReceipt):
        why = next(iter(newest.outcome.reasons), "it did not say why")
        own = newest.outcome.exit_code
        if "not accounted for" in why:
            return own, f"rows came to the host after they were brought over: {why}", _AGAIN
        return (
            own,
            f"the cut of {newest.at} did not land: {why}",
            "mend that, then: nl-cutover cut CHECKOUT... -- COMMAND",
        )
    if isinstance(newest, VerifyReceipt) and newest.outcome.exit_code != ExitCode.PROVED:
        return newest.outcome.exit_code, *_unverified(newest)
    if isinstance(newest, MeasureReceipt) and newest.outcome.exit_code != ExitCode.PROVED:
        own, open_rows = newest.outcome.exit_code, newest.outcome.totals.unaccounted
        if own == ExitCode.REFUSED and open_rows:
            return (
                own,
                counted(open_rows, "row|s on the host came after this run and nobody has carried it|them"),
                _AGAIN,
            )
        return own, "the host could not be measured, so nobody knows whether rows are left there", _MEASURE
    why = "nothing blocks it: every row that this run knows is where it belongs"
    if isinstance(newest, VerifyReceipt):
        return ExitCode.PROVED, f"{why}, and all was read back at {newest.at}", "nl-cutover cut CHECKOUT... -- COMMAND"
    return ExitCode.PROVED, why, "nl-cutover verify CHECKOUT..."


def _after_landing(cut: CutReceipt) -> tuple[ExitCode, str, str]:
    code = cut.outcome.exit_code
    if code == ExitCode.PROVED:
        return code, f"it landed at {cut.at}: every row is accounted for and every store is sealed", "nl-cutover report"
    why = next(iter(cut.outcome.reasons), "it did not say why")
    return code, f"it landed at {cut.at}, but that nothing slipped in is not proved: {why}", _MEASURE


def _unfinished(report: RunReport) -> tuple[str, str]:
    """The first thing that keeps a run from being proved; what nobody knows comes before what is merely not done."""
    a, m, t = report.archives, report.marks, report.telemetry
    if a.differs:
        row = _first(report, "differs")
        return (
            f"Memory Core gives back {a.differs} of {counted(a.rows, 'archive|s')} otherwise than sent"
            + (f", {row.key} among them ({row.reason})" if row else ""),
            f"compare both copies of each under {report.custody}/evidence; do not land",
        )
    if a.unknown or t.unknown or m.unknown:
        what = [(a.unknown, "archive|s"), (t.unknown, "action|s"), (m.unknown, "replay mark|s")]
        named = " and ".join(counted(count, name) for count, name in what if count)
        were, them = fitted(a.unknown + t.unknown + m.unknown, "was|were it|them").split()
        return (
            f"{named} {were} sent, no answer came, and nobody knows whether Memory Core has {them}",
            "nl-cutover settle --graph FILE, where FILE is Memory Core's graph or a consistent copy",
        )
    if a.pending or t.pending or m.made < m.wanted:
        rest = a.pending + t.pending
        left = counted(m.wanted - m.made, "replay mark|s has|have")
        if rest:
            left = f"{counted(rest, 'row|s')} of {a.rows + t.rows} {fitted(rest, 'has|have')}"
        return f"the run ended early: {left} not been brought over yet", _AGAIN
    if a.refused or t.refused:
        row = _first(report, "refused")
        more = f", {row.key} among them ({row.reason})" if row else ""
        kind = "batch:" if row and row.kind == "batch" else ""
        word = quote(f"{kind}{row.key}=exclude") if row else "ID=exclude"
        step = f"mend it, or leave it on the host for good: nl-cutover settle --row {word}"
        return f"{counted(a.refused + t.refused, 'row|s')} cannot be brought over{more}", step
    if t.left:
        return (
            counted(
                t.left, "row|s of telemetry is|are still on the host and nobody has decided what becomes of it|them"
            ),
            f"nl-cutover migrate CHECKOUT... --telemetry admit, or --telemetry discard={t.left}",
        )
    return report.stopped or "the run did not end well", _AGAIN


def _unverified(verify: VerifyReceipt) -> tuple[str, str]:
    o = verify.outcome
    if o.missing and o.checked == o.equal:
        return (
            f"{counted(o.missing, 'archive|s')} on the host came after this run, or changed since, and "
            f"{fitted(o.missing, 'is|are')} not in Memory Core",
            _AGAIN,
        )
    first = o.differences[0]
    return (
        f"{o.expected - o.equal} of {counted(o.expected, 'archive|s')} did not read back equal, {first.old} "
        f"among them: {first.what}",
        "nl-cutover verify CHECKOUT...; do not land before it says proved",
    )


def _first(report: RunReport, state: str) -> Odd | None:
    return next((row for row in report.odd if row.state == state), None)

"""What a run came to: counts, verdict and exit code, as a pure function of the ledger."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..custody.reading import Counts, LedgerReader, Odd
from ..errors import CutoverError
from ..verdicts import ExitCode
from ..wording import counted
from .plan import Loss
from .settle import Decision
from .words import verdict_word

SCHEMA = "nl-cutover/run/1"


class Archives(msgspec.Struct, frozen=True):
    """All but `rows` are disjoint and, with the others, add up to `rows`."""

    rows: int
    confirmed: int
    refused: int
    unknown: int
    pending: int
    differs: int = 0
    excluded: int = 0


class Marks(msgspec.Struct, frozen=True):
    wanted: int
    made: int
    unknown: int = 0


class TelemetryCounts(msgspec.Struct, frozen=True):
    rows: int
    admitted: int
    refused: int
    left: int
    discarded: int
    unknown: int
    pending: int = 0
    excluded: int = 0


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """`nl-cutover/run/1`. `stopped` says why a run ended early; `odd` lists the rows that are not where they belong."""

    schema: str = SCHEMA
    run: str
    verdict: str
    exit_code: int
    at: str  # UTC, ISO 8601
    archives: Archives
    marks: Marks
    telemetry: TelemetryCounts
    losses: list[Loss]
    receipt: str | None
    next_steps: list[str]
    custody: str
    url: str
    plane: str | None = None
    owner: str | None = None
    custodians: list[str] = []
    plan_digest: str | None = None
    sent: int | None = None  # writing calls of this very command
    waited_s: float = 0.0  # seconds that this command waited for a busy server, summed over its workers
    proxy: str | None = None
    stopped: str | None = None
    odd: list[Odd] = []
    not_proved: list[str] = []  # what this run could not prove, and why


class SettleReport(msgspec.Struct, frozen=True, kw_only=True):
    """`nl-cutover/settle/1`. `left` counts the rows whose outcome is still unknown."""

    schema: str = "nl-cutover/settle/1"
    run: str
    verdict: str
    exit_code: int
    at: str
    decisions: list[Decision]
    left: int
    next_steps: list[str]
    receipt: str | None = None


def settle_report(run: str, where: RunReport, decisions: list[Decision]) -> SettleReport:
    """What a settling came to: PROVED when no outcome is unknown any more."""
    left = where.archives.unknown + where.telemetry.unknown + where.marks.unknown
    code = ExitCode.PARTIAL if left else ExitCode.DIFFERENCE if where.archives.differs else ExitCode.PROVED
    steps = [counted(left, "outcome|s is|are still unknown: `nl-cutover status` lists it|them")] if left else []
    steps.append("carry on: give the `nl-cutover migrate` command again")
    return SettleReport(
        run=run,
        verdict="settled" if code is ExitCode.PROVED else verdict_word(code),
        exit_code=int(code),
        at=where.at,
        decisions=decisions,
        left=left,
        next_steps=steps,
    )


def summarize(counts: Counts) -> tuple[Archives, Marks, TelemetryCounts]:
    """The counts of the report from the states of the ledger."""
    a, t = counts.archives, counts.actions
    archives = Archives(
        rows=sum(a.values()),
        confirmed=a.get("confirmed", 0),
        refused=a.get("refused", 0),
        unknown=a.get("unknown", 0) + a.get("intended", 0),
        pending=a.get("pending", 0) + a.get("delivered", 0),
        differs=a.get("differs", 0),
        excluded=a.get("excluded", 0),
    )
    telemetry = TelemetryCounts(
        rows=sum(t.values()),
        admitted=t.get("admitted", 0),
        refused=t.get("refused", 0),
        left=t.get("left", 0),
        discarded=t.get("discarded", 0),
        unknown=t.get("unknown", 0) + t.get("intended", 0),
        pending=t.get("pending", 0),
        excluded=t.get("excluded", 0),
    )
    return archives, Marks(counts.marks_wanted, counts.marks_made, counts.marks_unknown), telemetry


def exit_code(archives: Archives, marks: Marks, telemetry: TelemetryCounts, stopped: CutoverError | None) -> ExitCode:
    """The one place that turns a run's counts into its exit code."""
    own = (ExitCode.INTERRUPTED, ExitCode.CREDENTIALS, ExitCode.DIFFERENCE, ExitCode.FAULT)
    if stopped is not None and stopped.exit_code in own:
        return stopped.exit_code
    if archives.differs:
        return ExitCode.DIFFERENCE
    open_rows = archives.refused + archives.unknown + archives.pending
    open_rows += telemetry.refused + telemetry.unknown + telemetry.pending
    if open_rows or marks.made < marks.wanted or marks.unknown or stopped is not None:
        return ExitCode.PARTIAL
    return ExitCode.REFUSED if telemetry.left else ExitCode.PROVED


def next_steps(code: ExitCode, archives: Archives, marks: Marks, telemetry: TelemetryCounts) -> list[str]:
    """What to do now, in order; each line is a command or a sentence with one."""
    steps = []
    if archives.unknown or telemetry.unknown or marks.unknown:
        steps.append(
            "an unknown outcome is not sent again by guess; decide it: nl-cutover settle --graph FILE, "
            "where FILE is Memory Core's graph or a consistent copy, or by your word with --row"
        )
    if code is ExitCode.INTERRUPTED or archives.pending or telemetry.pending or marks.made < marks.wanted:
        steps.append("give the same `nl-cutover migrate` command again: it resumes and sends nothing twice")
    if archives.refused or telemetry.refused:
        steps.append(
            "refused rows stay on the host and keep the cut refused; to accept that for one of them: "
            "nl-cutover settle --row ID=exclude"
        )
    if archives.differs:
        steps.append("both copies of each different archive are kept under evidence/ in the custody directory")
    if telemetry.left:
        steps.append(f"decide the telemetry: --telemetry admit, or --telemetry discard={telemetry.left}")
    if code is ExitCode.PROVED:
        steps.append(
            "read it all back: nl-cutover verify CHECKOUT...; then land it: nl-cutover cut CHECKOUT... -- COMMAND"
        )
    return steps


def report_from_ledger(
    directory: Path,
    *,
    at: str,
    losses: list[Loss],
    receipt: str | None = None,
    stopped: CutoverError | None = None,
    sent: int | None = None,
) -> RunReport:
    """Read the ledger of a custody directory and say where its run stands. Raises CustodyError."""
    with LedgerReader(directory) as reader:
        run = reader.run() or {}
        archives, marks, telemetry = summarize(reader.counts())
        odd = reader.odd()
        custodians = reader.custodians()
    code = exit_code(archives, marks, telemetry, stopped)
    return RunReport(
        run=run.get("id", ""),
        verdict=verdict_word(code),
        exit_code=int(code),
        at=at,
        archives=archives,
        marks=marks,
        telemetry=telemetry,
        losses=losses,
        receipt=receipt,
        next_steps=[
            *([stopped.hint] if stopped is not None and stopped.hint else []),
            *next_steps(code, archives, marks, telemetry),
        ],
        custody=str(directory),
        url=run.get("url", ""),
        plane=run.get("plane_id"),
        owner=run.get("owner"),
        custodians=custodians,
        plan_digest=run.get("plan_digest"),
        sent=sent,
        stopped=None if stopped is None else stopped.message,
        odd=odd,
    )

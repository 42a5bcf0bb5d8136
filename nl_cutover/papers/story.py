"""A run as one report, from its receipts alone: what was there, what became of it, what was lost, when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ..custody.reading import Mapped, Odd
from ..ingress.preflight import Plane
from ..migration.plan import Loss
from ..migration.verify import Difference
from ..verdicts import ExitCode
from ..wording import counted
from .explaining import deciding
from .kinds import (
    CutReceipt,
    Kinds,
    LandingReceipt,
    MeasuredFacts,
    MeasureReceipt,
    MigrateOutcome,
    MigrateReceipt,
    PlanReceipt,
    Settled,
    SettleReceipt,
    VerifyReceipt,
)
from .verifying import Read, kind_of

SCHEMA = "nl-cutover/report/1"

Kind = TypeVar("Kind", bound=Kinds)


class Event(msgspec.Struct, frozen=True):
    """One receipt, told in a sentence. `exit_code` is None for a landing that begins."""

    number: int
    at: str
    kind: str
    verdict: str
    exit_code: int | None
    sentence: str
    sha256: str


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """`nl-cutover/report/1`. `verdict` and `exit_code` are those of the receipt that says where the run stands; what no
    receipt says is None or empty. `notes` are what the plan said beforehand, and what could not be proved."""

    schema: str = SCHEMA
    run: str | None
    verdict: str
    exit_code: int
    at: str
    host: str
    tool: str
    measured: MeasuredFacts
    plane: Plane | None
    moved: MigrateOutcome | None
    losses: list[Loss]
    notes: list[str]
    odd: list[Odd]
    settled: list[Settled]
    differences: list[Difference]
    id_map: list[Mapped]
    timeline: list[Event]


def tell(chain: Sequence[Read]) -> Story:
    """The story of one chain, oldest receipt first; there is at least one."""
    receipts = [one.receipt for one in chain]
    last = receipts[-1]
    migrated = _newest(receipts, MigrateReceipt)
    verified = _newest(receipts, VerifyReceipt)
    measured = next((r.measured for r in reversed(receipts) if not isinstance(r, SettleReceipt | LandingReceipt)), None)
    settled = next((r.settled for r in reversed(receipts) if isinstance(r, MigrateReceipt | SettleReceipt)), [])
    events = [_event(one) for one in chain]
    decides = deciding(receipts)
    stands = events[receipts.index(decides or last)]
    code = None if decides is None else stands.exit_code
    return Story(
        run=last.run,
        verdict=stands.verdict,
        exit_code=int(ExitCode.PARTIAL) if code is None else code,
        at=last.at,
        host=last.tool.host,
        tool=f"{last.tool.name} {last.tool.version}",
        measured=measured or MeasuredFacts([], []),
        plane=migrated.plane if migrated else None,
        moved=migrated.outcome if migrated else None,
        losses=migrated.losses if migrated else [],
        notes=[*migrated.plan.notes, *(f"not proved: {x}" for x in migrated.container.not_proved)] if migrated else [],
        odd=migrated.odd if migrated else [],
        settled=settled,
        differences=verified.outcome.differences if verified else [],
        id_map=migrated.id_map if migrated else [],
        timeline=events,
    )


def loss_in_words(loss: Loss) -> str:
    """The loss as a sentence with its count; what the sentence does not name are archives."""
    of_archives = loss.sentence.startswith(("get ", "gets ", "lose ", "loses ", "will "))
    return f"{counted(loss.count, 'archive|s ' if of_archives else '')}{loss.sentence}"


def _both(archives: int, actions: int) -> str:
    return f"{counted(archives, 'archive|s')} and {counted(actions, 'action|s')}"


def _newest(receipts: Sequence[Kinds], kind: type[Kind]) -> Kind | None:
    return next((r for r in reversed(receipts) if isinstance(r, kind)), None)


def _event(one: Read) -> Event:
    receipt = one.receipt
    if isinstance(receipt, LandingReceipt):
        verdict, code = "landing", None
    else:
        verdict, code = receipt.outcome.verdict, int(receipt.outcome.exit_code)
    return Event(receipt.number, receipt.at, kind_of(receipt), verdict, code, _sentence(receipt), one.sha256)


def _sentence(receipt: Kinds) -> str:
    match receipt:
        case MeasureReceipt(outcome=o):
            t = o.totals
            return f"{_both(t.archives, t.actions)} counted, {t.unaccounted} not accounted for"
        case PlanReceipt(plan=p):
            return f"{_both(p.archives_to_send, p.actions_to_send)} would move, {counted(len(p.refused), 'row|s')} would not"
        case MigrateReceipt(outcome=o):
            sent = f"{o.archives.confirmed} of {counted(o.archives.rows, 'archive|s')} confirmed, {o.telemetry.admitted} of "
            return f"{sent}{counted(o.telemetry.rows, 'action|s')} admitted{f'; {o.stopped}' if o.stopped else ''}"
        case SettleReceipt(outcome=o):
            return f"{counted(len(receipt.settled), 'outcome|s')} decided so far, {o.left} still unknown"
        case VerifyReceipt(outcome=o):
            return (
                f"{o.equal} of {counted(o.expected, 'archive|s')} read back equal, {o.bytes_equal} of them to the byte"
            )
        case LandingReceipt():
            return "the stores are sealed and the landing command begins"
        case CutReceipt(outcome=o):
            ran = "no command ran" if o.command is None else f"{o.command.words}: exit {o.command.exit_code}"
            return "; ".join([ran, *o.reasons])

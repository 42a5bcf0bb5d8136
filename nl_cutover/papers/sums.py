"""What a receipt says twice must agree: counts with their total, the id map with the counts, the verdict with both."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeVar, assert_never

from ..migration.plan import digest_of
from ..verdicts import ExitCode
from ..wording import counted, fitted
from .kinds import (
    CutReceipt,
    Kinds,
    LandingReceipt,
    MeasuredFacts,
    MeasureReceipt,
    MigrateReceipt,
    PlanReceipt,
    SettleReceipt,
    VerifyReceipt,
)

Name = TypeVar("Name")
Claim = tuple[bool, str]  # whether it holds, and what is wrong otherwise


def contradictions(receipt: Kinds) -> list[str]:
    """What is wrong inside one receipt, in words; empty when everything in it agrees."""
    match receipt:
        case MeasureReceipt():
            claims = _measure(receipt)
        case PlanReceipt():
            claims = _plan(receipt)
        case MigrateReceipt():
            claims = _migrate(receipt)
        case SettleReceipt():
            claims = _proved(receipt.outcome.exit_code, (("left", receipt.outcome.left),))
        case VerifyReceipt():
            claims = _verify(receipt)
        case LandingReceipt():
            claims = iter(())
        case CutReceipt():
            claims = _cut(receipt)
        case _:
            assert_never(receipt)
    return [wrong for holds, wrong in claims if not holds]


def _proved(code: ExitCode, amiss: Iterable[tuple[str, int]]) -> Iterator[Claim]:
    """Exit 0 is refuted by each count that should be 0."""
    for name, count in amiss:
        yield code != ExitCode.PROVED or count == 0, f"it says proved, and counts {counted(count, name)}"


def _measure(receipt: MeasureReceipt) -> Iterator[Claim]:
    totals, measured = receipt.outcome.totals, receipt.measured
    tables = [table for store in measured.stores for table in store.tables]
    for name, total, counts in (
        ("rows", totals.archives + totals.actions, [t.rows for t in tables]),
        ("unaccounted", totals.unaccounted, [t.unaccounted for t in tables]),
    ):
        found = sum(count or 0 for count in counts)
        yield found == total, f"its tables hold {found} {name}, its totals say {total}"
    states = [*(table.state for table in tables), *(checkout.state for checkout in measured.checkouts)]
    amiss = [
        ("unaccounted row|s", totals.unaccounted),
        ("place|s that could not be read", states.count("unmeasurable")),
    ]
    yield from _proved(receipt.outcome.exit_code, [*amiss, ("failed control|s", int(not receipt.outcome.control))])


def _plan(receipt: PlanReceipt) -> Iterator[Claim]:
    plan = receipt.plan
    yield digest_of(plan) == plan.digest, "the plan is not what its digest says"
    rows = sum(store.archives.rows for store in plan.stores)
    told = plan.archives + plan.duplicates
    yield rows == told, f"its stores hold {counted(rows, 'archive|s')}, the plan speaks of {told}"
    yield from _proved(receipt.outcome.exit_code, [("blocker|s", len(plan.blockers))])


def _migrate(receipt: MigrateReceipt) -> Iterator[Claim]:
    a, t, m = receipt.outcome.archives, receipt.outcome.telemetry, receipt.outcome.marks
    for name, rows, parts in (
        ("archives", a.rows, (a.confirmed, a.refused, a.unknown, a.pending, a.differs, a.excluded)),
        ("telemetry", t.rows, (t.admitted, t.refused, t.left, t.discarded, t.unknown, t.pending, t.excluded)),
    ):
        yield (
            sum(parts) == rows,
            f"{name}: the outcomes add up to {sum(parts)}, there {fitted(rows, 'is|are')} {counted(rows, 'row|s')}",
        )
        yield min(parts) >= 0, f"{name}: a count is negative"
    confirmed = sum(entry.confirmed for entry in receipt.id_map)
    yield (
        confirmed == a.confirmed,
        f"the id map confirms {counted(confirmed, 'archive|s')}, the outcome says {a.confirmed}",
    )
    made = sum(entry.marks_made for entry in receipt.id_map)
    yield made == m.made, f"the id map counts {counted(made, 'mark|s')}, the outcome says {m.made}"
    for new, times in _twice(entry.new for entry in receipt.id_map):
        yield False, f"the id map gives the new id {new} to {times} archives"
    for (old, _), times in _twice((entry.old, entry.content_digest) for entry in receipt.id_map):
        yield False, f"the id map names the archive {old} {times} times"
    if len(receipt.id_map) == a.confirmed == a.rows:
        wanted = sum(entry.marks_wanted for entry in receipt.id_map)
        yield wanted == m.wanted, f"the id map wants {wanted} marks, the outcome says {m.wanted}"
    for store, told, found in _stores_by_rows(receipt):
        yield told == found, f"the rows that the id map has of store {store} are not those that the plan counted"
    stopped = int(receipt.outcome.stopped is not None)
    amiss = [
        ("refused", a.refused + t.refused),
        ("unknown", a.unknown + t.unknown + m.unknown),
        ("pending", a.pending + t.pending),
        ("different", a.differs),
        ("left", t.left),
        ("missing mark|s", m.wanted - m.made),
        ("stop|s", stopped),
    ]
    yield from _proved(receipt.outcome.exit_code, amiss)


def _stores_by_rows(receipt: MigrateReceipt) -> Iterator[tuple[str, str, str]]:
    """(store, its digest in the plan, that of its rows in the id map), where all rows of all stores are in the map:
    nothing refused or excluded, nothing in two stores, and keys whose order does not depend on the store's encoding."""
    rows, stores = receipt.id_map, receipt.plan.stores
    if sum(s.archives.rows for s in stores) != len(rows) or len(rows) != receipt.outcome.archives.rows:
        return
    if any(len(e.stores) != 1 or not e.old.isascii() or e.old.startswith("~") for e in rows):
        return
    for store in stores:
        mine = sorted((e.old, e.digest) for e in rows if e.stores == [store.id])
        yield store.id, store.archives.digest, hashlib.sha256(b"".join(bytes.fromhex(d) for _, d in mine)).hexdigest()


def _verify(receipt: VerifyReceipt) -> Iterator[Claim]:
    o = receipt.outcome
    yield o.equal <= o.checked <= o.expected, f"{o.equal} equal of {o.checked} checked of {o.expected} expected"
    yield o.bytes_equal <= o.equal, f"{o.bytes_equal} equal to the byte, {o.equal} equal"
    named = o.expected - o.equal
    yield (
        named == len(o.differences),
        f"{counted(named, 'archive|s is|are')} not equal, {len(o.differences)} named",
    )
    yield from _proved(o.exit_code, [("difference|s", len(o.differences)), ("missing", o.missing)])


def _cut(receipt: CutReceipt) -> Iterator[Claim]:
    o = receipt.outcome
    command = None if o.command is None else o.command.exit_code
    yield o.exit_code != ExitCode.PROVED or command == 0, f"it says proved, and its command ended with {command}"
    amiss = [("unaccounted row|s", sum(store.unaccounted or 0 for store in o.stores)), ("reason|s", len(o.reasons))]
    unsealed = [store.id for store in o.stores if store.seal not in ("planted", "stood before")]
    yield from _proved(o.exit_code, [*amiss, ("store|s without a seal", len(unsealed))])
    yield o.host == receipt.tool.host, f"it speaks of host {o.host} and was written on {receipt.tool.host}"
    cut, measured = {store.id for store in o.stores}, stores_of(receipt.measured)
    yield o.exit_code != ExitCode.PROVED or cut == measured, "the stores that were cut are not those that were measured"


def stores_of(measured: MeasuredFacts) -> set[str]:
    return {store.id for store in measured.stores}


def _twice(names: Iterable[Name]) -> list[tuple[Name, int]]:
    return [(name, count) for name, count in Counter(names).items() if count > 1]

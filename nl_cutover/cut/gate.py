"""The cut: lock, count, compare, seal, prove the seal, land, count again. Whatever fails undoes everything.

lock       BEGIN IMMEDIATE on every store, in the order of their ids; bounded wait
count      both tables of each store, every row compared with the ledger by key and digest
seal       the triggers, in the very transaction that counted; all stores or none
canary     an insert into each table that must fail
land       the operator's command; another exit code than 0 takes the seals away again
reconcile  a second measurement: every row still accounted for, every table still sealed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import msgspec

from ..contract.rows import ACTIONS, ARCHIVES
from ..errors import CutoverError
from ..stores.report import Report, StoreReport, TableReport
from ..stores.seal import Fence, canary, unseal
from ..stores.sealing import Updates
from ..stores.tables import Accounts
from ..stores.verdict import verdict_of
from ..verdicts import ExitCode
from .report import CommandResult, CutReport, StoreCut


class CutRequest(msgspec.Struct, frozen=True):
    """`create_missing`: make the tables that are absent, so that they can be sealed too."""

    url: str
    host: str
    updates: Updates = Updates.ALLOW
    create_missing: bool = False
    busy_timeout_ms: int = 5_000


class Outcome(msgspec.Struct):
    """What is known so far; becomes the report whatever happens."""

    stores: list[StoreCut] = []
    reasons: list[str] = []
    command: CommandResult | None = None
    code: ExitCode = ExitCode.REFUSED
    seals: str = "none"


def cut(
    report: Report,
    request: CutRequest,
    *,
    accounts: Accounts,
    land: Callable[[], CommandResult],
    remeasure: Callable[[], Report],
    at: Callable[[], str],
    step: Callable[[str], None] = lambda _: None,
) -> CutReport:
    """Run the cut. `step` is told each step before it is taken; it may raise, and everything is undone.

    Raises what it cannot put into words (a fault, Ctrl-C) after undoing everything.
    """
    outcome = Outcome(stores=[], reasons=[])
    sealed: list[StoreReport] = []
    try:
        if _lock_count_seal(report, request, accounts, sealed, outcome, step):
            _prove_land_reconcile(sealed, outcome, land, remeasure, step)
    except CutoverError as error:
        outcome.reasons.append(error.message)
        outcome.code = error.exit_code
    except BaseException:
        _undo(sealed, outcome)
        raise
    if outcome.code is not ExitCode.PROVED:
        _undo(sealed, outcome)
    elif sealed:
        outcome.seals = f"planted in {len(sealed)} stores"
    word = "planted" if outcome.code is ExitCode.PROVED else "left" if outcome.seals.startswith("left") else "removed"
    words = {store.id: word for store in sealed}
    return CutReport(
        verdict="landed" if outcome.code is ExitCode.PROVED else "refused",
        exit_code=int(outcome.code),
        at=at(),
        host=request.host,
        stores=[msgspec.structs.replace(s, seal=words.get(s.id, "none")) for s in outcome.stores],
        command=outcome.command,
        seals=outcome.seals,
        reasons=outcome.reasons,
        next_steps=_next_steps(outcome),
    )


def _lock_count_seal(
    report: Report,
    request: CutRequest,
    accounts: Accounts,
    sealed: list[StoreReport],
    outcome: Outcome,
    step: Callable[[str], None],
) -> bool:
    """Whether every store was counted clear and sealed. Leaving early rolls every store back."""
    with ExitStack() as locks:
        fences: list[tuple[StoreReport, Fence]] = []
        for store in sorted(report.stores, key=lambda s: s.id):
            step(f"lock {store.id}")
            fence = Fence(store.location, store.identity, busy_timeout_ms=request.busy_timeout_ms, url=request.url)
            fences.append((store, locks.enter_context(fence)))
        for store, fence in fences:
            step(f"count {store.id}")
            tables = fence.measure(accounts)
            reasons = _reasons(store, tables, request.create_missing)
            outcome.reasons += reasons
            if any(table.state == "unmeasurable" for table in tables):
                outcome.code = ExitCode.UNMEASURABLE
            outcome.stores.append(_store_cut(store, tables))
        if outcome.reasons:
            return False
        for store, fence in fences:
            step(f"seal {store.id}")
            fence.plant(create_missing=request.create_missing, updates=request.updates)
        for store, fence in fences:
            step(f"commit {store.id}")
            sealed.append(store)  # before the commit: whatever it leaves, the undo will look at this store
            fence.commit()
    return True


def _prove_land_reconcile(
    sealed: Sequence[StoreReport],
    outcome: Outcome,
    land: Callable[[], CommandResult],
    remeasure: Callable[[], Report],
    step: Callable[[str], None],
) -> None:
    for store in sealed:
        step(f"canary {store.id}")
        bird = canary(store.location, store.identity)
        if not bird.proved:
            through = ", ".join(bird.open) or "nothing was refused"
            outcome.reasons.append(f"the seal of store {store.id} leaks: a canary row got through ({through})")
    if outcome.reasons:
        return
    step("land")
    outcome.command = land()
    if outcome.command.exit_code != 0:
        outcome.reasons.append(f"the landing command ended with {outcome.command.exit_code}")
        return
    step("reconcile")
    again = remeasure()
    code = verdict_of(again, allow_absent=True)
    if code is not ExitCode.PROVED:
        outcome.reasons.append("the measurement after the landing is not clear")
        outcome.code = ExitCode.DIFFERENCE
        return
    before = {s.id: (s.archives or 0, s.actions or 0) for s in outcome.stores}
    after = {s.id: (s.table(ARCHIVES).rows or 0, s.table(ACTIONS).rows or 0) for s in again.stores}
    if before != after:
        changed = sorted(i for i in before.keys() | after.keys() if before.get(i) != after.get(i))
        outcome.reasons.append(f"rows or stores changed while the landing ran: {', '.join(changed)}")
        outcome.code = ExitCode.DIFFERENCE
        return
    outcome.code = ExitCode.PROVED


def _reasons(store: StoreReport, tables: Sequence[TableReport], create_missing: bool) -> list[str]:
    reasons = []
    for table in tables:
        if table.state == "unmeasurable":
            reasons.append(f"{table.name} of store {store.id} cannot be read: {table.reason}")
        elif table.state == "absent" and not create_missing:
            reasons.append(
                f"{table.name} is absent from store {store.id}: a recorder would make it on first use; "
                "--create-missing makes and seals it"
            )
        elif table.unaccounted:
            reasons.append(
                f"{table.unaccounted} of {table.rows} rows of {table.name} in store {store.id} are not accounted for"
            )
    return reasons


def _store_cut(store: StoreReport, tables: Sequence[TableReport]) -> StoreCut:
    rows = {table.name: table.rows for table in tables}
    return StoreCut(
        id=store.id,
        path=store.path,
        archives=rows.get(ARCHIVES),
        actions=rows.get(ACTIONS),
        unaccounted=sum(table.unaccounted or 0 for table in tables),
        seal="none",
    )


def _undo(sealed: list[StoreReport], outcome: Outcome) -> None:
    """Take every seal away again. A store whose seal stays is named: it then refuses inserts, which loses nothing."""
    kept = []
    for store in sealed:
        try:
            unseal(store.location, store.identity)
        except CutoverError as error:
            kept.append(store.id)
            outcome.reasons.append(f"the seal of store {store.id} could not be removed: {error.message}")
    outcome.seals = f"left in {', '.join(kept)}" if kept else "removed" if sealed else "none"


def _next_steps(outcome: Outcome) -> list[str]:
    if outcome.code is ExitCode.PROVED:
        return ["the host stores stay as they are, sealed; deleting them is a person's work, and the last"]
    if any("not accounted for" in reason for reason in outcome.reasons):
        return ["bring the rows over: nl-cutover migrate CHECKOUT..., then cut again"]
    return ["mend what is named above, then cut again: nothing was landed, or its seals were taken away"]

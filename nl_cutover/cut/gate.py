"""The cut: lock, count, compare, seal, prove the seal, land, count again.

What fails before the command ended well undoes everything; afterwards the seals stay.

lock       BEGIN IMMEDIATE on every store, in the order of their ids; bounded wait
count      both tables of each store, every row compared with the ledger by key and digest
seal       the triggers, in the very transaction that counted; all stores or none
canary     an insert into each table that must fail
land       the operator's command; another exit code than 0 takes the seals away again
reconcile  a second measurement: every row still accounted for, every table still sealed
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..contract.rows import ACTIONS, ARCHIVES
from ..errors import CutoverError
from ..stores.report import Report
from ..stores.seal import SealState, canary
from ..stores.tables import Accounts
from ..stores.verdict import table_reasons, verdict_of, worst
from ..verdicts import ExitCode
from .command import InterruptedLanding
from .fencing import Counted, Planted, SealRequest, count_and_seal, store_cut, take_away
from .report import CommandResult, CutReport, StoreCut

BRING_OVER = "bring the rows over: nl-cutover migrate CHECKOUT... --telemetry admit, then cut again"


class Outcome(msgspec.Struct):
    """What is known so far; becomes the report whatever happens."""

    stores: list[StoreCut]
    reasons: list[str]
    command: CommandResult | None = None
    code: ExitCode = ExitCode.REFUSED


class Gate:
    """One cut over measured stores. `step` is told each step before it is taken; it may raise, and all is undone."""

    def __init__(
        self,
        report: Report,
        request: SealRequest,
        *,
        accounts: Accounts,
        land: Callable[[], CommandResult],
        remeasure: Callable[[], Report],
        step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._report, self._request, self._accounts = report, request, accounts
        self._land, self._remeasure, self._step = land, remeasure, step
        self._planted: list[Planted] = []
        self._outcome = Outcome([], [])

    def cut(self, *, host: str, at: Callable[[], str]) -> CutReport:
        """Run the cut. Raises what it cannot put into words (a fault, Ctrl-C) after undoing everything."""
        outcome = self._outcome
        try:
            if self._count_and_seal() and self._seals_hold() and self._landed():
                self._reconcile()
        except CutoverError as error:
            outcome.reasons.append(error.message)
            outcome.code = error.exit_code
        except BaseException as error:
            if isinstance(error, InterruptedLanding):
                outcome.command = error.result
            if self._has_landed:
                outcome.reasons.append("interrupted, and the landing command has ended well; nothing was reconciled")
                outcome.code = ExitCode.INTERRUPTED
            elif outcome.command is not None:
                ended = outcome.command.exit_code
                outcome.reasons.append(f"interrupted: the landing command was stopped, and ended with {ended}")
                outcome.code = ExitCode.INTERRUPTED
            else:
                take_away(self._planted)
                raise
        # Once the command has ended well the recorders have moved: taking the seals away would let rows slip in again.
        left = {} if self._has_landed else take_away(self._planted)
        outcome.reasons += left.values()
        return CutReport(
            verdict=self._verdict(),
            exit_code=int(outcome.code),
            at=at(),
            host=host,
            stores=[self._told(store, left) for store in outcome.stores],
            command=outcome.command,
            reasons=outcome.reasons,
            next_steps=_next_steps(outcome, self._has_landed),
        )

    def _told(self, store: StoreCut, left: dict[str, str]) -> StoreCut:
        change = next((planted for planted in self._planted if planted.store.id == store.id), None)
        if change is None:
            return store
        if self._has_landed or store.id in left:
            seal = "planted" if self._has_landed else "left"
            return msgspec.structs.replace(store, seal=seal, sealed_by=change.now.by)
        return store if store.seal == "stood before" else msgspec.structs.replace(store, seal="removed", sealed_by="")

    def _verdict(self) -> str:
        if self._outcome.code is ExitCode.PROVED:
            return "landed"
        return "landed, not proved" if self._has_landed else "refused"

    @property
    def _has_landed(self) -> bool:
        return self._outcome.command is not None and self._outcome.command.exit_code == 0

    def _count_and_seal(self) -> bool:
        return count_and_seal(self._report, self._request, self._accounts, self._may_seal, self._planted, self._step)

    def _may_seal(self, counted: Counted) -> bool:
        outcome = self._outcome
        outcome.stores = [
            store_cut(store, tables, "none" if store.seal == SealState() else "stood before", accounted=True)
            for store, tables in counted
        ]
        reasons = [
            reason
            for store, tables in counted
            for reason in table_reasons(store, tables, create_missing=self._request.create_missing)
        ]
        outcome.reasons += [sentence for _, sentence in reasons]
        outcome.code = max(outcome.code, worst(reasons))
        return not outcome.reasons

    def _seals_hold(self) -> bool:
        for store in self._report.stores:
            self._step(f"canary {store.id}")
            bird = canary(store.location, store.identity)
            if not bird.proved:
                through = ", ".join(bird.open) or "nothing was refused"
                self._outcome.reasons.append(
                    f"the seal of store {store.id} leaks: a canary row got through ({through})"
                )
        return not self._outcome.reasons

    def _landed(self) -> bool:
        self._step("land")
        command = self._outcome.command = self._land()
        if command.exit_code != 0:
            self._outcome.reasons.append(f"the landing command ended with {command.exit_code}")
        return command.exit_code == 0

    def _reconcile(self) -> None:
        self._step("reconcile")
        again = self._remeasure()
        before = {s.id: (s.archives or 0, s.actions or 0) for s in self._outcome.stores}
        after = {s.id: (s.table(ARCHIVES).rows or 0, s.table(ACTIONS).rows or 0) for s in again.stores}
        changed = sorted(i for i in before.keys() | after.keys() if before.get(i) != after.get(i))
        if verdict_of(again, allow_absent=True) is not ExitCode.PROVED:
            self._outcome.reasons.append("the measurement after the landing is not clear")
        elif changed:
            self._outcome.reasons.append(f"rows or stores changed while the landing ran: {', '.join(changed)}")
        elif not all(store.seal.complete for store in again.stores):
            self._outcome.reasons.append("a seal was gone after the landing")
        self._outcome.code = ExitCode.DIFFERENCE if self._outcome.reasons else ExitCode.PROVED


def _next_steps(outcome: Outcome, landed: bool) -> list[str]:
    if outcome.code is ExitCode.PROVED:
        return ["the host stores stay as they are, sealed; deleting them is a person's work, and the last"]
    if any("not accounted for" in reason for reason in outcome.reasons):
        return [BRING_OVER]
    if landed:
        return [
            "the command landed and the stores stay sealed: do not land again; measure, and look at what is named above"
        ]
    if outcome.command is not None:
        return ["the landing command ran: see whether what it did has to be taken back, then cut again"]
    return ["mend what is named above, then cut again: nothing was landed"]

"""All stores or none: lock each, count each inside its lock, and seal them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import msgspec

from ..contract.rows import ACTIONS, ARCHIVES
from ..errors import CutoverError, RefusedError
from ..stores.report import Report, StoreReport, TableReport
from ..stores.seal import Fence, unseal
from ..stores.sealing import SealState, Updates
from ..stores.tables import Accounts
from .report import StoreCut

Counted = list[tuple[StoreReport, tuple[TableReport, ...]]]


class Planted(NamedTuple):
    """A store whose seal was changed: what of one stood `before` (`Fence.ours`), and what stands now."""

    store: StoreReport
    before: dict[str, str]
    now: SealState


class SealRequest(msgspec.Struct, frozen=True):
    """`url` stands in the seal's sentence; `create_missing`: make absent tables, so that they can be sealed too.

    `by`: when the cut that seals began (RFC 3339), so that a seal can be told from another's.
    """

    url: str
    updates: Updates = Updates.ALLOW
    create_missing: bool = False
    busy_timeout_ms: int = 5_000
    by: str = ""


def count_and_seal(
    report: Report,
    request: SealRequest,
    accounts: Accounts | None,
    may_seal: Callable[[Counted], bool],
    planted: list[Planted],
    step: Callable[[str], None],
) -> bool:
    """Lock, count, ask `may_seal`, seal. Stores whose seal this call changed are added to `planted` as they are.

    Leaving early rolls every uncommitted store back; what is in `planted` is the caller's to undo.
    """
    with ExitStack() as locks:
        fences: list[tuple[StoreReport, Fence]] = []
        for store in sorted(report.stores, key=lambda s: s.id):
            step(f"lock {store.id}")
            fence = Fence(
                store.location,
                store.identity,
                busy_timeout_ms=request.busy_timeout_ms,
                url=request.url,
                by=request.by,
            )
            fences.append((store, locks.enter_context(fence)))
        counted: Counted = []
        for store, fence in fences:
            step(f"count {store.id}")
            counted.append((store, fence.measure(accounts)))
        if not may_seal(counted):
            return False
        changes: list[Planted] = []
        for store, fence in fences:
            step(f"seal {store.id}")
            before = fence.ours()
            now = fence.plant(create_missing=request.create_missing, updates=request.updates)
            changes.append(Planted(store, before, now))
        for change, (store, fence) in zip(changes, fences, strict=True):
            step(f"commit {store.id}")
            if fence.ours() != change.before:
                planted.append(change)  # before the commit: whatever it leaves, the undo will look at this store
            fence.commit()
    return True


def lift(stores: Sequence[StoreReport], *, busy_timeout_ms: int) -> list[tuple[StoreReport, SealState]]:
    """Take every seal away, or none: nothing is changed before every store is locked. Returns what stood.

    Raises RefusedError. SQLite commits each file by itself: should one fail after others, it says which are open.
    """
    with ExitStack() as locks:
        fences = [
            (s, locks.enter_context(Fence(s.location, s.identity, busy_timeout_ms=busy_timeout_ms)))
            for s in sorted(stores, key=lambda s: s.id)
        ]
        stood = [(store, fence.lift()) for store, fence in fences]
        unsealed: list[str] = []
        for store, fence in fences:
            try:
                fence.commit()
            except CutoverError as error:
                if not unsealed:
                    raise
                why = error.message.removesuffix("; nothing was changed")
                raise RefusedError(
                    f"store {', '.join(unsealed)} is unsealed, store {store.id} is not: {why}",
                    "mend it and unseal again, or seal again",
                ) from error
            unsealed.append(store.id)
    return stood


def take_away(planted: Sequence[Planted]) -> dict[str, str]:
    """Undo seals. A sentence for each store id whose seal stays: it refuses inserts, and loses nothing."""
    kept = {}
    for store, before, _ in planted:
        try:
            unseal(store.location, store.identity, before)
        except CutoverError as error:
            undone = "put back as it was" if before else "removed"
            kept[store.id] = f"the seal of store {store.id} could not be {undone}: {error.message}"
    return kept


def store_cut(store: StoreReport, tables: Sequence[TableReport], seal: str, *, accounted: bool) -> StoreCut:
    rows = {table.name: table.rows for table in tables}
    return StoreCut(
        id=store.id,
        path=store.path,
        archives=rows.get(ARCHIVES),
        actions=rows.get(ACTIONS),
        unaccounted=sum(table.unaccounted or 0 for table in tables) if accounted else None,
        seal=seal,
        sealed_by=store.seal.by,
    )

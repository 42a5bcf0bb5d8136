"""All stores or none: lock each, count each inside its lock, and seal them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import msgspec

from ..contract.rows import ACTIONS, ARCHIVES
from ..errors import CutoverError
from ..stores.report import Report, StoreReport, TableReport
from ..stores.seal import Fence, unseal
from ..stores.sealing import Updates
from ..stores.tables import Accounts
from .report import StoreCut

Counted = list[tuple[StoreReport, tuple[TableReport, ...]]]


class SealRequest(msgspec.Struct, frozen=True):
    """`url` stands in the seal's sentence; `create_missing`: make absent tables, so that they can be sealed too."""

    url: str
    updates: Updates = Updates.ALLOW
    create_missing: bool = False
    busy_timeout_ms: int = 5_000


def count_and_seal(
    report: Report,
    request: SealRequest,
    accounts: Accounts | None,
    may_seal: Callable[[Counted], bool],
    planted: list[StoreReport],
    step: Callable[[str], None],
) -> bool:
    """Lock, count, ask `may_seal`, seal. Stores that this call sealed are added to `planted` as they are.

    Leaving early rolls every uncommitted store back; what is in `planted` is the caller's to undo.
    """
    with ExitStack() as locks:
        fences: list[tuple[StoreReport, Fence]] = []
        for store in sorted(report.stores, key=lambda s: s.id):
            step(f"lock {store.id}")
            fence = Fence(store.location, store.identity, busy_timeout_ms=request.busy_timeout_ms, url=request.url)
            fences.append((store, locks.enter_context(fence)))
        counted: Counted = []
        for store, fence in fences:
            step(f"count {store.id}")
            counted.append((store, fence.measure(accounts)))
        if not may_seal(counted):
            return False
        for store, fence in fences:
            step(f"seal {store.id}")
            fence.plant(create_missing=request.create_missing, updates=request.updates)
        for store, fence in fences:
            step(f"commit {store.id}")
            if not store.seal.complete:  # a seal that stood before is not ours to take away
                planted.append(store)  # before the commit: whatever it leaves, the undo will look at this store
            fence.commit()
    return True


def take_away(planted: Sequence[StoreReport]) -> list[str]:
    """Remove seals again. Returns a sentence for each store whose seal stays: it refuses inserts, and loses nothing."""
    kept = []
    for store in planted:
        try:
            unseal(store.location, store.identity)
        except CutoverError as error:
            kept.append(f"the seal of store {store.id} could not be removed: {error.message}")
    return kept


def reasons_against(counted: Counted, *, create_missing: bool, accounted: bool) -> list[str]:
    """Why these stores may not be sealed: unreadable or absent tables, and, if asked, rows without an account."""
    reasons = []
    for store, tables in counted:
        for table in tables:
            if table.state == "unmeasurable":
                reasons.append(f"{table.name} of store {store.id} cannot be read: {table.reason}")
            elif table.state == "absent" and not create_missing:
                reasons.append(
                    f"{table.name} is absent from store {store.id}: a recorder would make it on first use; "
                    "--create-missing makes and seals it"
                )
            elif accounted and table.unaccounted:
                reasons.append(
                    f"{table.unaccounted} of {table.rows} rows of {table.name} in store {store.id} "
                    "are not accounted for"
                )
    return reasons


def store_cut(store: StoreReport, tables: Sequence[TableReport], seal: str, *, accounted: bool) -> StoreCut:
    rows = {table.name: table.rows for table in tables}
    return StoreCut(
        id=store.id,
        path=store.path,
        archives=rows.get(ARCHIVES),
        actions=rows.get(ACTIONS),
        unaccounted=sum(table.unaccounted or 0 for table in tables) if accounted else None,
        seal=seal,
    )

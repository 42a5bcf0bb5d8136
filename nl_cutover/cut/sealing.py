"""The seal by itself: a durable, visible fence that an operator puts up or takes down."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..errors import RefusedError
from ..stores.report import Report
from ..stores.seal import canary
from ..stores.verdict import table_reasons
from ..verdicts import ExitCode
from .fencing import Counted, Planted, SealRequest, count_and_seal, lift, store_cut, take_away
from .report import StoreCut

SCHEMA = "nl-cutover/seal/1"


class SealReport(msgspec.Struct, frozen=True, kw_only=True):
    """`nl-cutover/seal/1`. Rows are those counted in the transaction that sealed."""

    schema: str = SCHEMA
    verdict: str  # sealed | unsealed
    exit_code: int
    at: str
    host: str
    stores: list[StoreCut]
    next_steps: list[str]


def seal_stores(report: Report, request: SealRequest, *, host: str, at: Callable[[], str]) -> SealReport:
    """Seal every store of the report, or none. Idempotent. Raises RefusedError with every reason; nothing is kept."""
    planted: list[Planted] = []
    seen: Counted = []
    reasons: list[str] = []

    def may_seal(counted: Counted) -> bool:
        seen.extend(counted)
        for store, tables in counted:
            found = table_reasons(store, tables, create_missing=request.create_missing, accounted=False)
            reasons.extend(sentence for _, sentence in found)
        return not reasons

    try:
        if count_and_seal(report, request, None, may_seal, planted, lambda _: None):
            leaking = [s.id for s in report.stores if not canary(s.location, s.identity).proved]
            reasons += [f"the seal of store {name} leaks: a canary row got through" for name in leaking]
        if reasons:
            raise RefusedError("; ".join(reasons), "nothing was sealed")
    except BaseException:
        take_away(planted)
        raise
    stores = [
        store_cut(s, tables, "stood before" if s.seal.sealed else "planted", accounted=False) for s, tables in seen
    ]
    steps = ["inserts are refused from now on: nl-cutover migrate CHECKOUT..., then nl-cutover cut"]
    return SealReport(
        verdict="sealed", exit_code=int(ExitCode.PROVED), at=at(), host=host, stores=stores, next_steps=steps
    )


def unseal_stores(report: Report, *, host: str, at: Callable[[], str], busy_timeout_ms: int = 5_000) -> SealReport:
    """Take the seals of every store away, or of none. Idempotent. Raises RefusedError, see `fencing.lift`."""
    stores = [
        store_cut(store, store.tables, "removed" if stood.sealed or stood.foreign else "none", accounted=False)
        for store, stood in lift(report.stores, busy_timeout_ms=busy_timeout_ms)
    ]
    steps = ["recorders can write again: every number measured before is old now"]
    return SealReport(
        verdict="unsealed", exit_code=int(ExitCode.PROVED), at=at(), host=host, stores=stores, next_steps=steps
    )

"""One verdict over the receipts of several hosts: clear only when every expected host is there, fresh, sealed and clear."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import msgspec

from ..contract.rows import TABLES
from ..stores.verdict import unaccounted
from ..verdicts import ExitCode
from .explaining import deciding, landed
from .kinds import CutReceipt, MeasuredStore, MeasureReceipt, MigrateReceipt, PlanReceipt, VerifyReceipt
from .verifying import Paper, Read, kind_of, says

SCHEMA = "nl-cutover/merge/1"
_CLOCKS_MS = 60_000  # by how much two hosts' clocks may disagree


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """`state`: clear | missing | stale | blocked | open | broken | unsigned. `age` in ms. `landed`: a cut did so there."""

    host: str
    state: str
    reason: str = ""
    file: str | None = None
    kind: str | None = None
    at: str | None = None
    age: int | None = None
    plane: str | None = None
    landed: bool = False


class MergeReport(msgspec.Struct, frozen=True, kw_only=True):
    """`nl-cutover/merge/1`. `verdict`: clear | refused | unreadable | broken. `unread` names files that are no receipts."""

    schema: str = SCHEMA
    verdict: str
    exit_code: int
    at: str
    hosts: list[HostState]
    unread: list[str]
    reasons: list[str]
    next_steps: list[str]


def merge(paper: Paper, expected: Sequence[str], *, now_ms: int, max_age_ms: int, at: str) -> MergeReport:
    """Judge each host by its newest receipt, and all of them together. Pure; `now_ms` is ms since epoch."""
    by_host: dict[str, list[Read]] = defaultdict(list)
    for one in paper.read.values():
        by_host[one.receipt.tool.host].append(one)
    names = sorted({*expected, *by_host})
    hosts = [_state(name, by_host.get(name, []), paper, now_ms, max_age_ms) for name in names]
    unread = sorted(str(path) for path in paper.unreadable)
    planes = {host.plane: host.host for host in hosts if host.plane is not None}
    reasons = [f"{h.host}: {h.reason}" for h in hosts if h.state != "clear"]
    if len(planes) > 1:
        reasons.append(f"the hosts went to different planes: {', '.join(f'{h} to {p}' for p, h in planes.items())}")
    if paper.broken:
        verdict, code = "broken", ExitCode.DIFFERENCE
    elif unread:
        verdict, code = "unreadable", ExitCode.UNMEASURABLE
    else:
        verdict, code = ("refused", ExitCode.REFUSED) if reasons else ("clear", ExitCode.PROVED)
    return MergeReport(
        verdict=verdict,
        exit_code=int(code),
        at=at,
        hosts=hosts,
        unread=unread,
        reasons=reasons,
        next_steps=_next_steps(hosts, unread, reasons),
    )


def _state(host: str, found: Sequence[Read], paper: Paper, now_ms: int, max_age_ms: int) -> HostState:
    if not found:
        return HostState(host=host, state="missing", reason="no receipt of it is here")
    telling = [one for one in found if not isinstance(one.receipt, PlanReceipt)] or found  # a plan changes nothing
    newest = max(telling, key=lambda one: (one.receipt.at, one.receipt.number))
    age = now_ms - int(datetime.fromisoformat(newest.receipt.at).timestamp() * 1000)
    state, reason = _judge(newest, found, paper, age, max_age_ms)
    return HostState(
        host=host,
        state=state,
        reason=reason,
        file=str(newest.path),
        kind=kind_of(newest.receipt),
        at=newest.receipt.at,
        age=age,
        plane=next((p for one in sorted(found, key=lambda o: o.receipt.at, reverse=True) if (p := _plane(one))), None),
        landed=landed(deciding([one.receipt for one in sorted(found, key=lambda o: (o.receipt.at, o.receipt.number))])),
    )


def _judge(newest: Read, found: Sequence[Read], paper: Paper, age: int, max_age_ms: int) -> tuple[str, str]:
    """The state of a host and the reason for it. A receipt that is wrong says nothing about anything else."""
    receipt = newest.receipt
    problems = [problem for one in found for problem in paper.problems[one.path]]
    if problems:
        return "broken", problems[0]
    if paper.signed and newest.signer is None:
        return "unsigned", f"nobody of the allowed signers signed {newest.path.name}"
    if not isinstance(receipt, MeasureReceipt | CutReceipt):
        return "blocked", f"its newest receipt is a {kind_of(receipt)}: nothing was measured since"
    if receipt.outcome.exit_code != ExitCode.PROVED:
        return "blocked", f"its {kind_of(receipt)} says {says(receipt)}{_where(receipt)}"
    if age > max_age_ms:
        return "stale", f"its receipt is {age / 60_000:.1f} minutes old"
    if age < -_CLOCKS_MS:
        return "stale", f"its receipt is dated {-age / 60_000:.1f} minutes ahead: the clocks disagree"
    if isinstance(receipt, MeasureReceipt) and (unsealed := [s.id for s in receipt.measured.stores if not _sealed(s)]):
        return "open", f"store {', '.join(unsealed)} is not sealed: a row may have come since"
    return "clear", ""


def _where(receipt: MeasureReceipt | CutReceipt) -> str:
    """The stores that hold rows without an account, by name."""
    tables = [(s.id, t) for s in receipt.measured.stores for t in s.tables if t.unaccounted]
    return "".join(f"; {unaccounted(t.name, store, t.unaccounted or 0, t.rows or 0)}" for store, t in tables)


def _sealed(store: MeasuredStore) -> bool:
    return set(store.seal.sealed) == set(TABLES) and not store.seal.foreign


def _plane(one: Read) -> str | None:
    receipt = one.receipt
    if isinstance(receipt, MeasureReceipt | MigrateReceipt | VerifyReceipt) and receipt.plane is not None:
        return receipt.plane.plane_id and f"{receipt.plane.plane_id} ({receipt.plane.data_root})"
    return None


_ADVICE = {
    "missing": "bring its receipt here: on it, nl-cutover measure --receipt",
    "stale": "measure it again: nl-cutover measure --receipt",
    "blocked": "see why: on it, nl-cutover explain; then nl-cutover measure --receipt",
    "open": "seal it: nl-cutover seal; then nl-cutover measure --receipt",
    "broken": "do not act on its receipts; look at them with nl-cutover receipt verify",
    "unsigned": "have it signed: nl-cutover receipt sign FILE --key KEY",
}


def _next_steps(hosts: Sequence[HostState], unread: Sequence[str], reasons: Sequence[str]) -> list[str]:
    steps = [f"{host.host}: {_ADVICE[host.state]}" for host in hosts if host.state != "clear"]
    steps += [f"{name} is no receipt: see nl-cutover receipt verify" for name in unread]
    if not reasons and not unread:
        left = [host.host for host in hosts if not host.landed]
        if not left:
            steps.append("every expected host has landed: keep these receipts where backups are")
        elif len(left) == len(hosts):
            steps.append("every expected host is clear: the fleet's landing may run now, and not later than --max-age")
        else:
            steps.append(f"the others have landed; the landing of {', '.join(left)} may run now, within --max-age")
    return steps

"""The whole job over stores, custody and ingress, as the command line calls it. Nothing is created before it may be."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ..contract.rows import ACTIONS, ARCHIVES
from ..custody import receipts
from ..custody.directory import exists, store_locks
from ..custody.elsewhere import others, remember
from ..custody.entries import ActionEntry, ArchiveEntry
from ..custody.ledger import Ledger, RunFacts
from ..custody.reading import LedgerReader
from ..errors import CustodyError, DifferenceError, RefusedError, UnreachableError
from ..ingress.preflight import Plane, error_of, preflight
from ..ingress.session import Session
from ..ingress.sessions import Sessions
from ..stores.report import Report
from ..wording import counted, fitted
from .evidence import Evidence
from .plan import Plan, build_plan
from .policy import Policy
from .preparing import measured_facts, source_of, tool_facts, utc
from .progress import Barrier, Progress, no_barrier
from .report import RunReport, SettleReport, report_from_ledger, settle_report
from .run import Run, RunOutcome
from .settle import QUIET_S, Settler
from .source import Source
from .verify import UNREAD, verify

_CONFIRMED = "archive|s that was|were confirmed earlier"


def migrate(
    report: Report,
    policy: Policy,
    *,
    custody: Path,
    new_session: Callable[[], Session],
    expected_plane: str,
    expected_root: str | None,
    acknowledged: str | None,
    clock: Callable[[], int],
    progress: Progress,
    workers: int = 8,
    identities: Mapping[str, Callable[[], Session]] = {},
    evidence: Evidence | None = None,
    quiet_ms: float = QUIET_S * 1000,
    container: Callable[[Plane], dict[str, Any]] | None = None,
    barrier: Barrier = no_barrier,
    registry: Path | None = None,
    afresh: bool = False,
) -> RunReport:
    """Plan, check the ingress, carry every row, leave a receipt. Everything that refuses does so before a row leaves.

    `acknowledged` is the digest of the plan that the operator read, or None. `identities` open the sessions of the
    credential slots that the policy names, and each is tried before a row leaves. With `evidence`, unknown outcomes of
    an earlier call are settled first. `container` looks at the plane's other side before a row leaves, and says for the
    receipt what it found. `registry` is where the custody directories of this host are remembered by store: rows that
    another of them carried to this plane are refused, unless `afresh`, and so are stores that a cut has sealed where
    this directory holds no run. Raises CutoverError.
    """
    if not afresh and not exists(custody):
        _check_cut(report, custody)
    with source_of(report) as source, _Spool() as spool:
        plan = build_plan(source, policy, now_ms=clock(), entry=spool.add)
        _check_plan(plan, acknowledged)
        with new_session() as session:
            plane = preflight(
                session,
                expected_plane=expected_plane,
                expected_root=expected_root,
                telemetry=bool(plan.actions_to_send),
            )
            waited = session.waited
        for slot in plan.identities:
            with identities[slot]() as session:
                if (failure := session.open()) is not None:
                    raise error_of(failure, f"{plane.url} (slot {slot})")
                waited += session.waited
        beside = {} if container is None else container(plane)
        progress.note(
            f"plan {plan.digest[:16]}: {counted(len(plan.losses), 'kind|s')} of loss, listed in the plan and the receipt"
        )
        with ExitStack() as held:
            held.enter_context(store_locks(source.stores))
            if registry is not None and not afresh:
                _check_elsewhere(registry, source, custody, plane, plan, spool)
            ledger = held.enter_context(Ledger(custody, clock))
            _check_age_of_ledger(custody, ledger)
            facts = ledger.begin(_facts(plane, plan, clock()))
            if registry is not None:
                _remember(registry, source, custody, progress)
            run = Run(
                ledger,
                source,
                policy,
                new_session=new_session,
                identities=identities,
                new_token=lambda: str(uuid.uuid4()),
                progress=progress,
                workers=workers,
                barrier=barrier,
            )
            recovered = run.enter(spool)
            if evidence is not None:
                Settler(ledger, quiet_ms=quiet_ms).by_evidence(evidence)
            earlier = ledger.read("SELECT count(*) FROM archives WHERE state = 'confirmed'")[0][0]
            outcome = run.carry(recovered)
            if earlier and outcome.stopped is None:
                outcome = _read_again(
                    outcome, source, custody, {"": new_session, **identities}, plane, facts.id, progress
                )
            result = report_from_ledger(
                custody, at=utc(clock()), losses=plan.losses, stopped=outcome.stopped, sent=outcome.sent
            )
            waited = round(waited + outcome.waited, 1)
            result = msgspec.structs.replace(result, waited_s=waited, proxy=plane.proxy)
            body = _receipt_body(report, plan, plane, outcome, result, facts, acknowledged)
            body["container"] = {"not_proved": [], **beside}
            with LedgerReader(custody) as reader:
                body["settled"] = reader.settled()
                barrier("before receipt")
                link = receipts.write(custody, "migrate", body, reader.id_map)
    return msgspec.structs.replace(result, receipt=str(link.path), not_proved=beside.get("not_proved", []))


def _check_cut(report: Report, custody: Path) -> None:
    """Raises RefusedError for a store that a cut sealed: a run that is not in this custody directory carried it."""
    for store in report.stores:
        if store.seal.by:
            raise RefusedError(
                f"store {store.id} was sealed by a cut that began {store.seal.by}: another run carried what it holds, "
                f"and custody {custody} knows none",
                "name that run's --custody; only if Memory Core was set up anew since, and holds nothing of it: --afresh",
            )


def _check_elsewhere(registry: Path, source: Source, custody: Path, plane: Plane, plan: Plan, spool: _Spool) -> None:
    """Raises RefusedError when the run of another custody directory sent rows of this plan to this plane."""
    for other in others(registry, source.stores, custody):
        with LedgerReader(other) as reader:
            run = reader.run()
            if run is None or (run["plane_id"], run["data_root"]) != (plane.plane_id, plane.data_root):
                continue
            carried = sum(1 for table, key, digest in spool.sent(plan) if reader.carried(table, key, digest))
        if carried:
            raise RefusedError(
                f"run {run['id']} in custody {other} carried {counted(carried, 'row|s')} of these stores to this plane; "
                "this run would send them again",
                f"go on with that run: --custody {other}; only if Memory Core was set up anew since, and holds nothing "
                "of it: --afresh",
            )


def _remember(registry: Path, source: Source, custody: Path, progress: Progress) -> None:
    try:
        remember(registry, source.stores, custody)
    except OSError as error:
        progress.note(
            f"{registry} cannot be written ({error.strerror}): a run with another --custody would not know of this one"
        )


def _read_again(
    outcome: RunOutcome,
    source: Source,
    custody: Path,
    identities: Mapping[str, Callable[[], Session]],
    plane: Plane,
    run: str,
    progress: Progress,
) -> RunOutcome:
    """Archives that an earlier call confirmed are a claim of that call: this one proves them anew."""
    with LedgerReader(custody) as reader, Sessions(identities) as sessions:
        mapped = partial(reader.mapped, confirmed=True)
        checked = verify(source, mapped, reader.excluded(), sessions, url=plane.url, run=run, at="", progress=progress)
    wrong = [d for d in checked.differences if d.new is not None]
    if not wrong:
        return outcome
    if all(d.what.startswith(UNREAD) for d in wrong):  # no answer is no difference
        unread = UnreachableError(
            f"{counted(len(wrong), _CONFIRMED)} {wrong[0].what}, {wrong[0].old} among them",
            "give the same command again",
        )
        return msgspec.structs.replace(outcome, stopped=unread)
    reason = DifferenceError(
        f"{counted(len(wrong), _CONFIRMED)} {fitted(len(wrong), 'reads|read')} back differently now, "
        f"{wrong[0].old} among them: {wrong[0].what}",
        "do not land; nl-cutover verify names each; first see whether this token is that of the identity that saved: "
        "another one reads not-found",
    )
    return msgspec.structs.replace(outcome, stopped=reason)


def settle(
    *,
    custody: Path,
    evidence: Evidence | None,
    rows: Sequence[str],
    quiet_ms: float,
    clock: Callable[[], int],
) -> SettleReport:
    """Decide unknown outcomes by the operator's words, then by evidence, and leave a receipt. Sends nothing.

    Raises CutoverError; what was decided before it is in the ledger, and in the next receipt.
    """
    if not exists(custody):
        raise CustodyError(f"there is no run in custody {custody}", "there is nothing to settle")
    with Ledger(custody, clock) as ledger:
        facts = ledger.run
        if facts is None:
            raise CustodyError(f"custody {custody} holds no run", "there is nothing to settle")
        ledger.recover()
        settler = Settler(ledger, quiet_ms=quiet_ms)
        settler.by_operator(rows)
        if evidence is not None:
            settler.by_evidence(evidence)
        where = report_from_ledger(custody, at=utc(clock()), losses=[])
        result = settle_report(facts.id, where, settler.decisions)
        with LedgerReader(custody) as reader:
            settled = reader.settled()
        body = {
            "schema": "nl-cutover/receipt/1",
            "run": facts.id,
            "at": result.at,
            "tool": tool_facts(),
            "evidence": None if evidence is None else evidence.words,
            "settled": settled,
            "outcome": {"verdict": result.verdict, "exit_code": result.exit_code, "left": result.left},
        }
        link = receipts.write(custody, "settle", body)
    return msgspec.structs.replace(result, receipt=str(link.path))


def _check_age_of_ledger(custody: Path, ledger: Ledger) -> None:
    """Raises CustodyError when the ledger does not know what the newest receipt of this custody says was saved."""
    newest = next((link for link in reversed(receipts.chain(custody)) if link.kind == "migrate"), None)
    if newest is None:
        return

    def look(entry: dict[str, Any]) -> None:
        if entry["confirmed"] and not ledger.knows(entry["new"]):
            raise CustodyError(
                f"the ledger is older than receipt {newest.path.name}: it does not know all that was saved",
                "an older copy was brought back; it would send rows again. Bring back the newest",
            )

    receipts.scan(newest.path, look)


def _check_plan(plan: Plan, acknowledged: str | None) -> None:
    if plan.blockers:
        raise RefusedError("; ".join(plan.blockers), "nothing was sent; `nl-cutover plan` shows the whole plan")
    if acknowledged is not None and acknowledged != plan.digest:
        raise RefusedError(
            f"the plan is {plan.digest[:16]} now, not {acknowledged[:16]}: rows or policy changed since",
            "nothing was sent; look at the new plan with `nl-cutover plan`",
        )


def _facts(plane: Plane, plan: Plan, now_ms: int) -> RunFacts:
    return RunFacts(
        id=f"{datetime.fromtimestamp(now_ms / 1000, UTC):%Y%m%dT%H%M%SZ}-{os.urandom(3).hex()}",
        created_at=now_ms,
        url=plane.url,
        plane_id=plane.plane_id,
        data_root=plane.data_root,
        owner=plan.owner if plan.owner_stated else None,
        plan_digest=plan.digest,
    )


def _receipt_body(
    report: Report,
    plan: Plan,
    plane: Plane,
    outcome: RunOutcome,
    result: RunReport,
    facts: RunFacts,
    acknowledged: str | None,
) -> dict[str, Any]:
    plain = msgspec.to_builtins
    return {
        "schema": "nl-cutover/receipt/1",
        "run": facts.id,
        "at": result.at,
        "tool": tool_facts(),
        "plane": plain(plane),
        "plan": {
            "digest": plan.digest,
            "acknowledged": acknowledged == plan.digest,
            "owner": plan.owner,
            "owner_stated": plan.owner_stated,
            "writers": plan.writers,
            "identities": plan.identities,
            "slots": plan.slots,
            "choices": plain(plan.choices),
            "telemetry": plan.telemetry,
            "replays": plan.replays,
            "stores": plain(plan.stores),
            "notes": plan.notes,
        },
        "measured": measured_facts(report),
        "losses": plain(plan.losses),
        "outcome": {
            "verdict": result.verdict,
            "exit_code": result.exit_code,
            "archives": plain(result.archives),
            "marks": plain(result.marks),
            "telemetry": plain(result.telemetry),
            "sent": outcome.sent,
            "waited_s": result.waited_s,
            "taken_up_again": outcome.taken_up,
            "in_doubt_at_start": outcome.recovered,
            "refused_server_requests": outcome.refused_server_requests,
            "stopped": result.stopped,
        },
        "odd": plain(result.odd),
    }


class _Spool:
    """Ledger entries on disk between the plan and the ledger, so that memory stays flat and rows are read once."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._encoder = msgspec.msgpack.Encoder()

    def __enter__(self) -> _Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, entry: ArchiveEntry | ActionEntry) -> None:
        body = self._encoder.encode((isinstance(entry, ArchiveEntry), entry))
        self._file.write(len(body).to_bytes(4, "big") + body)

    def sent(self, plan: Plan) -> Iterator[tuple[str, str, str]]:
        """(table, key, digest) of each row that the plan sends; an archive's digest is its content's."""
        for entry in self:
            if isinstance(entry, ArchiveEntry):
                if not entry.refusal:
                    yield ARCHIVES, entry.key, entry.content_digest
            elif plan.actions_to_send and not entry.refusal:
                yield ACTIONS, entry.key, entry.digest

    def __iter__(self) -> Iterator[ArchiveEntry | ActionEntry]:
        self._file.seek(0)
        archives = msgspec.msgpack.Decoder(tuple[bool, ArchiveEntry])
        actions = msgspec.msgpack.Decoder(tuple[bool, ActionEntry])
        while head := self._file.read(4):
            body = self._file.read(int.from_bytes(head, "big"))
            yield (archives if body[1] == 0xC3 else actions).decode(body)[1]

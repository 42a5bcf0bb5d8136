"""The whole job over stores, custody and ingress, as the command line calls it. Nothing is created before it may be."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ..custody import receipts
from ..custody.ledger import ActionEntry, ArchiveEntry, Ledger, RunFacts
from ..custody.reading import LedgerReader
from ..errors import RefusedError
from ..ingress.preflight import Plane, preflight
from ..ingress.session import Session
from ..stores.report import Report
from .plan import Plan, build_plan
from .policy import Policy
from .preparing import measured_facts, source_of, tool_facts, utc
from .progress import Progress
from .report import RunReport, report_from_ledger
from .run import Run, RunOutcome
from .source import Source


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
) -> RunReport:
    """Plan, check the ingress, carry every row, leave a receipt. Everything that refuses does so before a row leaves.

    `acknowledged` is the digest of the plan that the operator read, or None. Raises CutoverError.
    """
    with source_of(report) as source, _Spool() as spool:
        plan = build_plan(source, policy, now_ms=clock(), entry=spool.add)
        if plan.blockers:
            raise RefusedError("; ".join(plan.blockers), "nothing was sent; `nl-cutover plan` shows the whole plan")
        if acknowledged is not None and acknowledged != plan.digest:
            raise RefusedError(
                f"the plan is {plan.digest[:16]} now, not {acknowledged[:16]}: rows or policy changed since",
                "nothing was sent; look at the new plan with `nl-cutover plan`",
            )
        with new_session() as session:
            plane = preflight(session, expected_plane=expected_plane, expected_root=expected_root)
        progress.note(f"plan {plan.digest[:16]}: {len(plan.losses)} kinds of loss, listed in the plan and the receipt")
        return _run(
            report, plan, plane, source, spool, policy, custody, new_session, acknowledged, clock, progress, workers
        )


def _run(
    report: Report,
    plan: Plan,
    plane: Plane,
    source: Source,
    spool: _Spool,
    policy: Policy,
    custody: Path,
    new_session: Callable[[], Session],
    acknowledged: str | None,
    clock: Callable[[], int],
    progress: Progress,
    workers: int,
) -> RunReport:
    with Ledger(custody, clock) as ledger:
        facts = ledger.begin(
            RunFacts(
                id=_run_id(clock()),
                created_at=clock(),
                url=plane.url,
                plane_id=plane.plane_id,
                data_root=plane.data_root,
                owner=plan.owner,
                plan_digest=plan.digest,
            )
        )
        run = Run(
            ledger,
            source,
            policy,
            new_session=new_session,
            new_token=lambda: str(uuid.uuid4()),
            progress=progress,
            workers=workers,
        )
        outcome = run.carry(run.enter(spool))
        at = utc(clock())
        result = report_from_ledger(custody, at=at, losses=plan.losses, stopped=outcome.stopped, sent=outcome.sent)
        body = _receipt_body(report, plan, plane, outcome, result, facts, acknowledged)
        with LedgerReader(custody) as reader:
            body["id_map"] = [msgspec.to_builtins(entry) for entry in reader.id_map()]
        link = receipts.write(custody, "migrate", body)
    return msgspec.structs.replace(result, receipt=str(link.path))


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
            "in_doubt_at_start": outcome.recovered,
            "refused_server_requests": outcome.refused_server_requests,
            "stopped": result.stopped,
        },
        "odd": plain(result.odd),
    }


def _run_id(now_ms: int) -> str:
    return f"{datetime.fromtimestamp(now_ms / 1000, UTC):%Y%m%dT%H%M%SZ}-{os.urandom(3).hex()}"


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

    def __iter__(self) -> Iterator[ArchiveEntry | ActionEntry]:
        self._file.seek(0)
        archives = msgspec.msgpack.Decoder(tuple[bool, ArchiveEntry])
        actions = msgspec.msgpack.Decoder(tuple[bool, ActionEntry])
        while head := self._file.read(4):
            body = self._file.read(int.from_bytes(head, "big"))
            yield (archives if body[1] == 0xC3 else actions).decode(body)[1]

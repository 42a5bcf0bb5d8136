"""The cut with custody around it: the age of the verification before, the receipt after."""

from __future__ import annotations

import shlex
import socket
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec

from ..contract.rows import Value, key_text
from ..custody import directory, receipts
from ..custody.directory import store_locks
from ..custody.reading import LedgerReader
from ..errors import CustodyError, RefusedError, UnmeasurableError
from ..migration.preparing import measured_facts, require_measured, tool_facts, utc
from ..stores.report import Report
from ..stores.tables import Accounts
from ..stores.verdict import checkout_reasons
from ..verdicts import ExitCode
from ..wording import counted
from .command import echo_to_stderr, run_command
from .fencing import SealRequest
from .gate import BRING_OVER, Gate
from .replays import replayed_since
from .report import CutReport

_HEARTBEAT = 10.0  # seconds
_SHOWN = 5  # archives named one by one


def run_cut(
    command: Sequence[str],
    *,
    custody: Path,
    request: SealRequest,
    measured: Callable[[], Report],
    allow_absent: bool,
    hold_file: Path | None,
    max_age_ms: int,
    clock: Callable[[], int],
    redact: Callable[[str], str],
) -> CutReport:
    """Measure, check custody, cut, leave a receipt. Raises CutoverError when it may not even begin."""
    _wait_while_held(hold_file)
    report = measured()
    require_measured(report)
    if latent := checkout_reasons(report, allow_absent=allow_absent):
        raise RefusedError("; ".join(sentence for _, sentence in latent), "nothing was landed")
    request = msgspec.structs.replace(request, by=utc(clock()))
    run_id = None
    accounts: Accounts = _nothing
    refused: list[str] = []
    reader: LedgerReader | None = None
    if directory.exists(custody):
        reader = LedgerReader(custody)
        run = reader.run()
        run_id, accounts = (run["id"] if run else None), partial(_accounts, reader, refused)
    with store_locks(store.id for store in report.stores):
        try:
            if _has_rows(report):
                _check_proof(custody, {store.id for store in report.stores}, clock(), max_age_ms)
            directory.create(custody)
            orphans = _orphans(report, custody)
            gate = Gate(
                report,
                request,
                accounts=accounts,
                land=lambda: run_command(command, echo=echo_to_stderr, redact=redact),
                remeasure=measured,
                step=partial(_before, hold_file, custody, run_id, request.by, clock),
            )
            result = gate.cut(host=socket.gethostname(), at=lambda: utc(clock()))
            if result.exit_code and not result.verdict.startswith("landed"):
                result = _with_orphans(result, orphans)
            if result.exit_code and reader is not None:
                result = _with_replays(_with_refused(result, refused), report, reader)
        finally:
            if reader is not None:
                reader.__exit__()
        return _with_receipt(result, report, custody, run_id)


def _with_receipt(result: CutReport, report: Report, custody: Path, run_id: str | None) -> CutReport:
    """Leave the receipt. That it cannot be written changes nothing of what happened, and is said."""
    plain = msgspec.to_builtins(result)
    body = {
        "schema": "nl-cutover/receipt/1",
        "run": run_id,
        "at": result.at,
        "tool": tool_facts(),
        "measured": measured_facts(report),
        "outcome": {k: v for k, v in plain.items() if k not in ("schema", "at", "receipt", "next_steps")},
    }
    try:
        return msgspec.structs.replace(result, receipt=str(receipts.write(custody, "cut", body).path))
    except CustodyError as error:
        code = result.exit_code or int(error.exit_code)
        return msgspec.structs.replace(result, exit_code=code, reasons=[*result.reasons, error.message])


def _orphans(report: Report, custody: Path) -> dict[str, tuple[str, str]]:
    """Store id to (sentence, next step) for seals of a cut that no landing answers for: one that is killed leaves its own.

    Raises CustodyError for a broken chain of receipts.
    """
    began, landed = set(), set()
    for link in receipts.chain(custody):
        if link.kind == "landing":
            began.add(link.body.get("cut"))
        elif link.kind == "cut" and (outcome := link.body["outcome"])["verdict"].startswith("landed"):
            landed |= {store.get("sealed_by") for store in outcome["stores"]}
    found = {}
    for store in report.stores:
        if (by := store.seal.by) and by not in landed:
            when = "after it had begun to land" if by in began else "before it landed"
            paths = shlex.join(c.path for c in report.checkouts if store.id in (c.store, *c.also))
            found[store.id] = (
                f"store {store.id} stays sealed by the cut that began at {by}: it was killed {when}, "
                "or could not remove its seal, or its custody is another one",
                f"take that seal away, if nothing landed: nl-cutover unseal {paths}",
            )
    return found


def _with_orphans(result: CutReport, orphans: dict[str, tuple[str, str]]) -> CutReport:
    kept = [orphans[store.id] for store in result.stores if store.seal == "stood before" and store.id in orphans]
    return msgspec.structs.replace(
        result,
        reasons=[*result.reasons, *(reason for reason, _ in kept)],
        next_steps=[*result.next_steps, *dict.fromkeys(step for _, step in kept)],
    )


def _with_replays(result: CutReport, report: Report, reader: LedgerReader) -> CutReport:
    """Add which archives a recorder has replayed meanwhile: it may, and the next migration brings the marks."""
    try:
        said = [sentence for store in report.stores for sentence in replayed_since(store, reader)]
    except UnmeasurableError:
        return result  # that a store cannot be read is what the cut ended with, or what measuring again will say
    if not said:
        return result
    more = [f"and {counted(len(said) - _SHOWN, 'more archive|s')} like them"] if len(said) > _SHOWN else []
    paths = shlex.join(c.path for c in report.checkouts if c.state == "measured")
    landed = result.verdict.startswith("landed")
    step = f"bring the replays over: nl-cutover migrate {paths}, with the same --telemetry as before; "
    step += f"then nl-cutover measure {paths}" if landed else "then cut again"
    return msgspec.structs.replace(
        result, reasons=[*result.reasons, *said[:_SHOWN], *more], next_steps=[step, *result.next_steps]
    )


def _with_refused(result: CutReport, refused: list[str]) -> CutReport:
    """Name the way out of rows that were refused: brought over again, they are refused again."""
    if not refused:
        return result
    row = shlex.quote(f"{refused[0]}=exclude")
    step = f"a refused row is mended, or left on the host for good, then cut again: nl-cutover settle --row {row}"
    others = sum(store.unaccounted or 0 for store in result.stores) > len(refused)
    kept = [s for s in result.next_steps if others or s != BRING_OVER]
    return msgspec.structs.replace(result, next_steps=[step, *kept])


def _before(
    hold_file: Path | None, custody: Path, run_id: str | None, by: str, clock: Callable[[], int], step: str
) -> None:
    """Before the landing: the hold file once more, and a receipt that says that it is about to begin."""
    if step == "land":
        _not_held(hold_file)
        receipts.write(
            custody,
            "landing",
            {
                "schema": "nl-cutover/receipt/1",
                "run": run_id,
                "at": utc(clock()),
                "cut": by,
                "tool": tool_facts(),
                "outcome": {},
            },
        )


def _wait_while_held(hold_file: Path | None) -> None:
    said = 0.0
    while hold_file is not None and hold_file.exists():
        if time.monotonic() - said > _HEARTBEAT:
            said = time.monotonic()
            echo_to_stderr(f"held: {hold_file} exists; nothing is locked while it does\n".encode())
        time.sleep(0.2)


def _not_held(hold_file: Path | None) -> None:
    if hold_file is not None and hold_file.exists():
        raise RefusedError(f"{hold_file} came back before the landing: the cut is postponed")


def _accounts(reader: LedgerReader, refused: list[str], table: str, key: Value, digest: str) -> bool:
    """The reader's answer; keys of rows that were refused are added to `refused`."""
    if found := reader.accounts(table, key, digest):
        return found
    if reader.refused(table, key, digest):
        refused.append(key_text(key, digest))
    return False


def _nothing(*_: object) -> bool:
    return False


def _has_rows(report: Report) -> bool:
    return any(table.rows for store in report.stores for table in store.tables)


def _check_proof(custody: Path, stores: set[str], now_ms: int, max_age_ms: int) -> None:
    """Raises RefusedError unless the newest run or verification proved all these stores, and no longer ago than that."""
    newest = [link for link in receipts.chain(custody) if link.kind in ("migrate", "verify")][-1:]
    hint = "nl-cutover verify CHECKOUT..., then cut again"
    if not newest:
        return  # nothing was ever carried: the count under the lock says what is not accounted for
    body = newest[0].body
    if body["outcome"]["exit_code"] not in (ExitCode.PROVED, ExitCode.PARTIAL, ExitCode.REFUSED):
        raise RefusedError(
            f"the newest {newest[0].kind} proved nothing: it says {body['outcome']['verdict']}",
            f"read {newest[0].path.name}, mend what it names; then {hint}",
        )
    if left := stores - {store["id"] for store in body["measured"]["stores"]}:
        raise RefusedError(f"the newest {newest[0].kind} did not look at store {', '.join(sorted(left))}", hint)
    age = now_ms - int(datetime.fromisoformat(body["at"]).timestamp() * 1000)
    if age > max_age_ms:
        raise RefusedError(
            f"the last proof is {age / 60_000:.1f} minutes old, --max-age allows {max_age_ms / 60_000:g}", hint
        )

"""The cut with custody around it: the age of the verification before, the receipt after."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from ..custody import directory, receipts
from ..custody.reading import LedgerReader
from ..errors import RefusedError
from ..migration.preparing import measured_facts, require_measured, tool_facts, utc
from ..stores.report import Report
from ..stores.tables import Accounts
from ..stores.verdict import verdict_of
from ..verdicts import ExitCode
from .command import echo_to_stderr, run_command
from .fencing import SealRequest
from .gate import Gate
from .report import CutReport

_HEARTBEAT = 10.0  # seconds


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
    if any(checkout.state == "absent" for checkout in report.checkouts) and not allow_absent:
        raise RefusedError(
            "a checkout reaches no store: a recorder would make one on first use, unsealed",
            "leave it out, or say --allow-absent; nothing was landed",
        )
    run_id = None
    accounts: Accounts = _nothing
    reader: LedgerReader | None = None
    if directory.exists(custody):
        reader = LedgerReader(custody)
        run = reader.run()
        run_id, accounts = (run["id"] if run else None), reader.accounts
    try:
        if verdict_of(report, allow_absent=allow_absent) is ExitCode.PROVED and _has_rows(report):
            _check_age(custody, clock(), max_age_ms)
        gate = Gate(
            report,
            request,
            accounts=accounts,
            land=lambda: run_command(command, echo=echo_to_stderr, redact=redact),
            remeasure=measured,
            step=lambda name: _not_held(hold_file) if name == "land" else None,
        )
        result = gate.cut(host=socket.gethostname(), at=lambda: utc(clock()))
    finally:
        if reader is not None:
            reader.__exit__()
    if run_id is None:
        directory.create(custody)
    link = receipts.write(
        custody,
        "cut",
        {
            "schema": "nl-cutover/receipt/1",
            "run": run_id,
            "at": result.at,
            "tool": tool_facts(),
            "measured": measured_facts(report),
            "outcome": {
                key: value
                for key, value in msgspec.to_builtins(result).items()
                if key not in ("schema", "at", "receipt", "next_steps")
            },
        },
    )
    return msgspec.structs.replace(result, receipt=str(link.path))


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


def _nothing(*_: object) -> bool:
    return False


def _has_rows(report: Report) -> bool:
    return any(table.rows for store in report.stores for table in store.tables)


def _check_age(custody: Path, now_ms: int, max_age_ms: int) -> None:
    """Raises RefusedError unless the newest run or verification proved the rows, and no longer ago than that."""
    newest = [link for link in receipts.chain(custody) if link.kind in ("migrate", "verify")][-1:]
    hint = "nl-cutover verify CHECKOUT..., then cut again"
    if not newest:
        raise RefusedError("no receipt proves the rows that stand here", hint)
    body = receipts.read(newest[0].path)[1]
    if body["outcome"]["exit_code"] != ExitCode.PROVED:
        raise RefusedError(
            f"the newest {newest[0].kind} proved nothing: it says {body['outcome']['verdict']}",
            f"read {newest[0].path.name}, mend what it names; then {hint}",
        )
    age = now_ms - int(datetime.fromisoformat(body["at"]).timestamp() * 1000)
    if age > max_age_ms:
        raise RefusedError(
            f"the last proof is {age / 60_000:.1f} minutes old, --max-age allows {max_age_ms / 60_000:g}", hint
        )

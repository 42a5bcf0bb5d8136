"""Receipts of the verbs that only read: left when they are asked for, in the custody directory and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ..custody import directory, receipts
from ..custody.reading import LedgerReader
from ..migration.plan import Plan
from ..migration.preparing import measured_facts, tool_facts
from ..stores.report import Report
from ..stores.summary import MeasureReport
from .kinds import SCHEMA


def measure_receipt(custody: Path, report: Report, result: MeasureReport) -> MeasureReport:
    """Leave the receipt of a measurement; the result with its path. Raises CustodyError."""
    run = _run(custody)
    outcome = {
        "verdict": result.verdict,
        "exit_code": result.exit_code,
        "totals": msgspec.to_builtins(result.totals),
        "control": result.control.ok,
    }
    plane = run and {name: run[name] for name in ("plane_id", "data_root")}
    body = {"at": result.at, "plane": plane, "measured": measured_facts(report), "outcome": outcome}
    return msgspec.structs.replace(result, receipt=_leave(custody, "measure", run, body))


def plan_receipt(custody: Path, report: Report, plan: Plan, at: str) -> Plan:
    """Leave the receipt of a plan, the whole of it; the plan with the receipt's path. Raises CustodyError."""
    outcome = {"verdict": plan.verdict, "exit_code": plan.exit_code}
    body = {"at": at, "plan": msgspec.to_builtins(plan), "measured": measured_facts(report), "outcome": outcome}
    return msgspec.structs.replace(plan, receipt=_leave(custody, "plan", _run(custody), body))


def _run(custody: Path) -> dict[str, Any] | None:
    if not directory.exists(custody):
        return None
    with LedgerReader(custody) as reader:
        return reader.run()


def _leave(custody: Path, kind: str, run: dict[str, Any] | None, body: dict[str, Any]) -> str:
    directory.create(custody)
    facts = {"schema": SCHEMA, "run": run and run["id"], "tool": tool_facts()}
    return str(receipts.write(custody, kind, facts | body).path)

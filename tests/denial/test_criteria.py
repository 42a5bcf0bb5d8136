"""`nl-cutover check`: a row for each criterion, and what was not looked at is no pass."""

import pytest

from nl_cutover.cli.criteria import Subject, _of_the_core, _operations, _record_set, _write_only
from nl_cutover.cli.criteria import check_all as all_rows

from ..conftest import SLOT
from .conftest import RULES, check


@pytest.fixture
def neo(tmp_path):
    """A checkout after the cut: the recorder loads nothing."""
    for name in ("ai/services/neural-link/RecorderService.mjs", "ai/mcp/server/neural-link/mcp-server.mjs"):
        path = tmp_path / "neo" / name
        path.parent.mkdir(parents=True)
        path.write_text("import fs from 'node:fs';\nexport default fs;\n")
    (tmp_path / "neo" / "package.json").write_text('{"name": "neo.mjs", "type": "module"}')
    return tmp_path / "neo"


def verdicts(report):
    return {row["criterion"]: row["verdict"] for row in report["rows"]}


def test_what_is_not_looked_at_is_no_pass(neo):
    code, report = check("--tree", neo, "--custody", neo.parent / "custody", "--token-env", "NOT_SET_AT_ALL", cwd=neo)
    found = verdicts(report)
    assert (found["recorder"], found["surfaces"]) == ("pass", "pass")
    assert {found[k] for k in ("runtime", "operations", "ingress", "write-only", "record-set")} == {"not looked at"}
    assert (code, report["exit_code"] == code, report["schema"]) != (0, True, "nl-cutover/check/1")
    assert code in (3, 4)
    assert all(row["control"] for row in report["rows"])


def test_a_recorder_that_loads_is_seen(neo):
    (neo / "ai/services/neural-link/RecorderService.mjs").write_text(
        "const D = (await import('better-sqlite3')).default;\nnew D('/x/memory-core-graph.sqlite');\n"
    )
    code, report = check("--tree", neo, "--custody", neo.parent / "custody", cwd=neo)
    assert code == 3
    row = next(row for row in report["rows"] if row["criterion"] == "recorder")
    assert row["verdict"] == "fail"
    assert "RecorderService.mjs:1 dynamic import better-sqlite3" in row["detail"]
    assert "RecorderService.mjs:2 path literal" in row["detail"]


def test_the_rows_of_a_memory_core(neo, core):
    words = ["--tree", neo, "--custody", neo.parent / "custody", "--url", core.url]
    _, report = check(*words, cwd=neo, **{SLOT: core.token})
    found = verdicts(report)
    assert {found[k] for k in ("operations", "ingress", "write-only", "record-set")} == {"pass"}, report["rows"]


def tools(**changed):
    fields = {n: {} for n in ("sessionId", "timestamp", "tool", "success", "durationMs", "appName")}
    fields |= {"sequenceId": {"format": "uuid"}, "targets": {"properties": {"classNames": {}, "componentIds": {}}}}
    admit = {"properties": {"actions": {"items": {"properties": fields | changed.pop("fields", {})}}}}
    names = ("save_nl_transaction", "get_nl_transaction", "mark_nl_transaction_replayed")
    return {n: {} for n in names} | {"admit_nl_actions": admit, "healthcheck": {}} | changed


@pytest.mark.parametrize(
    ("look", "surface", "good"),
    [
        (_operations, tools(), True),
        (_operations, tools(list_nl_transactions={}), False),
        (_operations, {k: v for k, v in tools().items() if not k.startswith("mark")}, False),
        (_write_only, tools(), True),
        (_write_only, tools(read_nl_actions={}), False),
        (_write_only, tools(query_telemetry={}), False),
        (_record_set, tools(), True),
        (_record_set, tools(fields={"args": {}}), False),
        (_record_set, tools(fields={"targets": {"properties": {"classNames": {}, "text": {}}}}), False),
        (_record_set, {}, False),
    ],
)
def test_what_a_surface_may_hold(look, surface, good):
    subject = Subject(RULES, None, [], None, None, surface, "refused", "http://x")
    said = _of_the_core(look)(subject, None)
    assert (said.verdict == "pass") is good


def test_every_row_can_pass(tmp_path, neo):
    """A verdict that could never be `clear` would gate nothing."""
    from nl_cutover.denial.runtime import Armed, RunReport
    from nl_cutover.stores.holders import Holders, Looked

    class Store:
        id, holders = "s", Holders(Looked.EVERYWHERE)

    class Measured:
        class totals:
            archives = actions = unaccounted = unmeasurable = 0

        class control:
            ok = True

        stores, exit_code = [Store()], 0

    ran = RunReport("node x", 0, (Armed(1, 0, "v20", "node"),), (), (), "good")
    report = all_rows(Subject(RULES, neo, [], ran, Measured(), tools(), "refused", "http://x"))
    assert {row.verdict for row in report.rows} == {"pass"}
    assert (report.verdict, report.exit_code) == ("clear", 0)

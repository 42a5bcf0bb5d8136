"""`explain`: one sentence for a tired person, and the command to give now."""

import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest

from nl_cutover.custody.reading import Odd
from nl_cutover.migration.report import Archives, Marks, RunReport, TelemetryCounts, exit_code
from nl_cutover.papers.explaining import explain
from nl_cutover.papers.verifying import Paper
from tests.conftest import Operator
from tests.papers.conftest import plant


def run(archives=(), marks=(), telemetry=(), odd=()) -> RunReport:
    """A report with 10 archives and 10 actions, all of them where they belong but those that are named."""
    a, t = dict(archives), dict(telemetry)
    a = Archives(rows=10, **{"confirmed": 10 - sum(a.values()), "refused": 0, "unknown": 0, "pending": 0} | a)
    t = TelemetryCounts(
        rows=10, **{"admitted": 10 - sum(t.values()), "refused": 0, "left": 0, "discarded": 0, "unknown": 0} | t
    )
    m = Marks(**{"wanted": 4, "made": 4} | dict(marks))
    code = exit_code(a, m, t, None)
    return RunReport(
        run="r", verdict="", exit_code=int(code), at="", archives=a, marks=m, telemetry=t, losses=[], receipt=None,
        next_steps=[], custody="/custody", url="", odd=list(odd),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("report", "code", "why", "step"),
    [
        (run({"unknown": 3}), 7, "3 archives were sent, no answer came", "nl-cutover settle --graph"),
        (run({"unknown": 1}, telemetry={"unknown": 9}), 7, "1 archive and 9 actions were sent", "nl-cutover settle"),
        (run(marks={"made": 3, "unknown": 1}), 7, "1 replay mark was sent", "nl-cutover settle"),
        (run({"pending": 4}), 7, "the run ended early: 4 rows of 20", "nl-cutover migrate"),
        (run(marks={"made": 2}), 7, "2 replay marks have not been brought over", "nl-cutover migrate"),
        (
            run({"refused": 1}, odd=[Odd("archive", "k-1", "refused", "too large")]),
            7,
            "1 row cannot be brought over, k-1 among them (too large)",
            "nl-cutover settle --row k-1=exclude",
        ),
        (
            run({"differs": 1}, odd=[Odd("archive", "k-2", "differs", "at ops")]),
            8,
            "k-2 among them",
            "/custody/evidence",
        ),
        (run(telemetry={"left": 10}), 3, "nobody has decided", "--telemetry discard=10"),
        (run(), 0, "nothing blocks it", "nl-cutover verify"),
        (run({"unknown": 1, "pending": 2, "refused": 1}), 7, "nobody knows", "nl-cutover settle"),
    ],
)
def test_what_the_ledger_says(report, code, why, step):
    told = explain(report, [])
    assert (told.exit_code, told.verdict) == (code, "ready" if code == 0 else "blocked")
    assert why in told.why
    assert step in told.next_steps[0]
    assert "\n" not in told.why
    assert len(told.why) < 200


def test_what_the_receipts_say(receipts):
    chain = [one.receipt for one in Paper(receipts).chains[0]]
    told = [explain(run(), chain[:n]) for n in range(1, 9)]
    assert [t.verdict for t in told[2:]] == ["ready", "ready", "ready", "blocked", "landed", "landed"]
    assert told[1].why == "15 rows on the host came after this run and nobody has carried them"
    assert "was read back at" in told[4].why
    assert told[4].next_steps == ["nl-cutover cut CHECKOUT... -- COMMAND"]
    assert "nobody wrote down how it ended" in told[5].why
    assert told[5].exit_code == 7


def changed(receipt, **outcome):
    return msgspec.structs.replace(receipt, outcome=msgspec.structs.replace(receipt.outcome, **outcome))


def test_a_cut_that_did_not_land_and_one_that_did_and_is_not_proved(receipts):
    *before, cut, _ = [one.receipt for one in Paper(receipts).chains[0]]
    late = changed(cut, exit_code=3, command=None, reasons=["1 of 7 rows of x in store y is not accounted for"])
    told = explain(run(), [*before, late])
    assert "rows came to the host after they were brought over: 1 of 7 rows" in told.why
    assert told.next_steps[0].startswith("nl-cutover migrate")
    held = explain(run(), [*before, changed(cut, exit_code=3, command=None, reasons=["store y stayed locked"])])
    assert "did not land: store y stayed locked" in held.why
    leaky = explain(run(), [*before, changed(cut, exit_code=8, reasons=["a seal was gone after the landing"])])
    assert (leaky.verdict, leaky.exit_code) == ("blocked", 8)
    assert "it landed at" in leaky.why
    assert "a seal was gone" in leaky.why


def test_after_a_landing_only_what_is_not_clear_says_more(receipts):
    chain = [one.receipt for one in Paper(receipts).chains[0]]
    refused = changed(chain[7], exit_code=3, totals=msgspec.structs.replace(chain[7].outcome.totals, unaccounted=2))
    told = explain(run(), [*chain[:7], refused])
    assert (told.verdict, told.exit_code) == ("blocked", 3)
    assert told.why == "2 rows on the host came after this run and nobody has carried them"


def test_from_the_command_line_on_a_real_run(tmp_path, core):
    operator = Operator(tmp_path, core.url, core.token)
    assert operator("explain").code == 4
    assert "begin one with: nl-cutover migrate" in operator("explain").err
    path = plant(tmp_path / "codex", archives=2, actions=3, seed=903)
    assert operator("migrate", path, "--owner", "neo-operator").code == 3
    done = operator("explain")
    assert done.code == 3
    assert done.json["why"].startswith("3 rows of telemetry are still on the host")
    assert operator("migrate", path, "--owner", "neo-operator", "--telemetry", "admit").code == 0
    assert operator("explain", done.json["run"]).json["verdict"] == "ready"
    ledger = sqlite3.connect(operator.custody / "ledger.sqlite")
    with ledger:
        ledger.execute("UPDATE archives SET state = 'unknown', archive_id = NULL WHERE id = 1")
    ledger.close()
    done = operator("explain", json=False)
    assert done.code == 7
    assert "nobody knows whether Memory Core has it" in done.out
    assert "nl-cutover settle --graph FILE" in done.out


def test_status_knows_what_the_receipts_know(whole_road, tmp_path):
    custody = Path(shutil.copytree(whole_road.custody, tmp_path / "custody"))
    operator = Operator(tmp_path, None, None)

    def step():
        done = operator("status", "--custody", custody)
        assert done.code == 0
        return done.json["next_steps"]

    receipts = sorted((custody / "receipts").iterdir())
    (landed,) = step()
    assert landed.startswith("nl-cutover report (it landed at ")
    for receipt in receipts[5:]:
        receipt.unlink()
    (verified,) = step()
    assert verified.startswith("nl-cutover cut")
    for receipt in receipts[3:5]:
        receipt.unlink()
    (migrated,) = step()
    assert migrated.startswith("nl-cutover verify")

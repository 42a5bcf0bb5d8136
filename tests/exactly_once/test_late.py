"""Calls that reach the server after the client has given them up: absence is believed only when it is final."""

import sqlite3

import pytest

from nl_cutover.migration.evidence import GraphFile
from nl_cutover.migration.settle import QUIET_S
from nl_cutover.testing import FixedClock
from nl_cutover.verdicts import ExitCode
from tests.exactly_once.fault_proxy import WRITING, FaultProxy, leave_alone
from tests.exactly_once.migration import Migration, now_ms

DEADLINE_MS = 60_000  # how long the call takes by the ledger's clock; it is the default deadline
QUIET_MS = int(QUIET_S * 1000)
SAVE, MARK, ADMIT = WRITING


class First:
    """Holds back the first call of a tool. `held` is told before the client can give it up."""

    def __init__(self, tool, held=lambda: None):
        self._tool, self._met, self._held = tool, False, held

    def __call__(self, tool, subject):
        if tool != self._tool or self._met:
            return "untouched"
        self._met = True
        self._held()
        return "held back"


@pytest.fixture
def made(core, tmp_path):
    return Migration(tmp_path, core, archives=8, actions=6, seed=9_033)


def everything_is_there_once(made):
    archives = made.graph.archives()
    assert sorted(a["sourceTxId"] for a in archives) == sorted(a["source_tx_id"] for a in made.archives.values())
    wanted = {row["source_tx_id"]: row["replay_count"] for row in made.archives.values()}
    assert {a["sourceTxId"]: a["replayCount"] for a in archives} == wanted
    assert sorted(a["timestamp"] for a in made.graph.actions()) == sorted(a["timestamp"] for a in made.actions.values())


@pytest.mark.parametrize("tool", WRITING)
def test_absence_right_after_a_deadline_decides_nothing(core, made, tool):
    clock = FixedClock(now_ms())
    evidence = GraphFile(core.db, clock)
    with FaultProxy(core.url, First(tool, lambda: clock.advance(DEADLINE_MS))) as proxy:
        first = made.run(proxy, clock=clock, call_timeout=2)
        assert (first.archives.unknown, first.marks.unknown, first.telemetry.unknown) == (
            int(tool == SAVE),
            int(tool == MARK),
            len(made.actions) * (tool == ADMIT),
        )
        proxy.judge = leave_alone
        clock.advance(QUIET_MS // 2)
        made.run(proxy, clock=clock, evidence=evidence)
        proxy.deliver()
        clock.advance(QUIET_MS)
        last = made.run(proxy, clock=clock, evidence=evidence)
    everything_is_there_once(made)
    assert last.exit_code == ExitCode.PROVED


def test_a_mark_that_was_in_flight_when_the_process_died_is_not_made_again_at_once(core, made):
    clock = FixedClock(now_ms())
    with FaultProxy(core.url, First(MARK)) as proxy:
        assert made.run(proxy, clock=clock, call_timeout=2).marks.unknown == 1
        ledger = sqlite3.connect(made.custody / "ledger.sqlite")
        # As a SIGKILL would have left it: only the intent is there.
        ledger.execute("UPDATE archives SET marks_state = 'intended' WHERE marks_state = 'unknown'")
        ledger.commit()
        ledger.close()
        proxy.judge = leave_alone
        made.run(proxy, clock=clock)
        proxy.deliver()
        clock.advance(QUIET_MS + 1)
        made.run(proxy, clock=clock, evidence=GraphFile(core.db, clock))
    everything_is_there_once(made)

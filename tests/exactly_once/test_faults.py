"""Each fault by itself: what it is taken for, what the server holds after it, and that the next call is not spoilt."""

import json
import time

import pytest

from nl_cutover.ingress.endpoint import Endpoint, Token
from nl_cutover.ingress.operations import Operations
from nl_cutover.ingress.session import Session
from nl_cutover.verdicts import Delivered, NotSent, Unknown
from tests.conftest import FIRST
from tests.exactly_once.fault_proxy import ASKED, FAULTS, FaultProxy, Kind
from tests.exactly_once.graph import Graph

CALL_TIMEOUT_S = 1.0
TRANSACTION = {
    "txId": "tx:1",
    "status": "committed",
    "committedAt": 1750000000123,
    "originWriter": {"agentId": "a", "sessionId": "s"},
    "ops": [{"label": "ü\u2028"}],
}
SAVE = json.dumps({"transaction": TRANSACTION, "appSessionId": None, "name": "n"}, ensure_ascii=False).encode()
ADMIT = json.dumps(
    {
        "actions": [
            {
                "sequenceId": "00000000-0000-4000-8000-000000000001",
                "sessionId": None,
                "timestamp": time.time_ns() // 1_000_000,
                "tool": "healthcheck",
                "success": True,
                "durationMs": 1,
                "appName": None,
                "targets": {"classNames": [], "componentIds": []},
            }
        ]
    }
).encode()
OUTCOMES = {
    Kind.PLAIN: Delivered,
    Kind.DISGUISED: Delivered,
    Kind.TURNED_AWAY: Delivered,
    Kind.SPOILED: Unknown,
    Kind.SWALLOWED: Unknown,
    Kind.TOO_LARGE: NotSent,
    Kind.WALL: NotSent,
}


class Once:
    """Names the fault for the first call of a tool, and leaves every later one alone."""

    def __init__(self, fault):
        self._fault, self._met = fault, set()

    def __call__(self, tool, subject):
        if tool in self._met:
            return "untouched"
        self._met.add(tool)
        return self._fault


class Calls:
    """The three writing calls in an order in which each can be made, and how many of each the graph holds."""

    def __init__(self, operations, graph):
        self._operations, self._graph = operations, graph
        self._archive_id = None

    def save(self):
        outcome = self._operations.save(SAVE)
        if isinstance(outcome, Delivered):
            self._archive_id = outcome.result["archiveId"]
        return outcome, len(self._graph.archives())

    def admit(self):
        return self._operations.admit(ADMIT, 1), len(self._graph.actions())

    def mark(self):
        outcome = self._operations.mark(self._archive_id)
        return outcome, sum(archive["replayCount"] for archive in self._graph.archives())


@pytest.mark.parametrize("fault", [name for name, fault in FAULTS.items() if fault.kind is not Kind.LATE])
def test_a_fault(fault, core):
    kind = FAULTS[fault].kind
    committed = int(kind in ASKED or kind is Kind.TURNED_AWAY)
    with FaultProxy(core.url, Once(fault)) as proxy:
        with Session(Endpoint(proxy.url, Token(core.token), call_timeout=CALL_TIMEOUT_S)) as session:
            calls = Calls(Operations(session), Graph(core.db))
            # A server that strips the tokens of telemetry is sent none.
            made = [calls.save, *([calls.admit] if core.shape != FIRST else []), calls.mark]
            for call in made:
                began = time.monotonic()
                outcome, held = call()
                assert isinstance(outcome, OUTCOMES[kind]), outcome
                assert held == committed
                assert time.monotonic() - began < CALL_TIMEOUT_S + 2
                again, held = call()
                assert isinstance(again, Delivered), again
                assert held == committed + 1
            assert session.refused_server_requests == (len(made) if fault == "a question first" else 0)

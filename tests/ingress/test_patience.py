"""A server that says it is busy: who may wait for it, for how long, and that the waiting is told."""

from datetime import UTC, datetime

import httpx
import pytest

from nl_cutover.ingress.operations import Operations
from nl_cutover.ingress.session import Session
from nl_cutover.verdicts import Delivered, NotSent, Unknown
from tests.ingress.fake import Scripted, endpoint, event, message, sse, tool_result

NOW = datetime(2026, 11, 30, 14, tzinfo=UTC)
FOUND = {"status": "found", "archiveId": "a"}


class Busy(Scripted):
    """Says it is busy `times` times; then it answers."""

    def __init__(self, code: int, times: int, *, handshake: bool = False, **headers: str) -> None:
        super().__init__(self._say)
        self.left, self._code, self._handshake, self._headers = times, code, handshake, headers

    def _refuses(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self._handshake and b'"initialize"' in request.read() and self._refuses():
            return httpx.Response(self._code, headers=self._headers)
        return super().handle_request(request)

    def _say(self, request: httpx.Request, body: dict) -> httpx.Response:
        if not self._handshake and self._refuses():
            return httpx.Response(self._code, headers=self._headers)
        value = FOUND if body["params"]["name"] == "get_nl_transaction" else {"saved": True, "archiveId": "a"}
        return sse(event(message(body["id"], tool_result(value))))


def session(transport: httpx.BaseTransport, wait_budget: float = 30.0) -> tuple[Session, list[float]]:
    pauses: list[float] = []
    return Session(endpoint(wait_budget=wait_budget), transport=transport, sleep=pauses.append, now=lambda: NOW), pauses


@pytest.mark.parametrize(
    ("said", "pause"), [("7", 7), ("Mon, 30 Nov 2026 14:00:09 GMT", 9), ("0", 0.2), ("soon", 1), (None, 1)]
)
@pytest.mark.parametrize("handshake", [False, True])
@pytest.mark.parametrize("code", [429, 503])
def test_a_reading_call_and_the_handshake_wait_as_they_are_told(code, handshake, said, pause):
    headers = {} if said is None else {"retry-after": said}
    made, pauses = session(Busy(code, 2, handshake=handshake, **headers))
    assert isinstance(Operations(made).get("a"), Delivered)
    assert pauses == [pause, pause]
    assert made.waited == 2 * pause


def test_a_write_waits_for_a_busy_handshake_because_nothing_of_it_has_left():
    made, pauses = session(Busy(503, 1, handshake=True, **{"retry-after": "3"}))
    assert isinstance(Operations(made).save(b"{}"), Delivered)
    assert pauses == [3]


def test_a_writes_429_proves_that_it_was_not_executed_and_its_503_proves_nothing():
    made, pauses = session(Busy(429, 1, **{"retry-after": "2"}))
    assert isinstance(Operations(made).save(b"{}"), Delivered)
    assert pauses == [2]
    transport = Busy(503, 1, **{"retry-after": "2"})
    made, pauses = session(transport)
    assert isinstance(Operations(made).save(b"{}"), Unknown)
    assert (pauses, len(transport.requests)) == ([], 1)


@pytest.mark.parametrize(("code", "kind"), [(429, NotSent), (503, Unknown)])
def test_the_budget_is_of_one_call_and_ends(code, kind):
    made, pauses = session(Busy(code, 9, **{"retry-after": "10"}), wait_budget=25)
    assert isinstance(Operations(made).get("a"), kind)
    assert pauses == [10, 10]
    assert isinstance(Operations(made).get("a"), kind)
    assert made.waited == 40


def test_without_a_budget_nobody_waits():
    made, pauses = session(Busy(429, 1, **{"retry-after": "0"}), wait_budget=0)
    assert isinstance(Operations(made).get("a"), NotSent)
    assert pauses == []


def test_a_handshake_that_stays_busy_sent_nothing():
    made, _ = session(Busy(503, 99, handshake=True), wait_budget=2)
    outcome = Operations(made).save(b"{}")
    assert isinstance(outcome, NotSent)
    assert outcome.kind == "busy"


@pytest.mark.parametrize(("code", "kind"), [(429, NotSent), (503, Unknown)])
def test_a_wait_that_is_ended_asks_no_more(code, kind):
    transport = Busy(code, 9, **{"retry-after": "5"})
    made = Session(endpoint(wait_budget=30), transport=transport, sleep=lambda seconds: True, now=lambda: NOW)
    assert isinstance(Operations(made).get("a"), kind)
    assert len(transport.requests) == 1

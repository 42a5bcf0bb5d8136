"""What a host says and what it hears: entries, a transport that keeps what went over the wire, servers that misbehave."""

import json
import threading
import time

import httpx

from nl_cutover.contract.wire import ADMIT
from nl_cutover.ingress.session import Session
from tests.ingress.fake import Scripted, endpoint, event, message, sse, tool_result

ENTRY = {
    "id": "row-id",
    "agent_id": "neo-opus-vega",
    "session_id": "session-ü",
    "sequence_id": "neo-opus-vega_7",
    "timestamp": 1_750_000_000_123,
    "tool": "set_instance_properties",
    "args": {"id": "列-1", "properties": {"className": "Neo.button.Base", "text": "SECRET"}},
    "result": '{"ok":true}',
    "success": 1,
    "duration_ms": 12.5,
    "app_name": "アプリ",
    "reward": 1,
}
TRANSACTION = {
    "txId": "tx:列:1",
    "status": "committed",
    "committedAt": 1_750_000_000_123,
    "originWriter": {"agentId": "агент-7", "sessionId": "s"},
    "ops": [
        {"forward": {"tool": "set", "args": {"id": "ü", "n": [0.5, -1, 1e21, None, True]}}, "label": "𝒳 \ud83d"},
        {"reverse": {}},
    ],
}


class Admitting(Scripted):
    """Admits everything. `hold` makes it wait for an event before it answers; `delay` is in seconds."""

    def __init__(self, hold: threading.Event | None = None, delay: float = 0.0) -> None:
        super().__init__(self._answer)
        self.actions: list[dict] = []
        self._hold, self._delay = hold, delay

    def _answer(self, request: httpx.Request, body: dict) -> httpx.Response:
        assert body["params"]["name"] == ADMIT
        if self._hold is not None:
            assert self._hold.wait(60)
        time.sleep(self._delay)
        actions = body["params"]["arguments"]["actions"]
        self.actions += actions
        result = tool_result({"admitted": len(actions), "refused": 0})
        return sse(event(message(body["id"], result)))


class Keeping(httpx.HTTPTransport):
    """A real transport that keeps the bytes of every request."""

    def __init__(self) -> None:
        super().__init__(verify=False)
        self.sent: list[bytes] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        head = b"".join(name + b": " + value + b"\r\n" for name, value in request.headers.raw)
        self.sent.append(bytes(request.url.raw_path) + b"\r\n" + head + request.read())
        return super().handle_request(request)


def over(transport: httpx.BaseTransport, **options):
    """A `connect` for the recorder over a transport."""
    return lambda: Session(endpoint(**{"wait_budget": 0} | options), transport=transport)


def adds_up(stats) -> bool:
    return stats.recorded == stats.admitted + stats.refused + stats.dropped + stats.failed + stats.pending


def wire_actions(sent: list[bytes]) -> list[dict]:
    bodies = [json.loads(one[one.index(b"{") :]) for one in sent if b'"tools/call"' in one]
    return [action for body in bodies for action in body["params"]["arguments"].get("actions", [])]

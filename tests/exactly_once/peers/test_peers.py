"""The client against servers that nobody here wrote: the Python and the TypeScript SDK, in each of their modes."""

import json
from collections import Counter

import httpx
import pytest

from nl_cutover.contract import javascript as js
from nl_cutover.errors import UnreachableError
from nl_cutover.ingress.operations import Operations
from nl_cutover.ingress.preflight import preflight
from nl_cutover.ingress.session import Session
from nl_cutover.verdicts import Delivered, NotSent, Refused
from tests.exactly_once.peers.peer import Peer, Wire, node_command, python_command
from tests.ingress.fake import endpoint

MODES = {
    "sse-stateful": [],
    "json-stateful": ["json"],
    "sse-stateless": ["stateless"],
    "json-stateless": ["json", "stateless"],
}
TEXT = "ü 列 𝒳 👩‍👩‍👧 שם \u2028\u2029\u0085\x7f"
LONE_SURROGATE = '"\\ud83d and \\udc00"'


@pytest.fixture(
    scope="module",
    params=[pytest.param(("python", mode), id=f"python-{mode}") for mode in MODES]
    + [pytest.param(("node", mode), id=f"node-{mode}", marks=pytest.mark.node) for mode in MODES],
)
def peer(request, tmp_path_factory):
    kind, mode = request.param
    command, folder = python_command() if kind == "python" else node_command()
    peer = Peer(kind, command, MODES[mode], folder, tmp_path_factory.mktemp("peer") / "log")
    yield peer
    peer.close()


class Client:
    """`executed` counts what the peer executed since the client was made, or since the peer was started anew."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._before = peer.executed()
        self.wire = Wire()
        self.session = Session(endpoint(peer.url, call_timeout=20), transport=self.wire)
        self.operations = Operations(self.session)

    def executed(self) -> dict[str, int]:
        return dict(self._peer.executed() - self._before)

    def restart_peer(self) -> None:
        self._peer.restart()
        self._before = Counter()

    def saved(self, arguments: bytes) -> str:
        outcome = self.operations.save(arguments)
        assert isinstance(outcome, Delivered), outcome
        return outcome.result["archiveId"]


@pytest.fixture
def client(peer):
    client = Client(peer)
    yield client
    client.session.close()


def save_arguments(label: str = json.dumps(TEXT, ensure_ascii=False), **changes) -> bytes:
    parts = {
        "txId": '"tx:列:1"',
        "status": '"committed"',
        "committedAt": "1750000000123",
        "originWriter": '{"agentId":"агент-7","sessionId":"s"}',
        "ops": f'[{{"label":{label},"n":[0.5,-1,1e21,null]}}]',
    } | changes
    members = ",".join(f'"{name}":{text}' for name, text in parts.items())
    return f'{{"transaction":{{{members}}},"appSessionId":null,"name":"ü"}}'.encode()


def admit_arguments(count: int) -> bytes:
    action = {
        "sessionId": None,
        "timestamp": 1750000000123,
        "tool": TEXT,
        "success": True,
        "durationMs": None,
        "appName": "アプリ",
        "targets": {"classNames": ["Neo.Grid"], "componentIds": []},
    }
    rows = [{"sequenceId": f"00000000-0000-4000-8000-{n:012d}", **action} for n in range(count)]
    return json.dumps({"actions": rows}, ensure_ascii=False).encode()


def test_the_preflight_passes(client):
    plane = preflight(client.session, expected_plane="peer")
    assert plane.server.split()[0] in ("python-peer", "typescript-peer")
    assert plane.protocol_version == "2025-06-18"


def test_the_session_and_its_end(peer):
    client = Client(peer)
    assert isinstance(client.session.request("tools/list"), Delivered)
    client.session.close()
    method, session_id, status = client.wire.exchanges[-1]
    if peer.stateless:
        assert {sent for _, sent, _ in client.wire.exchanges} == {None}
        assert method == "POST"
        return
    assert (method, status) == ("DELETE", 200)
    assert session_id
    body = {"jsonrpc": "2.0", "id": 9, "method": "tools/list", "params": {}}
    headers = {"accept": "application/json, text/event-stream", "mcp-session-id": session_id}
    assert httpx.post(peer.url, json=body, headers=headers, trust_env=False).status_code in (400, 404)


def test_a_round_trip(client):
    archive_id = client.saved(save_arguments())
    for count in (1, 2):
        marked = client.operations.mark(archive_id)
        assert isinstance(marked, Delivered)
        assert marked.result["replayCount"] == count
    found = client.operations.get(archive_id)
    assert isinstance(found, Delivered)
    assert found.result["status"] == "found"
    assert found.result["ops"] == [{"label": TEXT, "n": [0.5, -1, 1e21, None]}]
    assert found.result["originWriter"]["agentId"] == "агент-7"
    assert found.result["replayCount"] == 2
    assert client.operations.get("nowhere").result == {"status": "not-found"}
    admitted = client.operations.admit(admit_arguments(100), 100)
    assert isinstance(admitted, Delivered)
    assert client.executed() == {"save": 1, "mark": 2, "admit": 1, "actions": 100}


def test_a_lone_surrogate_arrives_or_is_refused_before_anything_is_stored(peer, client):
    outcome = client.operations.save(save_arguments(LONE_SURROGATE))
    if peer.kind == "python":  # its JSON parser takes no lone surrogates
        assert isinstance(outcome, Refused)
        assert outcome.reason.startswith("400")
        assert client.executed() == {}
        return
    assert isinstance(outcome, Delivered)
    found = client.operations.get(outcome.result["archiveId"])
    assert found.result["ops"][0]["label"] == js.parse(LONE_SURROGATE)
    assert client.executed() == {"save": 1}


@pytest.mark.parametrize(
    "arguments",
    [save_arguments(ops="[]"), b'{"transaction":"no object"}', b"{}"],
    ids=["by its own rule", "by its schema", "for lack of an argument"],
)
def test_a_refused_call_is_refused_once(client, arguments):
    outcome = client.operations.save(arguments)
    assert isinstance(outcome, Refused), outcome
    assert outcome.reason
    assert sum(status == 200 for _, _, status in client.wire.exchanges) == 2, "the handshake and one call"
    assert client.executed().get("save", 0) <= 1


def test_an_unknown_tool_is_refused(client):
    assert isinstance(client.session.call("no_such_tool", b"{}"), Refused)


def test_after_a_restart_the_session_is_rebuilt_and_nothing_is_doubled(peer, client):
    client.saved(save_arguments())
    client.restart_peer()
    client.saved(save_arguments())
    assert isinstance(client.operations.admit(admit_arguments(3), 3), Delivered)
    assert client.executed() == {"save": 1, "admit": 1, "actions": 3}
    lost = [status for _, _, status in client.wire.exchanges if status in (400, 404)]
    assert len(lost) == (0 if peer.stateless else 1)


def test_while_the_peer_is_down_nothing_leaves(peer, client):
    client.saved(save_arguments())
    peer.stop()
    outcome = client.operations.save(save_arguments())
    assert isinstance(outcome, NotSent)
    assert outcome.kind == "unreachable"
    with pytest.raises(UnreachableError):
        preflight(client.session, expected_plane="peer")
    client.restart_peer()
    client.saved(save_arguments())
    assert client.executed() == {"save": 1}

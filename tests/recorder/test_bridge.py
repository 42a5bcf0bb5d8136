"""The bridge: a Node host on the TypeScript SDK speaks stdio to it, and it speaks to Memory Core."""

import json
import os
import subprocess
import sys

import httpx
import pytest

from nl_cutover.contract.wire import OPERATIONS
from nl_cutover.recorder import Archive
from nl_cutover.recorder.bridge import Bridge, UnknownOutcomeError
from nl_cutover.recorder.connection import Connection
from tests.exactly_once.peers.peer import PACKAGES
from tests.ingress.fake import Scripted, event, message, sse, tool_result
from tests.node import node, node_modules
from tests.recorder.host import ENTRY, TRANSACTION, over

HOST = os.path.join(os.path.dirname(__file__), "bridge_host.mjs")
ON = {"NEO_NL_ACTION_LOGGING": "true"}


@pytest.fixture
def converse(tmp_path, core):
    """`converse(calls, **environ)`: what a Node host hears that makes these calls through the bridge."""
    folder = node_modules(*PACKAGES)

    def run(*calls, bridge=(), **environ):
        script = tmp_path / "calls.json"
        script.write_text(json.dumps([{"name": name, "arguments": arguments} for name, arguments in calls]))
        command = [node(), HOST, script, sys.executable, "-m", "nl_cutover", "recorder", "bridge", "--url", core.url]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("NEO_")}
        clean |= {"NEO_MCP_REMOTE_TOKEN": core.token, "PYTHONPATH": os.getcwd()} | environ
        done = subprocess.run(
            [*command, *bridge], cwd=folder, env=clean, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == 0, done.stderr
        assert core.token not in done.stdout + done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.node
def test_a_node_host_saves_reads_and_marks_through_the_bridge(converse):
    heard = converse(
        ("save_nl_transaction", {"transaction": TRANSACTION, "name": " n ", "appSessionId": None}),
        ("get_nl_transaction", {"archiveId": "$LAST"}),
        ("mark_nl_transaction_replayed", {"archiveId": "$LAST"}),
        ("get_nl_transaction", {"archiveId": "$LAST"}),
        ("get_nl_transaction", {"archiveId": "nowhere"}),
        ("mark_nl_transaction_replayed", {"archiveId": "nowhere"}),
    )
    saved, found, marked, again, absent, unmarked = (answer["value"] for answer in heard["answers"])
    assert saved["saved"] is True
    assert found["ops"] == TRANSACTION["ops"], "the lone surrogate too"
    assert (found["status"], found["name"], found["custodian"]) == ("found", "n", "neo-operator")
    assert (found["originWriter"], found["replayCount"]) == (TRANSACTION["originWriter"], 0)
    assert marked["updated"] is True
    assert (marked["replayCount"], again["replayCount"]) == (1, 1)
    assert absent == {"status": "not-found"}
    assert unmarked == {"updated": False, "status": "not-found"}
    assert heard["answers"][0]["structured"] == saved


@pytest.mark.node
def test_it_has_the_four_operations_and_initiates_nothing(converse):
    heard = converse()
    assert sorted(tool["name"] for tool in heard["tools"]) == sorted(OPERATIONS)
    assert set(heard["capabilities"]) <= {"tools", "experimental"}
    assert heard["initiated"] == []


@pytest.mark.node
def test_projection_and_gate_are_applied_on_the_way(converse, admitted):
    entry = {**ENTRY, "tool": "bridge-entry-component", "agent_id": "SECRET-agent"}
    wire = {
        "sequenceId": "neo-opus-vega_7",
        "sessionId": None,
        "timestamp": 5,
        "tool": "bridge-wire",
        "success": True,
        "durationMs": None,
        "appName": "a",
        "targets": {"classNames": ["C", 7], "componentIds": ["x"]},
        "agent_id": "SECRET-agent",
    }
    bad = {**ENTRY, "tool": 7}
    rows = {"actions": [entry, wire, bad, None]}
    (answer,) = converse(("admit_nl_actions", rows), **ON)["answers"]
    assert answer["value"] == {"admitted": 2, "refused": 2}
    (row,) = admitted("bridge-entry-component")
    assert row["targets"] == {"classNames": ["Neo.button.Base"], "componentIds": ["列-1"]}
    (other,) = admitted("bridge-wire")
    assert other["targets"] == {"classNames": ["C"], "componentIds": ["x"]}
    assert row["sequenceId"] == other["sequenceId"] != "neo-opus-vega_7"
    assert "SECRET" not in json.dumps([row, other])


@pytest.mark.node
def test_while_the_gate_is_off_admitting_is_refused_visibly_and_archives_go_on(converse, admitted):
    heard = converse(
        ("admit_nl_actions", {"actions": [{**ENTRY, "tool": "bridge-gated"}]}),
        ("save_nl_transaction", {"transaction": TRANSACTION}),
    )
    gated, saved = (answer["value"] for answer in heard["answers"])
    assert (gated["admitted"], gated["refused"]) == (0, 1)
    assert "NEO_NL_ACTION_LOGGING is not on" in gated["reason"]
    assert admitted("bridge-gated") == []
    assert saved["saved"] is True


@pytest.mark.node
def test_what_does_not_fit_is_an_error_and_the_next_call_is_answered(converse):
    heard = converse(
        ("save_nl_transaction", {"transaction": "no object"}),
        ("save_nl_transaction", {}),
        ("get_nl_transaction", {"archiveId": 7}),
        ("healthcheck", {}),
        ("save_nl_transaction", {"transaction": {**TRANSACTION, "ops": [{"a": {"module": 1}}]}}),
        ("save_nl_transaction", {"transaction": {**TRANSACTION, "ops": []}}),
    )
    assert [a["isError"] for a in heard["answers"]] == [True, True, True, True, False, False]
    assert heard["answers"][4]["value"] == {
        "saved": False,
        "reason": "transaction-not-data-only: ops[0].a.module is a module reference",
    }
    assert heard["answers"][5]["value"] == {"saved": False, "reason": "invalid-transaction"}


def bridge_over(transport, enabled=True):
    connection = Connection(over(transport))
    return Bridge(Archive(connection), connection, enabled=enabled)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("save_nl_transaction", {"transaction": TRANSACTION}),
        ("mark_nl_transaction_replayed", {"archiveId": "a"}),
        ("admit_nl_actions", {"actions": [ENTRY]}),
    ],
)
def test_an_unknown_outcome_is_an_error_and_never_a_no(tool, arguments):
    bridge = bridge_over(Scripted(lambda request, body: httpx.Response(502)))
    with pytest.raises(UnknownOutcomeError, match="502"):
        bridge.call(tool, arguments)


def test_while_memory_core_is_away_each_operation_says_so():
    def refuse(request):
        raise httpx.ConnectError("connection refused")

    bridge = bridge_over(httpx.MockTransport(refuse))
    reason = "archive-store-unavailable: connection refused"
    assert bridge.call("save_nl_transaction", {"transaction": TRANSACTION}) == {"saved": False, "reason": reason}
    assert bridge.call("get_nl_transaction", {"archiveId": "a"}) == {"status": "unavailable", "reason": reason}
    assert bridge.call("mark_nl_transaction_replayed", {"archiveId": "a"})["updated"] is False
    told = bridge.call("admit_nl_actions", {"actions": [ENTRY, None]})
    assert told == {"admitted": 0, "refused": 2, "reason": "connection refused"}


def test_more_actions_than_a_request_takes_go_in_several():
    sizes = []

    def answer(request, body):
        sizes.append(len(body["params"]["arguments"]["actions"]))
        return sse(event(message(body["id"], tool_result({"admitted": sizes[-1], "refused": 0}))))

    bridge = bridge_over(Scripted(answer))
    assert bridge.call("admit_nl_actions", {"actions": [ENTRY] * 230}) == {"admitted": 230, "refused": 0}
    assert sizes == [100, 100, 30]


def test_without_a_token_it_does_not_start(operator):
    del operator.environ["NEO_MCP_REMOTE_TOKEN"]
    command = [sys.executable, "-m", "nl_cutover", "recorder", "bridge"]
    done = subprocess.run(command, env=operator.environ, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (6, "")
    assert "NEO_MCP_REMOTE_TOKEN is not set" in done.stderr


def test_what_is_nested_deep_is_read_or_refused_and_always_answered(core):
    """A raw client: what the SDK's parser takes for no message at all would leave a host waiting."""
    command = [sys.executable, "-m", "nl_cutover", "recorder", "bridge", "--url", core.url]
    environ = os.environ | {"NEO_MCP_REMOTE_TOKEN": core.token}
    opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as bridge:

        def ask(line):
            bridge.stdin.write(line + "\n")
            bridge.stdin.flush()
            return json.loads(bridge.stdout.readline())

        def call(number, name, arguments):
            head = f'{{"method":"tools/call","params":{{"name":"{name}","arguments":{arguments}}}'
            answer = ask(f'{head},"jsonrpc":"2.0","id":{number}}}')
            assert answer["id"] == number
            return answer["result"]["isError"], answer["result"]["content"][0]["text"]

        def save(number, op):
            return call(number, "save_nl_transaction", json.dumps({"transaction": TRANSACTION | {"ops": [op]}}))

        ask(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}))
        op = json.loads("[" * 500 + "]" * 500)
        made = json.loads(save(2, op)[1])["archiveId"]
        error, text = call(3, "get_nl_transaction", json.dumps({"archiveId": made}))
        assert (error, json.loads(text)["ops"]) == (False, [op])
        for number, odd in enumerate(("[" * 5_000 + "]" * 5_000, "[1e999]", "[NaN]", "9" * 5_000), 4):
            error, text = call(number, "save_nl_transaction", f'{{"transaction":{{"id":99,"ops":{odd}}}}}')
            assert error
            assert "cannot be read" in text
        bridge.stdin.close()
        assert bridge.wait(40) == 0
        assert bridge.stdout.read() == ""


def test_a_batch_is_answered_with_one_error_and_nothing_of_it_is_done(core, nodes):
    """MCP took batches until 2025-03-26, and a host that still sends one must not wait for ever."""
    command = [sys.executable, "-m", "nl_cutover", "recorder", "bridge", "--url", core.url]
    environ = os.environ | {"NEO_MCP_REMOTE_TOKEN": core.token}
    opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    arguments = {"transaction": TRANSACTION | {"txId": "of-a-batch"}}
    save = {"method": "tools/call", "params": {"name": "save_nl_transaction", "arguments": arguments}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening},
        [{"jsonrpc": "2.0", "id": 2} | save, {"jsonrpc": "2.0", "id": 3} | save],
        [],
        {"jsonrpc": "2.0", "id": 4, "method": "ping"},
    ]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as bridge:
        bridge.stdin.write("".join(f" {json.dumps(line)}\n" for line in lines))
        bridge.stdin.flush()
        heard = [json.loads(bridge.stdout.readline()) for _ in lines]
        bridge.stdin.close()
        assert bridge.wait(40) == 0
        assert bridge.stdout.read() == ""
    refused = [one for one in heard if "error" in one]
    assert [(one["id"], one["error"]["code"]) for one in refused] == [(None, -32600)] * 2
    assert {one["id"] for one in heard} == {1, None, 4}
    assert not [node for node in nodes("nl-transaction-archive") if node["sourceTxId"] == "of-a-batch"]


@pytest.mark.parametrize(("ending", "code"), [("stdin", 0), ("signal", 130)])
def test_it_ends_when_the_host_ends_it(core, ending, code):
    command = [sys.executable, "-m", "nl_cutover", "recorder", "bridge", "--url", core.url]
    environ = os.environ | {"NEO_MCP_REMOTE_TOKEN": core.token}
    opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as bridge:
        first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}
        bridge.stdin.write(json.dumps(first).encode() + b"\n")
        bridge.stdin.flush()
        assert json.loads(bridge.stdout.readline())["id"] == 1
        if ending == "signal":
            bridge.terminate()
            assert bridge.wait(10) == code
        else:
            bridge.stdin.close()
            assert bridge.wait(10) == code
        assert bridge.stdout.read() == b""

"""Nothing listens, nothing is stored, and what a server asks for is refused: every exchange begins at the host."""

import json
import os
import subprocess
import sys

import httpx
import pytest

from nl_cutover.recorder import Archive, Found, Telemetry
from tests.ingress.fake import Scripted, event, message, sse, tool_result
from tests.recorder.host import ENTRY, TRANSACTION, over

WATCH = """
import socket, sys
seen = []
def hook(event, arguments):
    if event in ("socket.bind", "sqlite3.connect", "sqlite3.connect/handle"):
        seen.append(event)
sys.addaudithook(hook)
def listen(*_):  # the interpreter audits no listen
    seen.append("socket.listen")
    raise AssertionError("something listens")
socket.socket.listen = listen
"""

LIBRARY = """
import os, tempfile
from pathlib import Path
from nl_cutover.recorder import *
from nl_cutover.recorder.connection import Connection
environ = {**os.environ, "NEO_NL_ACTION_LOGGING": "true"}
connect = connector(environ, url=os.environ["URL"])
with disposable_aggregate() as aggregate:
    telemetry = Telemetry(connect, enabled=logging_enabled(environ), aggregate=aggregate)
    for _ in range(150):
        telemetry.record({"tool": "direction", "sequence_id": "s", "timestamp": 5, "success": True, "args": '{"className":"C"}'})
    assert telemetry.flush(30)
    assert read_aggregate(aggregate.path)[0].count == 150
assert telemetry.close().admitted == 150
archive = Archive(connect)
saved = archive.save({"status": "committed", "ops": [{}], "originWriter": {"agentId": "a", "sessionId": "s"}})
assert isinstance(archive.get(saved.archive_id), Found)
assert isinstance(archive.mark_replayed(saved.archive_id), Marked)
archive.close()
assert "sqlite3" not in sys.modules
"""

BLOCK = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Refuse())
"""


def python(code, core):
    variables = os.environ | {"URL": core.url, "NEO_MCP_REMOTE_TOKEN": core.token}
    return subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_whole_library_binds_nothing_and_opens_no_database(core):
    done = python(WATCH + LIBRARY + "assert seen == [], seen", core)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("act", "told"),
    [
        ("socket.socket().bind(('127.0.0.1', 0))", "socket.bind"),
        ("import sqlite3; sqlite3.connect(':memory:')", "sqlite3.connect"),
        ("\ntry: socket.create_server(('127.0.0.1', 0))\nexcept AssertionError: pass", "socket.listen"),
    ],
)
def test_the_watch_would_have_seen_it(core, act, told):
    done = python(WATCH + act + "\nprint(seen)", core)
    assert told in done.stdout


def test_the_bridge_binds_nothing_and_opens_no_database(core):
    code = WATCH + (
        "from nl_cutover.cli import main\n"
        "try: main(['recorder', 'bridge', '--url', __import__('os').environ['URL']])\n"
        "except SystemExit as end: print(end.code, seen, file=sys.stderr)"
    )
    opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    save = {"name": "save_nl_transaction", "arguments": {"transaction": TRANSACTION}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": save},
    ]
    variables = os.environ | {"URL": core.url, "NEO_MCP_REMOTE_TOKEN": core.token}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], env=variables, text=True, **pipes) as bridge:
        bridge.stdin.write("".join(json.dumps(line) + "\n" for line in lines))
        bridge.stdin.flush()
        answers = [json.loads(bridge.stdout.readline()) for _ in range(2)]  # then stdin may end
        _, told = bridge.communicate(timeout=30)
    assert told == "0 []\n"
    assert json.loads(answers[1]["result"]["content"][0]["text"])["saved"] is True


def test_it_is_importable_without_what_the_command_line_needs(core):
    blocked = {
        "typer",
        "click",
        "rich",
        "tabulate",
        "sqlite_utils",
        "psutil",
        "platformdirs",
        "mcp",
        "sqlite3",
        "_sqlite3",
    }
    done = python(f"BLOCKED = {blocked}" + BLOCK + LIBRARY, core)
    assert (done.returncode, done.stderr) == (0, "")
    control = python(f"BLOCKED = {blocked}" + BLOCK + "import nl_cutover.cli", core)
    assert "typer is blocked" in control.stderr


HOSTILE = [
    {"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
    {"jsonrpc": "2.0", "id": "two", "method": "elicitation/create", "params": {"message": "your token?"}},
    {"jsonrpc": "2.0", "id": 3, "method": "roots/list"},
    {"jsonrpc": "2.0", "id": 4, "method": "ping"},
    {"jsonrpc": "2.0", "id": 5, "method": "no/such_thing", "params": {}},
    {"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": {"name": "get_component_tree", "arguments": {}}},
]


class Hostile(Scripted):
    """Before each answer it asks for something of its own; it keeps what it is told."""

    def __init__(self, result) -> None:
        super().__init__(self._answer)
        self._result = result
        self.told = []

    def handle_request(self, request):
        body = json.loads(request.read() or b"{}")
        if "error" in body or "result" in body:
            self.told.append(body)
            return httpx.Response(202)
        return super().handle_request(request)

    def _answer(self, request, body):
        asked = b"".join(event(json.dumps(one).encode()) for one in HOSTILE)
        return sse(asked + event(message(body["id"], tool_result(self._result))))


def refused_all(told):
    assert [one["id"] for one in told] == [one["id"] for one in HOSTILE]
    for one in told:
        assert one["error"]["code"] == -32601
        assert "result" not in one


def test_what_a_server_asks_of_the_archive_is_refused_and_counted():
    server = Hostile({"status": "found", "archiveId": "a", "ops": []})
    archive = Archive(over(server))
    assert isinstance(archive.get("a"), Found)
    refused_all(server.told)
    assert archive.refused_server_requests == len(HOSTILE)


def test_what_a_server_asks_of_telemetry_is_refused_and_counted():
    server = Hostile({"admitted": 1, "refused": 0})
    telemetry = Telemetry(over(server), enabled=True)
    telemetry.record(ENTRY)
    assert telemetry.flush(10)
    refused_all(server.told)
    assert telemetry.refused_server_requests == len(HOSTILE)
    assert telemetry.close().admitted == 1


def test_only_the_named_operations_are_ever_called():
    methods = set()

    class Watching(Hostile):
        def handle_request(self, request):
            body = json.loads(request.read() or b"{}")
            methods.add((body.get("method"), body.get("params", {}).get("name")))
            return super().handle_request(request)

    server = Watching(
        {"saved": True, "archiveId": "a", "status": "not-found", "updated": True, "admitted": 1, "refused": 0}
    )
    archive, telemetry = Archive(over(server)), Telemetry(over(server), enabled=True)
    archive.save(TRANSACTION)
    archive.get("a")
    archive.mark_replayed("a")
    telemetry.record(ENTRY)
    assert telemetry.flush(10)
    telemetry.close()
    assert {name for method, name in methods if method == "tools/call"} == {
        "save_nl_transaction",
        "get_nl_transaction",
        "mark_nl_transaction_replayed",
        "admit_nl_actions",
    }
    assert {method for method, _ in methods} == {None, "initialize", "notifications/initialized", "tools/call"}

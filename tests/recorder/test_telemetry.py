"""Telemetry: eight fields, one token a sequence, a bounded queue, a sum that is always right."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from uuid import uuid4

import httpx
import pytest

from nl_cutover.contract.rows import ACTIONS, Row, Text
from nl_cutover.contract.telemetry import ADMITTED, project
from nl_cutover.errors import CredentialsError
from nl_cutover.recorder import Telemetry, connector, logging_enabled
from nl_cutover.recorder.projection import ENTRY_LIMIT, SEQUENCES, Tokens
from nl_cutover.recorder.telemetry import HELD_LIMIT
from tests.ingress.fake import Scripted, event, message, sse, tool_result
from tests.recorder.host import ENTRY, Admitting, adds_up, over

UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def server():
    return Admitting()


@pytest.fixture
def telemetry(server):
    made = Telemetry(over(server), enabled=True)
    yield made
    made.close()


def wait_for(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("value", "on"),
    [(None, False), ("", False), ("false", False), ("0", False), ("maybe", False), ("true", True), (" ON ", True)],
)
def test_the_gate_is_off_unless_it_says_outright_that_it_is_on(value, on):
    assert logging_enabled({} if value is None else {"NEO_NL_ACTION_LOGGING": value}) is on


def test_while_the_gate_is_off_nothing_happens_at_all(tmp_path):
    def connect():
        raise AssertionError("a session was asked for")

    before = threading.active_count()
    telemetry = Telemetry(connect, enabled=False)
    telemetry.record(ENTRY)
    telemetry.record(None)
    assert telemetry.flush(1)
    assert telemetry.stats().recorded == 0
    assert threading.active_count() == before
    # The control: with the gate on, the same record starts a thread that asks for a session.
    telemetry = Telemetry(connect, enabled=True)
    telemetry.record(ENTRY)
    assert telemetry.flush(10)
    assert telemetry.stats().failed == 1


def test_the_eight_admitted_fields_and_no_other(server, telemetry):
    telemetry.record(ENTRY)
    assert telemetry.flush(10)
    (action,) = server.actions
    assert set(action) == set(ADMITTED)
    token = action.pop("sequenceId")
    assert UUID.fullmatch(token)
    assert action == {
        "sessionId": "session-ü",
        "timestamp": 1_750_000_000_123,
        "tool": "set_instance_properties",
        "success": True,
        "durationMs": 12.5,
        "appName": "アプリ",
        "targets": {"classNames": ["Neo.button.Base"], "componentIds": ["列-1"]},
    }


def test_an_entry_of_the_host_is_projected_as_its_row_would_be(server, telemetry):
    """One projection: what the migration makes of a stored row, and the recorder of the same call."""
    args = '{"componentIds":["a","a",1,"b"],"config":{"className":"C","id":"x"},"componentId":"","className":"D"}'
    entry = {**ENTRY, "args": args, "success": 0, "duration_ms": None, "session_id": None}
    order = ("id", "agent_id", "session_id", "sequence_id", "timestamp", "tool", "args", "result", "success")
    values = [entry[name] for name in (*order, "duration_ms", "app_name", "reward")]
    row = Row(ACTIONS, tuple(Text(v.encode()) if isinstance(v, str) else v for v in values))
    telemetry.record(entry)
    assert telemetry.flush(10)
    (action,) = server.actions
    fields = project(row).encode(action["sequenceId"])
    assert action == json.loads(fields)


def test_what_the_host_changes_afterwards_is_not_what_was_recorded(server, telemetry):
    """`record` reads the entry before it returns: nothing of the entry's own objects is looked at again."""
    args = {"componentIds": ["before"], "config": {"className": "Before"}}
    entry = {**ENTRY, "args": args}
    telemetry.record(entry)
    args["componentIds"].append("after")
    args["config"]["className"] = "After"
    entry["tool"] = "after"
    entry.clear()
    assert telemetry.flush(10)
    assert server.actions[0]["targets"] == {"classNames": ["Before"], "componentIds": ["before"]}
    assert server.actions[0]["tool"] == ENTRY["tool"]


def test_one_random_token_a_sequence(server, telemetry):
    for sequence in ("a_1", "a_1", "a_2", "", None, 7, "a_1"):
        telemetry.record({**ENTRY, "sequence_id": sequence})
    assert telemetry.flush(10)
    tokens = [action["sequenceId"] for action in server.actions]
    assert tokens[0] == tokens[1] == tokens[6]
    assert len(set(tokens)) == 5
    other = Telemetry(over(server), enabled=True)
    other.record({**ENTRY, "sequence_id": "a_1"})
    other.close()
    assert server.actions[-1]["sequenceId"] not in tokens, "another process life, other tokens"


def test_the_oldest_sequence_is_forgotten_first():
    tokens = Tokens(lambda: str(uuid4()))
    first, second = tokens.of(b"0"), tokens.of(b"1")
    for number in range(2, SEQUENCES):
        tokens.of(b"%d" % number)
    assert (tokens.of(b"0"), tokens.of(b"1")) == (first, second)
    tokens.of(b"one too many")
    assert tokens.of(b"1") == second
    assert tokens.of(b"0") != first
    assert len(tokens._tokens) == SEQUENCES


class Raises(dict):
    def get(self, *_):
        raise RuntimeError("a host's own trouble")


class Recursion:
    def __eq__(self, _):
        raise RecursionError


@pytest.mark.parametrize(
    "entry",
    [
        None,
        7,
        Raises(),
        {**ENTRY, "tool": 7},
        {**ENTRY, "session_id": ["s"]},
        {**ENTRY, "timestamp": "now"},
        {**ENTRY, "timestamp": True},
        {**ENTRY, "timestamp": float("nan")},
        {**ENTRY, "timestamp": 2**53 + 1},
        {**ENTRY, "duration_ms": float("inf")},
        {**ENTRY, "duration_ms": 10**400},
        {**ENTRY, "args": {"componentIds": ["x" * 200_000]}},
        {**ENTRY, "args": "[" * 5_000},
        {**ENTRY, "args": "x" * (ENTRY_LIMIT + 1)},
    ],
)
def test_what_cannot_be_admitted_is_refused_and_never_raises(server, telemetry, entry):
    telemetry.record(entry)
    telemetry.record(ENTRY)
    assert telemetry.flush(10)
    stats = telemetry.stats()
    assert (stats.recorded, stats.admitted, stats.refused) == (2, 1, 1)
    assert len(server.actions) == 1


@pytest.mark.parametrize("args", [None, 7, "scalar", "{broken", '"text"', "[]", ["a"], {"className": 7}, Recursion()])
def test_arguments_that_name_nothing(server, telemetry, args):
    telemetry.record({**ENTRY, "args": args})
    assert telemetry.flush(10)
    assert server.actions[0]["targets"] == {"classNames": [], "componentIds": []}


def test_batches_by_count_and_by_bytes(server, telemetry):
    for number in range(250):
        telemetry.record({**ENTRY, "args": {"componentIds": [f"{number}-{'x' * 3_000}"]}})
    assert telemetry.flush(30)
    assert telemetry.stats().admitted == 250
    sizes = [len(request.content) for request, _ in server.requests]
    assert max(sizes) <= 102_400
    assert len(sizes) > 3, "a hundred of these do not fit into one request"
    assert [a["targets"]["componentIds"][0].split("-")[0] for a in server.actions] == [str(n) for n in range(250)]


def test_a_full_queue_drops_and_counts_and_is_bounded():
    answer = threading.Event()
    server = Admitting(hold=answer)
    telemetry = Telemetry(over(server), enabled=True, capacity=300)
    for _ in range(1_000):
        telemetry.record(ENTRY)
        assert len(telemetry._queue) <= 300
    stats = telemetry.stats()
    assert adds_up(stats)
    assert stats.recorded == 1_000
    assert stats.dropped >= 600
    answer.set()
    assert telemetry.flush(20)
    stats = telemetry.close()
    assert adds_up(stats)
    assert stats.pending == 0
    assert len(server.actions) == stats.admitted


def test_recording_does_not_wait_for_a_memory_core_that_hangs():
    answer = threading.Event()
    telemetry = Telemetry(over(Admitting(hold=answer)), enabled=True)
    began = time.monotonic()
    for _ in range(5_000):
        telemetry.record(ENTRY)
    assert time.monotonic() - began < 3, "0.6 ms a record, on the slowest machine"
    assert telemetry.stats().pending > 4_000
    answer.set()
    telemetry.close(20)


def test_long_records_are_bounded_by_their_size():
    answer = threading.Event()
    telemetry = Telemetry(over(Admitting(hold=answer)), enabled=True)
    for _ in range(100):
        telemetry.record({**ENTRY, "args": "x" * (ENTRY_LIMIT // 2)})
    assert telemetry._held <= HELD_LIMIT
    stats = telemetry.stats()
    assert stats.dropped > 50
    assert adds_up(stats)
    answer.set()
    telemetry.close(20)


def test_the_sum_is_right_at_every_moment_and_in_every_thread(server, telemetry):
    stop = threading.Event()

    def host():
        while not stop.is_set():
            telemetry.record(ENTRY)

    threads = [threading.Thread(target=host) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            assert adds_up(telemetry.stats())
            time.sleep(0.001)
    finally:
        stop.set()
    for thread in threads:
        thread.join()
    assert telemetry.flush(30)
    stats = telemetry.stats()
    assert adds_up(stats)
    assert stats.admitted == len(server.actions)


def scripted(*answers):
    """A server that takes its answers one after the other; the last one stays."""
    left = list(answers)

    def answer(request, body):
        one = left.pop(0) if len(left) > 1 else left[0]
        return one(body)

    return Scripted(answer)


def admits(body):
    count = len(body["params"]["arguments"]["actions"])
    return sse(event(message(body["id"], tool_result({"admitted": count, "refused": 0}))))


def told(admitted, refused):
    return lambda body: sse(event(message(body["id"], tool_result({"admitted": admitted, "refused": refused}))))


def says_error(body):
    return sse(event(message(body["id"], {"content": [{"type": "text", "text": "Error executing"}], "isError": True})))


def fails(status):
    return lambda body: httpx.Response(status, text="no")


def cut_off(body):
    raise httpx.ReadError("the connection was lost")


@pytest.mark.parametrize(
    ("answers", "expected", "calls"),
    [
        ([told(2, 1)], {"admitted": 2, "refused": 1}, 1),
        ([says_error], {"refused": 3}, 1),
        ([fails(500)], {"failed": 3}, 1),
        ([cut_off], {"failed": 3}, 1),
        ([told(1, 1)], {"failed": 3}, 1),
        ([told(-1, 4)], {"refused": 3}, 1),
        ([fails(401)], {"failed": 3}, 1),
        ([fails(413)], {"failed": 3}, 1),
        ([fails(429), admits], {"admitted": 3}, 2),
    ],
    ids=["some", "error", "500", "cut off", "sum", "negative", "401", "413", "429, then well"],
)
def test_what_becomes_of_a_batch(answers, expected, calls):
    """An unknown outcome is counted and never sent again; only what provably was not executed is."""
    server = scripted(*answers)
    telemetry = Telemetry(over(server), enabled=True)
    for _ in range(3):
        telemetry.record(ENTRY)
    assert telemetry.flush(20)
    stats = telemetry.close()
    assert adds_up(stats)
    assert {k: v for k in ("admitted", "refused", "failed") if (v := getattr(stats, k))} == expected
    assert len(server.requests) == calls


def test_while_memory_core_is_away_records_wait_and_are_sent_when_it_is_back(server):
    away = threading.Event()

    class Away(httpx.BaseTransport):
        def handle_request(self, request):
            if away.is_set():
                raise httpx.ConnectError("refused")
            return server.handle_request(request)

    away.set()
    telemetry = Telemetry(over(Away()), enabled=True)
    for _ in range(150):
        telemetry.record(ENTRY)
    assert not telemetry.flush(0.5)
    assert telemetry.stats().pending == 150
    away.clear()
    assert telemetry.flush(20)
    assert telemetry.close().admitted == len(server.actions) == 150


def test_a_missing_credential_is_counted_and_raises_nowhere():
    telemetry = Telemetry(connector({}), enabled=True)
    telemetry.record(ENTRY)
    assert telemetry.flush(10)
    assert telemetry.close().failed == 1
    with pytest.raises(CredentialsError):
        connector({})()


def test_closing_gives_up_what_waits_and_says_so():
    def refuse(request):
        raise httpx.ConnectError("refused")

    telemetry = Telemetry(over(httpx.MockTransport(refuse)), enabled=True)
    for _ in range(250):
        telemetry.record(ENTRY)
    began = time.monotonic()
    stats = telemetry.close(0.3)
    assert time.monotonic() - began < 3
    telemetry.record(ENTRY)
    wait_for(lambda: telemetry.stats().pending == 0)
    stats = telemetry.stats()
    assert (stats.recorded, stats.dropped + stats.failed) == (251, 251)
    assert adds_up(stats)


def run(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environ, capture_output=True, text=True, timeout=60, check=False
    )


HOST = """
import os, sys
from nl_cutover.recorder import Telemetry, connector
telemetry = Telemetry(connector(os.environ, url=os.environ["URL"]), enabled=True)
entry = {"tool": os.environ["TOOL"], "timestamp": 1, "success": True, "sequence_id": "s"}
"""


def test_what_waits_at_exit_is_sent_before_the_process_ends(core, admitted):
    code = HOST + "for _ in range(20): telemetry.record(entry)"
    done = run(code, URL=core.url, NEO_MCP_REMOTE_TOKEN=core.token, TOOL="exit-flush")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(admitted("exit-flush")) == 20


def test_a_memory_core_that_never_answers_delays_the_exit_by_its_deadline_alone():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mc/mcp"
        began = time.monotonic()
        done = run(HOST + "telemetry.record(entry)", URL=url, NEO_MCP_REMOTE_TOKEN="t", TOOL="x")
        took = time.monotonic() - began
    assert (done.returncode, done.stderr) == (0, "")
    assert 2 <= took < 8


def test_a_forked_child_sends_what_it_recorded_and_nothing_of_its_parent(core, admitted):
    """The parent forks while records wait and its thread holds on to the queue; both send their own, once."""
    code = (
        HOST
        + """
for _ in range(30): telemetry.record(entry)
if (child := os.fork()) == 0:
    assert telemetry.stats().recorded == 0
    telemetry.record({**entry, "tool": entry["tool"] + "-child"})
    assert telemetry.flush(20)
    assert telemetry.stats().admitted == 1, telemetry.stats()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert telemetry.flush(20)
assert telemetry.close().admitted == 30
"""
    )
    done = run(code, URL=core.url, NEO_MCP_REMOTE_TOKEN=core.token, TOOL="fork")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(admitted("fork")) == 30
    (child,) = admitted("fork-child")
    assert child["sequenceId"] not in {row["sequenceId"] for row in admitted("fork")}


def test_telemetry_offers_no_read():
    public = {name for name in dir(Telemetry) if not name.startswith("_")}
    assert public == {"record", "stats", "flush", "close", "refused_server_requests"}


def test_a_record_in_the_midst_of_a_record_is_taken_too(server, telemetry):
    """What a signal handler does, or a finalizer that the collector runs: the same thread comes a second time."""

    class Interrupted(deque):
        def append(self, held):
            if held.tool == "outer":
                telemetry.record({**ENTRY, "tool": "inner"})
            super().append(held)

    telemetry._queue = Interrupted()
    host = threading.Thread(target=telemetry.record, args=({**ENTRY, "tool": "outer"},), daemon=True)
    host.start()
    host.join(10)
    assert not host.is_alive(), "it waits for itself"
    assert telemetry.flush(10)
    assert sorted(action["tool"] for action in server.actions) == ["inner", "outer"]


def test_a_record_made_while_the_first_starts_the_thread_starts_no_second(server, monkeypatch):
    start = threading.Thread.start

    def interrupted(thread):
        if thread.name == "nl-telemetry" and telemetry.stats().recorded == 1:
            telemetry.record(ENTRY)
        start(thread)

    telemetry = Telemetry(over(server), enabled=True)
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    before = set(threading.enumerate())
    telemetry.record(ENTRY)
    assert len(set(threading.enumerate()) - before) == 1
    telemetry.close(10)
    assert telemetry.stats().admitted == 2


def test_text_of_a_host_class_costs_nobody_else_a_record(server, telemetry):
    class Odd(str):
        __hash__ = str.__hash__

        def fail(self, *_):
            raise RuntimeError("the host's own")

        encode = __eq__ = __len__ = fail

    for odd in ({}, {"sequence_id": Odd("s")}, {"tool": Odd("t")}, {"args": Odd('{"id":"x"}')}, {}):
        telemetry.record({**ENTRY, **odd})
    assert telemetry.flush(10)
    assert telemetry.stats().admitted == 5

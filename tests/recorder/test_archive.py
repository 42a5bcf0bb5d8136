"""The archive: closed results, a guard that names the path, one connect for all, and no local fallback."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from nl_cutover.ingress.endpoint import Endpoint, token_from_environment
from nl_cutover.ingress.session import Session
from nl_cutover.recorder import (
    Archive,
    Found,
    Marked,
    NotFound,
    NotMarked,
    Refused,
    Saved,
    Telemetry,
    Unavailable,
    connector,
)
from nl_cutover.recorder.connection import CONNECT_S
from nl_cutover.testing import embedded_memory_core
from tests.conftest import TOKENS, state_of
from tests.ingress.fake import URL, RawServer, Scripted, event, message, sse, tool_result
from tests.recorder.host import ENTRY, TRANSACTION, over

SLOT = "NEO_MCP_REMOTE_TOKEN"


@pytest.fixture
def archive(core):
    made = Archive(connector({SLOT: core.token}, url=core.url))
    yield made
    made.close()


def test_what_is_saved_is_what_is_found(archive):
    saved = archive.save(TRANSACTION, name=" 列 ", app_session_id="app")
    assert isinstance(saved, Saved)
    assert saved.source_tx_id == TRANSACTION["txId"]
    found = archive.get(saved.archive_id)
    assert isinstance(found, Found)
    assert found.ops == TRANSACTION["ops"]
    assert list(found.ops[0]) == ["forward", "label"], "keys keep their order"
    assert found.origin_writer == TRANSACTION["originWriter"]
    assert (found.name, found.app_session_id, found.source_tx_id) == ("列", "app", TRANSACTION["txId"])
    assert (found.committed_at, found.archived_at) == (TRANSACTION["committedAt"], saved.archived_at)
    assert (found.replay_count, found.last_replayed_at, found.custodian) == (0, None, "neo-operator")
    marked = archive.mark_replayed(saved.archive_id)
    assert isinstance(marked, Marked)
    assert marked.replay_count == 1
    assert archive.get(saved.archive_id).last_replayed_at == marked.last_replayed_at


def test_what_is_not_there(archive):
    assert archive.get("nowhere") == NotFound()
    assert archive.mark_replayed("nowhere") == NotMarked("not-found")


def test_another_identity_finds_nothing(archive, core):
    saved = archive.save(TRANSACTION)
    other = Archive(connector({SLOT: TOKENS["neo-other"]}, url=core.url))
    assert other.get(saved.archive_id) == NotFound()
    assert other.mark_replayed(saved.archive_id) == NotMarked("not-found")
    assert isinstance(archive.get(saved.archive_id), Found)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ops": []}, "invalid-transaction"),
        ({"status": "active"}, "invalid-transaction"),
        ({"originWriter": {"agentId": "a"}}, "missing-origin-writer"),
        ({"ops": [{"a": "x" * 102_400}]}, "too large: the request has 102,"),
    ],
)
def test_what_memory_core_does_not_take_is_refused_with_its_reason(archive, changes, reason):
    refused = archive.save({**TRANSACTION, **changes})
    assert isinstance(refused, Refused)
    assert refused.reason.startswith(reason)
    assert not refused.outcome_unknown


class Component:
    pass


class Named(dict):
    pass


def cycle():
    ops = [{"forward": {}}]
    ops[0]["forward"]["args"] = ops
    return ops


def bomb():
    value = ["x"]
    for _ in range(40):
        value = [value, value]
    return value


def deep():
    value = []
    for _ in range(2_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("ops", "told"),
    [
        ([{}, {}, {}, {"forward": {"module": "Neo.x"}}], "ops[3].forward.module is a module reference"),
        ([{"forward": print}], "ops[0].forward is a function"),
        ([{"a b": [0, lambda: 0]}], 'ops[0]["a b"][1] is a function'),
        ([{"forward": Component()}], "ops[0].forward is an instance of Component"),
        ([Named()], "ops[0] is an instance of Named"),
        ([{"x": {1: 2}}], "ops[0].x has a key that is not text"),
        ([{"x": {1, 2}}], "ops[0].x is an instance of set"),
        ([{"x": b"bytes"}], "ops[0].x is an instance of bytes"),
        ([{"x": float("nan")}], "ops[0].x is a number that JSON or a double cannot carry"),
        ([{"x": 2**53 + 1}], "ops[0].x is a number that JSON or a double cannot carry"),
        (cycle(), "ops[0].forward.args is part of itself"),
        (bomb(), "more values than a request can carry"),
        ([deep()], "deeper than 600 levels"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_data_is_refused_by_its_path_before_anything_is_sent(ops, told):
    server = Scripted(lambda request, body: pytest.fail("it was sent"))
    refused = Archive(over(server)).save({**TRANSACTION, "ops": ops})
    assert isinstance(refused, Refused)
    assert refused.reason.startswith("transaction-not-data-only: ")
    assert told in refused.reason
    assert server.handshakes == 0


def test_the_same_list_twice_is_data(archive):
    shared = {"n": [1]}
    saved = archive.save({**TRANSACTION, "ops": [shared, shared]})
    assert archive.get(saved.archive_id).ops == [shared, shared]


def test_the_rest_of_a_transaction_is_guarded_too():
    archive = Archive(over(Scripted(lambda *_: pytest.fail("it was sent"))))
    assert (
        "originWriter.agentId is a function" in archive.save({**TRANSACTION, "originWriter": {"agentId": print}}).reason
    )
    assert "name is a function" in archive.save(TRANSACTION, name=print).reason
    assert "is not an object" in archive.save([TRANSACTION]).reason


def test_what_memory_core_does_not_read_is_not_sent():
    sent = []

    def answer(request, body):
        sent.append(body["params"]["arguments"])
        return sse(event(message(body["id"], tool_result({"saved": True, "archiveId": "new"}))))

    Archive(over(Scripted(answer))).save({**TRANSACTION, "undo": print, "secret": "SECRET"})
    kept = {"txId", "id", "status", "committedAt", "originWriter", "ops"}
    assert set(sent[0]["transaction"]) == kept


@pytest.mark.parametrize(
    "answer",
    [lambda *_: httpx.Response(502, text="bad gateway"), lambda *_: (_ for _ in ()).throw(httpx.ReadError(""))],
)
def test_an_outcome_that_nobody_knows_is_told_as_such(answer):
    """`saved: false` would be a claim; a caller that believed it would save again, and double it."""
    server = Scripted(answer)
    archive = Archive(over(server))
    saved, marked, found = archive.save(TRANSACTION), archive.mark_replayed("a"), archive.get("a")
    assert isinstance(saved, Refused)
    assert saved.outcome_unknown
    assert "it may have been saved" in saved.reason
    assert isinstance(marked, NotMarked)
    assert marked.outcome_unknown
    assert "it may have been counted" in marked.reason
    assert isinstance(found, Unavailable)
    assert len(server.requests) == 3, "nothing was sent a second time"


@pytest.mark.parametrize(
    "record", [{"status": "found", "archiveId": 7}, {"status": "found", "archiveId": "a", "ops": "text"}]
)
def test_a_record_that_is_none_is_unavailable(record):
    server = Scripted(lambda request, body: sse(event(message(body["id"], tool_result(record)))))
    assert not isinstance(Archive(over(server)).get("a"), Found | NotFound)


def test_a_missing_credential_is_a_reason_and_no_exception():
    archive = Archive(connector({}))
    refused = archive.save(TRANSACTION)
    assert refused == Refused(f"archive-store-unavailable: the environment slot {SLOT} is not set")
    assert isinstance(archive.get("a"), Unavailable)


def test_a_token_that_was_replaced_is_taken_at_the_next_call(core):
    environ = {SLOT: "outworn"}
    archive = Archive(connector(environ, url=core.url))
    refused = archive.save(TRANSACTION)
    assert refused.reason.startswith("archive-store-unavailable: 401")
    assert not refused.outcome_unknown
    environ[SLOT] = core.token
    assert isinstance(archive.save(TRANSACTION), Saved)


def test_a_token_that_was_replaced_under_an_open_session_costs_no_save():
    valid = "first"

    def answer(request, body):
        if request.headers["authorization"] != f"Bearer {valid}":
            return httpx.Response(401, text="no")
        return sse(event(message(body["id"], tool_result({"saved": True, "archiveId": "new"}))))

    server = Scripted(answer)
    environ = {SLOT: valid}

    def connect():
        return Session(Endpoint(URL, token_from_environment(environ, SLOT), wait_budget=0), transport=server)

    archive = Archive(connect)
    assert isinstance(archive.save(TRANSACTION), Saved)
    environ[SLOT] = valid = "second"
    assert isinstance(archive.save(TRANSACTION), Saved)
    valid = "third"
    assert isinstance(archive.save(TRANSACTION), Refused)
    assert len(server.requests) == 4, "the same token is not tried twice"


def test_as_deep_as_memory_core_can_be_read(archive):
    value = []
    for _ in range(590):
        value = [value]
    saved = archive.save({**TRANSACTION, "ops": [value]})
    assert archive.get(saved.archive_id).ops == [value]


def test_archives_are_reachable_while_telemetry_is_off(core):
    connect = connector({SLOT: core.token}, url=core.url)
    telemetry = Telemetry(connect, enabled=False)
    telemetry.record(ENTRY)
    assert isinstance(Archive(connect).save(TRANSACTION), Saved)
    assert telemetry.stats().recorded == 0


def in_parallel(count, do):
    results = [None] * count
    started = threading.Barrier(count)

    def run(number):
        started.wait()
        results[number] = do()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_eight_first_saves_at_once_connect_once():
    def answer(request, body):
        return sse(event(message(body["id"], tool_result({"saved": True, "archiveId": "new"}))))

    server = Scripted(answer)
    archive = Archive(over(server))
    assert all(isinstance(r, Saved) for r in in_parallel(8, lambda: archive.save(TRANSACTION)))
    assert (server.handshakes, len(server.requests)) == (1, 8)


def test_a_server_that_never_answers_the_handshake_costs_five_seconds_once():
    """Those who wait for the same connect share its failure; it is not kept for those who come later."""
    quiet = threading.Event()
    with RawServer(lambda *_: quiet.wait(30)) as server:
        archive = Archive(connector({SLOT: "t"}, url=server.url))
        began = time.monotonic()
        results = in_parallel(6, lambda: archive.save(TRANSACTION))
        took = time.monotonic() - began
        quiet.set()
    assert all(isinstance(r, Refused) and not r.outcome_unknown for r in results)
    assert CONNECT_S - 0.5 < took < CONNECT_S + 2.5
    assert len(server.requests) == 1


def test_an_address_that_swallows_packets_costs_five_seconds():
    # A listener whose backlog is full answers no SYN.
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        stuck = [socket.socket() for _ in range(4)]
        for one in stuck:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        archive = Archive(connector({SLOT: "t"}, url=f"http://127.0.0.1:{port}/mc/mcp"))
        began = time.monotonic()
        result = archive.get("a")
        took = time.monotonic() - began
        for one in stuck:
            one.close()
    assert isinstance(result, Unavailable)
    assert took < CONNECT_S + 1.5


def test_a_failed_connect_is_not_kept(tmp_path):
    with embedded_memory_core(tmp_path, tokens=TOKENS) as core:
        archive = Archive(connector({SLOT: core.token}, url=core.url))
        core.kill()
        assert archive.save(TRANSACTION).reason.startswith("archive-store-unavailable: ")
        assert isinstance(archive.get("a"), Unavailable)
        core.restart()
        saved = archive.save(TRANSACTION)
        assert isinstance(saved, Saved)
        core.kill()
        core.restart()
        assert isinstance(archive.get(saved.archive_id), Found), "a session that a restart ended is begun anew"


def test_nothing_is_written_beside_memory_core(tmp_path):
    """There is no local fallback: with Memory Core away, a save leaves nothing anywhere that a host can write."""
    code = (
        "import os; from nl_cutover.recorder import *; c = connector(os.environ, url='http://127.0.0.1:9/mc/mcp');"
        "t = Telemetry(c, enabled=True); t.record({'tool': 't'}); t.close(0.2);"
        "print(type(Archive(c).save({'status': 'committed', 'ops': [1]})).__name__)"
    )
    root = Path(__file__).parent.parent.parent
    environ = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "NEO_MEMORY_DB_PATH": str(tmp_path / "db"), SLOT: "t"}
    environ |= {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("Refused\n", "")
    assert state_of(tmp_path) == {}


PROCESS = """
import json, os, sys, msgspec
from nl_cutover.recorder import Archive, connector
archive = Archive(connector(os.environ, url=os.environ["URL"]))
"""


def process(code, core, **environ):
    """What a host process of its own prints, as JSON."""
    variables = os.environ | {"URL": core.url, SLOT: core.token} | environ
    done = subprocess.run(
        [sys.executable, "-c", PROCESS + code], env=variables, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_saved_in_one_process_read_and_marked_in_another_after_a_restart(tmp_path):
    with embedded_memory_core(tmp_path, tokens=TOKENS) as core:
        plain = json.dumps({**TRANSACTION, "ops": TRANSACTION["ops"]})
        saved = process(
            "print(json.dumps(archive.save(json.loads(os.environ['TX']), name='kept').archive_id))", core, TX=plain
        )
        core.kill()
        core.restart()
        read = (
            "found = archive.get(os.environ['ID']); marked = archive.mark_replayed(os.environ['ID']);"
            "print(json.dumps([msgspec.to_builtins(found), marked.replay_count, archive.get(os.environ['ID']).ops]))"
        )
        found, count, ops = process(read, core, ID=saved)
        assert found["ops"] == ops == TRANSACTION["ops"]
        assert (found["name"], found["originWriter"]) == ("kept", TRANSACTION["originWriter"])
        assert (found["custodian"], found["replayCount"], count) == ("neo-operator", 0, 1)


def test_a_session_is_not_shared_with_a_forked_child(core):
    code = """
import threading
held = archive.save(json.loads(os.environ["TX"]))
archive._connection._lock.acquire()  # as if another thread were in a call
r, w = os.pipe()
if (child := os.fork()) == 0:
    os.write(w, type(archive.get(held.archive_id)).__name__.encode())
    archive.close()
    os._exit(0)
os.waitpid(child, 0)
archive._connection._lock.release()
print(json.dumps([os.read(r, 99).decode(), type(archive.get(held.archive_id)).__name__]))
"""
    assert process(code, core, TX=json.dumps(TRANSACTION)) == ["Found", "Found"]


def test_an_id_of_before_the_cut_is_understood(core):
    connect = connector({SLOT: core.token}, url=core.url)
    new = Archive(connect).save(TRANSACTION).archive_id
    archive = Archive(connect, aliases={"old": new})
    assert archive.resolve("old") == new
    assert archive.get("old").archive_id == new
    assert archive.mark_replayed("old").replay_count == 1
    assert archive.get(new).replay_count == 1
    assert archive.get("older") == NotFound()


def test_the_session_announces_no_capability():
    bodies = []

    def answer(request, body):
        return sse(event(message(body["id"], tool_result({"status": "not-found"}))))

    class Watching(Scripted):
        def handle_request(self, request):
            bodies.append(json.loads(request.read() or b"{}"))
            return super().handle_request(request)

    server = Watching(answer)
    Archive(lambda: Session(over(server)().endpoint, transport=server)).get("a")
    assert bodies[0]["params"]["capabilities"] == {}


def test_the_readme_shows_what_works(core):
    readme = (Path(__file__).parent.parent.parent / "README.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    shown = block.replace("connector(os.environ)", 'connector(os.environ, url=os.environ["URL"])')
    assert shown != block
    assert process(shown + "\nimport json; print(json.dumps(type(saved).__name__))", core) == "Saved"


class Signalled(Scripted):
    """Sends this process a signal in the midst of the first call, and answers every one."""

    def __init__(self) -> None:
        super().__init__(self._answer)

    def _answer(self, request: httpx.Request, body: dict) -> httpx.Response:
        if len(self.requests) == 1:
            os.kill(os.getpid(), signal.SIGUSR1)  # Python runs the handler here, in the thread that is calling
        return sse(event(message(body["id"], tool_result({"saved": True, "archiveId": "a"}))))


@pytest.fixture
def on_signal():
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: signal.signal(signal.SIGUSR1, lambda *_: handler())
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("ask", "kind"),
    [
        (lambda archive: archive.save(TRANSACTION), Refused),
        (lambda archive: archive.get("a"), Unavailable),
        (lambda archive: archive.mark_replayed("a"), NotMarked),
    ],
)
def test_a_signal_handler_that_interrupts_a_call_is_refused_and_the_call_goes_on(on_signal, ask, kind):
    transport, heard = Signalled(), []
    archive = Archive(over(transport))
    on_signal(lambda: heard.append(ask(archive)))
    assert archive.save(TRANSACTION) == Saved("a", None, None)
    assert [type(answer) for answer in heard] == [kind]
    assert "in the midst of another call" in heard[0].reason
    assert not getattr(heard[0], "outcome_unknown", False)
    assert len(transport.requests) == 1
    assert isinstance(archive.save(TRANSACTION), Saved), "and the next one is not affected"


@pytest.mark.timeout(10)
def test_a_signal_handler_may_close_the_archive_that_it_interrupts(on_signal):
    transport = Signalled()
    archive = Archive(over(transport))
    on_signal(archive.close)
    assert isinstance(archive.save(TRANSACTION), Saved), "the call in hand ends first"
    assert transport.handshakes == 1
    assert isinstance(archive.save(TRANSACTION), Saved)
    assert transport.handshakes == 2

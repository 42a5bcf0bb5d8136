"""What a failure means: proved not executed, refused, or unknown; and that nothing is sent twice by guess."""

import json
import time
from datetime import UTC, datetime

import httpx
import pytest

from nl_cutover.errors import UsageError
from nl_cutover.ingress.delivery import retry_after
from nl_cutover.ingress.operations import Operations
from nl_cutover.ingress.session import Session
from nl_cutover.verdicts import Delivered, NotSent, Refused, Unknown
from tests.ingress.fake import RawServer, Scripted, endpoint, event, message, sse, tool_result

SAVED = {"saved": True, "archiveId": "new-1"}


def save_against(answer, **options):
    transport = Scripted(answer)
    session = Session(endpoint(), transport=transport, sleep=lambda _: None, **options)
    return Operations(session).save(b"{}"), transport, session


def status(code, body=b"", **headers):
    return lambda request, _: httpx.Response(code, content=body, headers=headers)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (status(401, b'{"error":"invalid_token"}'), "credentials"),
        (status(403, b'{"error":"forbidden"}'), "credentials"),
        (status(403, b'{"error":{"code":-32000,"message":"Invalid Host: x"}}'), "host"),
        (status(421, b"Misdirected"), "host"),
        (status(413, b"<html><pre>PayloadTooLargeError</pre></html>"), "too-large"),
        (status(301, location="https://mc.example/mcp"), "redirect"),
        (status(308, location="https://mc.example/mcp"), "redirect"),
        (status(307, location="http://127.0.0.1:9/x"), "redirect"),
        (status(429, **{"retry-after": "999"}), "busy"),
    ],
)
def test_a_status_that_proves_non_execution(answer, kind):
    outcome, transport, _ = save_against(answer)
    assert isinstance(outcome, NotSent)
    assert outcome.kind == kind
    assert len(transport.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        status(500, b"boom"),
        status(502),
        status(503, **{"retry-after": "1"}),
        status(504),
        status(202),
        status(302, location="/other"),
        status(303, location="/other"),
        lambda request, body: sse(b""),
        lambda request, body: sse(event(message(999, {}))),
        lambda request, body: sse(event(message(body["id"], tool_result(SAVED)))[:-1]),
        lambda request, body: sse(b"data: {broken\n\n"),
        lambda request, body: httpx.Response(200, headers={"content-type": "application/json"}, content=b""),
        lambda request, body: sse(event(message(body["id"], tool_result({"saved": True})))),
        lambda request, body: sse(event(message(body["id"], tool_result({})))),
        lambda request, body: sse(event(message(body["id"], {"content": [], "isError": False}))),
    ],
)
def test_an_outcome_that_nobody_knows_is_unknown_and_sent_once(answer):
    outcome, transport, _ = save_against(answer)
    assert isinstance(outcome, Unknown)
    assert len(transport.requests) == 1


@pytest.mark.parametrize(
    ("result", "proven"),
    [
        ({"content": [{"type": "text", "text": "Error executing"}], "isError": True}, False),
        ({"content": [{"type": "text", "text": "Cannot execute save: not available"}], "isError": True}, True),
        (tool_result({"saved": False, "reason": "invalid-transaction"}), True),
    ],
)
def test_a_refusal_is_final_and_says_whether_it_proves_that_nothing_was_stored(result, proven):
    outcome, transport, _ = save_against(lambda request, body: sse(event(message(body["id"], result))))
    assert isinstance(outcome, Refused)
    assert outcome.proven is proven
    assert len(transport.requests) == 1


def test_a_json_rpc_error_is_a_refusal():
    def answer(request, body):
        error = {"jsonrpc": "2.0", "id": body["id"], "error": {"code": -32602, "message": "bad\nparams"}}
        return sse(event(json.dumps(error).encode()))

    outcome, transport, _ = save_against(answer)
    assert outcome == Refused("JSON-RPC error -32602: bad params", proven=True)
    assert len(transport.requests) == 1


def test_the_answer_is_found_among_other_events():
    def answer(request, body):
        note = b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{}}\r\n\r\n'
        return sse(b"id: p0\r\ndata:\r\n\r\n" + note + event(message(body["id"], tool_result(SAVED))))

    outcome, _, _ = save_against(answer)
    assert isinstance(outcome, Delivered)
    assert outcome.result["archiveId"] == "new-1"


@pytest.mark.parametrize("code", [404, 400])
def test_a_lost_session_is_rebuilt_and_the_call_sent_again_because_it_provably_did_not_run(code):
    def answer(request, body):
        if request.headers["mcp-session-id"] == "s1":
            return httpx.Response(code, content=b'{"error":"Session not found"}')
        return sse(event(message(body["id"], tool_result(SAVED))))

    outcome, transport, _ = save_against(answer)
    assert isinstance(outcome, Delivered)
    assert transport.handshakes == 2
    assert len(transport.requests) == 2


def test_a_server_initiated_request_is_refused_and_counted():
    refusals = []

    def answer(request, body):
        if "method" not in body:
            refusals.append(body)
            return httpx.Response(202)
        asks = b'data: {"jsonrpc":"2.0","id":"x","method":"sampling/createMessage","params":{}}\n\n'
        return sse(asks + event(message(body["id"], tool_result(SAVED))))

    outcome, _, session = save_against(answer)
    assert isinstance(outcome, Delivered)
    assert session.refused_server_requests == 1
    assert refusals[0]["id"] == "x"
    assert refusals[0]["error"]["code"] == -32601


def test_no_capability_is_declared_and_no_origin_is_sent():
    seen = []

    class Watching(Scripted):
        def handle_request(self, request):
            seen.append((dict(request.headers), json.loads(request.read() or b"{}")))
            return super().handle_request(request)

    session = Session(endpoint(), transport=Watching(lambda r, b: sse(event(message(b["id"], tool_result(SAVED))))))
    Operations(session).save(b"{}")
    assert seen[0][1]["params"]["capabilities"] == {}
    assert all("origin" not in headers for headers, _ in seen)
    assert seen[-1][0]["mcp-protocol-version"] == "2025-06-18"


def test_a_connection_that_was_never_made_sent_nothing():
    session = Session(endpoint("http://127.0.0.1:9/mc/mcp"))
    outcome = Operations(session).save(b"{}")
    assert isinstance(outcome, NotSent)
    assert outcome.kind == "unreachable"


def handshake_then(behave):
    """A raw server that handshakes, and then lets `behave` treat the call."""

    def serve(connection, body):
        request = json.loads(body)
        if request.get("method") == "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}}
            data = event(message(request["id"], result))
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nmcp-session-id: s\r\nconnection: close\r\n"
            connection.sendall(head + b"content-length: %d\r\n\r\n" % len(data) + data)
        elif request.get("method") == "notifications/initialized":
            connection.sendall(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        else:
            behave(connection, request)

    return RawServer(serve)


@pytest.mark.parametrize(
    "behave",
    [
        lambda connection, request: None,
        lambda connection, request: connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nhalf"),
        lambda connection, request: connection.sendall(b"not http at all\r\n\r\n"),
        lambda connection, request: time.sleep(0.6),
    ],
    ids=["dropped", "truncated", "garbage", "hanging"],
)
def test_a_connection_that_fails_after_the_request_left_is_unknown(behave):
    with handshake_then(behave) as server:
        session = Session(endpoint(server.url, call_timeout=0.4))
        outcome = Operations(session).save(b"{}")
    assert isinstance(outcome, Unknown)
    assert sum(b"tools/call" in request for request in server.requests) == 1


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", b": still here\n\n"),
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
        (b"", b"H"),
    ],
    ids=["stream", "head", "status line"],
)
def test_what_drips_ends_at_the_deadline(head, drop):
    def drip(connection, request):
        connection.sendall(head)
        for _ in range(40):
            connection.sendall(drop)
            time.sleep(0.05)

    with handshake_then(drip) as server:
        began = time.monotonic()
        outcome = Operations(Session(endpoint(server.url, call_timeout=0.4))).save(b"{}")
    assert isinstance(outcome, Unknown)
    assert time.monotonic() - began < 1.5


def test_environment_proxies_are_not_asked(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")

    def answer(connection, request):
        data = event(message(request["id"], tool_result(SAVED)))
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
        connection.sendall(head + b"content-length: %d\r\n\r\n" % len(data) + data)

    with handshake_then(answer) as server:
        assert isinstance(Operations(Session(endpoint(server.url))).save(b"{}"), Delivered)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:pw@127.0.0.1/mcp",
        "http://127.0.0.1/mcp?token=abc",
        "http://mc.example/mcp",
        "ftp://127.0.0.1/x",
        "http://",
        "http://127.0.0.1:99999/x",
        "http://[::1/x",
    ],
)
def test_a_url_that_would_leak_or_cannot_work_is_refused(url):
    with pytest.raises(UsageError) as caught:
        endpoint(url)
    assert "pw" not in str(caught.value)
    assert "abc" not in str(caught.value)


def test_cleartext_to_a_stranger_needs_to_be_said():
    assert endpoint("http://mc.example/mcp", cleartext=True).cleartext
    assert not endpoint("http://localhost/mcp", cleartext=True).cleartext


def test_a_token_shows_itself_nowhere():
    target = endpoint()
    assert "sentinel" not in repr(target.token) + str(target.token) + repr(vars(target))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("0", 0), ("7", 7), ("Mon, 30 Nov 2026 14:00:30 GMT", 30), ("Mon, 30 Nov 2026 13:00:00 GMT", 0)],
)
def test_both_forms_of_retry_after(value, seconds):
    assert retry_after(value, datetime(2026, 11, 30, 14, tzinfo=UTC)) == seconds


@pytest.mark.parametrize("value", [None, "soon", "-3", "1.5"])
def test_an_unusable_retry_after_says_nothing(value):
    assert retry_after(value, datetime(2026, 11, 30, 14, tzinfo=UTC)) is None


def test_a_url_that_is_none_is_an_answer_and_a_cookie_goes_nowhere():
    seen = []

    def answer(request, body):
        seen.append(request.headers)
        response = sse(event(message(body["id"], tool_result(SAVED))))
        response.headers["set-cookie"] = "who=me; Path=/"
        return response

    session = Session(endpoint(), transport=Scripted(answer))
    assert all(isinstance(Operations(session).save(b"{}"), Delivered) for _ in range(2))
    assert not any("cookie" in headers for headers in seen)
    session.endpoint.url = "http://localhost/\x01mcp"
    assert isinstance(Operations(Session(session.endpoint)).save(b"{}"), NotSent)

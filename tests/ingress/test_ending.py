"""Sessions are ended where they were begun: also those that were given up after an unknown outcome."""

import time

import httpx

from nl_cutover.ingress.operations import Operations
from nl_cutover.ingress.session import Session
from nl_cutover.verdicts import Delivered, Unknown
from tests.ingress.fake import RawServer, Scripted, endpoint, event, message, sse, tool_result


class Ended(Scripted):
    """Loses the answers of `lost` calls, and remembers which sessions were ended, and how it answered that."""

    def __init__(self, lost: int, delete=lambda: httpx.Response(200)) -> None:
        super().__init__(self._answer)
        self.ended: list[str] = []
        self._lost, self._delete = lost, delete

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            self.ended.append(request.headers["mcp-session-id"])
            return self._delete()
        return super().handle_request(request)

    def _answer(self, request: httpx.Request, body: dict) -> httpx.Response:
        self._lost -= 1
        if self._lost >= 0:
            raise httpx.ReadError("lost")
        return sse(event(message(body["id"], tool_result({"saved": True, "archiveId": "a"}))))


def _fail() -> httpx.Response:
    raise httpx.ConnectError("gone")


def test_every_session_is_ended_also_those_given_up():
    transport = Ended(2)
    with Session(endpoint(), transport=transport) as session:
        outcomes = [Operations(session).save(b"{}") for _ in range(3)]
        assert transport.ended == [], "never before the outcome of a row"
    assert [isinstance(o, Unknown) for o in outcomes] == [True, True, False]
    assert transport.ended == ["s1", "s2", "s3"]


def test_a_session_whose_handshake_could_not_be_read_is_ended():
    class Spoiled(Ended):
        def handle_request(self, request):
            answer = super().handle_request(request)
            if b'"initialize"' in request.content and self.handshakes == 1:
                return httpx.Response(200, headers={"mcp-session-id": "s1"}, content=b"?")
            return answer

    transport = Spoiled(0)
    with Session(endpoint(), transport=transport) as session:
        Operations(session).save(b"{}")
        assert isinstance(Operations(session).save(b"{}"), Delivered)
    assert transport.ended == ["s1", "s2"]


def test_a_session_that_the_server_does_not_know_is_not_ended():
    transport = Ended(0)
    transport.answer = lambda request, body: httpx.Response(404, content=b'{"error":"Session not found"}')
    with Session(endpoint(), transport=transport) as session:
        Operations(session).save(b"{}")
    assert transport.ended == []


def test_a_server_that_refuses_to_end_sessions_or_is_gone_changes_nothing():
    for answer, tried in ((lambda: httpx.Response(405), ["s1", "s2"]), (_fail, ["s1"])):
        transport = Ended(1, answer)
        with Session(endpoint(), transport=transport) as session:
            Operations(session).save(b"{}")
            Operations(session).save(b"{}")
        assert transport.ended == tried


def test_ending_is_given_up_at_its_deadline_even_when_the_answer_drips():
    def serve(connection, body):
        if b'"initialize"' in body:
            result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}}
            data = event(message(int(body.split(b'"id":')[1].split(b",")[0]), result))
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nmcp-session-id: s\r\nconnection: close\r\n"
            connection.sendall(head + b"content-length: %d\r\n\r\n" % len(data) + data)
        elif body:
            connection.sendall(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        else:
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            for _ in range(100):
                connection.sendall(b"x: y\r\n")
                time.sleep(0.05)

    with RawServer(serve) as server:
        session = Session(endpoint(server.url))
        assert session.open() is None
        began = time.monotonic()
        session.close()
    assert time.monotonic() - began < 3.5
    assert server.requests[-1].startswith(b"DELETE")

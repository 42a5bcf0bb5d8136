"""A proxy that knows what a writing call is, lets the server commit it, and then does something to the answer."""

import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

WRITING = ("save_nl_transaction", "mark_nl_transaction_replayed", "admit_nl_actions")
HANGUP_S = 30  # until a client that never ends its connection counts as a fault of the test
DRIP_S = 4  # how long a drip goes on where the client bears it


class Kind(StrEnum):
    """What a fault leaves of a call, seen from the client."""

    PLAIN = "plain"  # answered as the server answered
    DISGUISED = "disguised"  # the same answer in another lawful form
    SPOILED = "spoiled"  # committed, and the answer says nothing: unknown
    LATE = "late"  # it reaches the server after the client has given it up: unknown
    SWALLOWED = "swallowed"  # it never reached the server, and nothing proves that: unknown
    TURNED_AWAY = "turned away"  # it provably never reached the server: sent again at once
    TOO_LARGE = "too large"  # it provably never reached the server: refused
    WALL = "wall"  # it provably never reached the server, and nor would the next: the run ends


@dataclass
class Answer:
    """What the server said to one call."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> bytes:
        """The JSON-RPC message of the one event."""
        return self.body.removeprefix(b"event: message\ndata: ").removesuffix(b"\n\n")

    def http(self, body: bytes | None = None, status: int | None = None, **headers: str | None) -> bytes:
        """The whole response, with another body, status or headers (`content_type="..."`; None removes one)."""
        body = self.body if body is None else body
        changed = {name.replace("_", "-"): value for name, value in headers.items()}
        fields = {**self.headers, "content-length": str(len(body)), **changed}
        lines = [f"{name}: {value}\r\n" for name, value in fields.items() if value is not None]
        return f"HTTP/1.1 {status or self.status} -\r\n{''.join(lines)}\r\n".encode("latin-1") + body

    def chunked(self, *chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
        head = self.http(b"", content_length=None, transfer_encoding="chunked")
        return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + end

    def sse(self, *events: bytes) -> bytes:
        return self.http(b"".join(events))

    def with_message(self, **changes: object) -> bytes:
        message = {**json.loads(self.message), **changes}
        return event(json.dumps({k: v for k, v in message.items() if v is not None}).encode())


class End(StrEnum):
    """What becomes of the connection after the bytes."""

    KEEP = "keep"
    CLOSE = "close"
    RESET = "reset"
    HOLD = "hold"  # silence until the client gives up
    DRIP = "drip"  # a few bytes now and then until the client gives up


@dataclass(frozen=True)
class Fault:
    """`bytes_of` makes what the client gets out of the server's answer, or out of nothing where it was not asked."""

    kind: Kind
    bytes_of: Callable[[Answer], bytes]
    end: End = End.KEEP
    drip: bytes = b""


def event(data: bytes, end: bytes = b"\n") -> bytes:
    return b"event: message" + end + b"data: " + data + end + end


NOTE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'
ASKS = b'{"jsonrpc":"2.0","id":"of-the-server","method":"sampling/createMessage","params":{}}'
HTML = b"<html><head><title>502</title></head><body><center>nginx</center></body></html>"
NOTHING = Answer(200, {"content-type": "text/event-stream"}, b"")


def _page(status: int, body: bytes = b"", **headers: str) -> Callable[[Answer], bytes]:
    return lambda _: NOTHING.http(body, status, **({"content_type": "text/html"} | headers))


FAULTS: dict[str, Fault] = {
    "untouched": Fault(Kind.PLAIN, lambda a: a.http()),
    # the same answer, otherwise told
    "CRLF": Fault(Kind.DISGUISED, lambda a: a.sse(event(a.message, b"\r\n"))),
    "CR": Fault(Kind.DISGUISED, lambda a: a.sse(event(a.message, b"\r"))),
    "a byte order mark": Fault(Kind.DISGUISED, lambda a: a.sse(b"\xef\xbb\xbf" + a.body)),
    "a priming event": Fault(Kind.DISGUISED, lambda a: a.sse(b"id: p0\nretry: 10\ndata: \n\n", a.body)),
    "comments": Fault(Kind.DISGUISED, lambda a: a.sse(b": ping\n\n: ping\n", a.body)),
    "notifications first": Fault(Kind.DISGUISED, lambda a: a.sse(event(NOTE), event(NOTE), a.body)),
    "a question first": Fault(Kind.DISGUISED, lambda a: a.sse(event(ASKS), a.body)),
    "another answer first": Fault(Kind.DISGUISED, lambda a: a.sse(a.with_message(id=987654), a.body)),
    "two lines of data": Fault(Kind.DISGUISED, lambda a: a.sse(a.body.replace(b"data: {", b"data: {\ndata: ", 1))),
    "twice in one stream": Fault(Kind.DISGUISED, lambda a: a.sse(a.body, a.body)),
    "JSON": Fault(Kind.DISGUISED, lambda a: a.http(a.message, content_type="application/json; charset=utf-8")),
    "a JSON batch": Fault(Kind.DISGUISED, lambda a: a.http(b"[" + a.message + b"]", content_type="application/json")),
    "byte by byte": Fault(Kind.DISGUISED, lambda a: a.chunked(*(a.body[i : i + 1] for i in range(len(a.body))))),
    "the end of the connection": Fault(Kind.DISGUISED, lambda a: a.http(connection="close"), End.CLOSE),
    "no length": Fault(Kind.DISGUISED, lambda a: a.http(content_length=None), End.CLOSE),
    "early hints": Fault(Kind.DISGUISED, lambda a: b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + a.http()),
    # the whole answer a second time behind the first, for the next call on that connection to meet
    "the answer twice": Fault(Kind.DISGUISED, lambda a: a.http() * 2),
    "JSON twice": Fault(Kind.DISGUISED, lambda a: a.http(a.message, content_type="application/json") * 2),
    "202 twice": Fault(Kind.SPOILED, lambda a: _page(202)(a) * 2),
    "404 session twice": Fault(Kind.TURNED_AWAY, lambda a: _page(404, b'{"error":"Session not found"}')(a) * 2),
    "429 twice": Fault(Kind.TURNED_AWAY, lambda a: _page(429, retry_after="0")(a) * 2),
    "307 twice": Fault(Kind.TURNED_AWAY, lambda a: _page(307, location="/mc/mcp")(a) * 2),
    "413 twice": Fault(Kind.TOO_LARGE, lambda a: _page(413, HTML)(a) * 2),
    # committed, and not told
    "dropped": Fault(Kind.SPOILED, lambda _: b"", End.CLOSE),
    "reset": Fault(Kind.SPOILED, lambda _: b"", End.RESET),
    "half a head": Fault(Kind.SPOILED, lambda a: a.http()[:30], End.CLOSE),
    "half a body": Fault(Kind.SPOILED, lambda a: a.http()[: -len(a.body) // 2], End.CLOSE),
    "half a body, reset": Fault(Kind.SPOILED, lambda a: a.http()[: -len(a.body) // 2], End.RESET),
    "half a chunk": Fault(Kind.SPOILED, lambda a: a.chunked(a.body)[: -len(a.body) // 2], End.CLOSE),
    "half an event": Fault(Kind.SPOILED, lambda a: a.sse(a.body[:-1])),
    "half an event, the rest missing": Fault(Kind.SPOILED, lambda a: a.sse(a.body[: len(a.body) // 2])),
    "half of JSON": Fault(Kind.SPOILED, lambda a: a.http(a.message[:-1], content_type="application/json")),
    "a bad chunk": Fault(Kind.SPOILED, lambda a: a.chunked(end=b"zz\r\n\r\n"), End.CLOSE),
    "another id": Fault(Kind.SPOILED, lambda a: a.sse(a.with_message(id=987654))),
    "the id as text": Fault(Kind.SPOILED, lambda a: a.sse(a.with_message(id="2"))),
    "no id": Fault(Kind.SPOILED, lambda a: a.sse(a.with_message(id=None))),
    "no result": Fault(Kind.SPOILED, lambda a: a.sse(a.with_message(result=None))),
    "an empty result": Fault(Kind.SPOILED, lambda a: a.sse(a.with_message(result={}))),
    "a result without its fields": Fault(
        Kind.SPOILED, lambda a: a.sse(a.with_message(result={"content": [], "structuredContent": {"saved": True}}))
    ),
    "notifications only": Fault(Kind.SPOILED, lambda a: a.sse(event(NOTE), event(NOTE))),
    "an empty stream": Fault(Kind.SPOILED, lambda a: a.http(b"")),
    "an empty body": Fault(Kind.SPOILED, lambda a: a.http(b"", content_type="application/json")),
    "not JSON": Fault(Kind.SPOILED, lambda a: a.sse(event(b"{broken"))),
    "not UTF-8": Fault(Kind.SPOILED, lambda a: a.sse(event(b'{"x":"\xff"}'))),
    "not gzip": Fault(Kind.SPOILED, lambda a: a.http(content_encoding="gzip")),
    "a web page": Fault(Kind.SPOILED, _page(200, HTML)),
    "202": Fault(Kind.SPOILED, _page(202)),
    "204": Fault(Kind.SPOILED, lambda _: b"HTTP/1.1 204 -\r\n\r\n"),
    "500": Fault(Kind.SPOILED, _page(500, b'{"jsonrpc":"2.0","error":{"code":-32603,"message":"x"},"id":null}')),
    "502": Fault(Kind.SPOILED, _page(502, HTML)),
    "503 with Retry-After": Fault(Kind.SPOILED, _page(503, HTML, retry_after="0")),
    "504": Fault(Kind.SPOILED, _page(504, HTML)),
    "delayed": Fault(Kind.SPOILED, lambda _: b"", End.HOLD),
    "a head, then silence": Fault(Kind.SPOILED, lambda a: a.http()[: -len(a.body)], End.HOLD),
    "a page, then silence": Fault(Kind.SPOILED, lambda a: a.http(HTML, 502)[:-5], End.HOLD),
    "dripping comments": Fault(Kind.SPOILED, lambda a: a.chunked(end=b""), End.DRIP, b"3\r\n:\n\n\r\n"),
    "a dripping head": Fault(Kind.SPOILED, lambda _: b"HTTP/1.1 200 -\r\n", End.DRIP, b"x: y\r\n"),
    "a dripping page": Fault(Kind.SPOILED, lambda _: b"HTTP/1.1 502 -\r\n\r\n", End.DRIP, b"<br>"),
    # not arrived yet
    "held back": Fault(Kind.LATE, lambda _: b"", End.HOLD),
    # never arrived, and nobody can tell
    "swallowed": Fault(Kind.SWALLOWED, lambda _: b"", End.CLOSE),
    "swallowed, reset": Fault(Kind.SWALLOWED, lambda _: b"", End.RESET),
    "swallowed, 502": Fault(Kind.SWALLOWED, _page(502, HTML)),
    "swallowed, 503": Fault(Kind.SWALLOWED, _page(503, HTML, retry_after="0")),
    # never arrived, and the answer proves it
    "404 session": Fault(Kind.TURNED_AWAY, _page(404, b'{"error":"Session not found"}')),
    "400 session": Fault(Kind.TURNED_AWAY, _page(400, b'{"error":{"message":"No valid session ID provided"}}')),
    "429": Fault(Kind.TURNED_AWAY, _page(429, retry_after="0")),
    "307": Fault(Kind.TURNED_AWAY, _page(307, location="/mc/mcp")),
    "413": Fault(Kind.TOO_LARGE, _page(413, HTML)),
    "401": Fault(Kind.WALL, _page(401, b'{"error":"invalid_token"}')),
    "307 to a stranger": Fault(Kind.WALL, _page(307, location="http://127.0.0.1:9/mc/mcp")),
}
ASKED = frozenset({Kind.PLAIN, Kind.DISGUISED, Kind.SPOILED})
IN_DOUBT = frozenset({Kind.SPOILED, Kind.SWALLOWED, Kind.LATE})


@dataclass
class Call:
    """One writing call as it passed. `result` is what the server said, None where it was not asked."""

    tool: str
    arguments: dict
    fault: str
    result: dict | None = None

    @property
    def kind(self) -> Kind:
        return FAULTS[self.fault].kind


Judge = Callable[[str, str], str]


def leave_alone(tool: str, subject: str) -> str:
    return "untouched"


@dataclass
class FaultProxy:
    """Stands at `url` before the server at `upstream`; `judge` names the fault of each writing call.

    It is told the tool and what the call is about, in words that are the same for the same rows in every run: the
    `txId` of a save or of the archive that is marked, an action's own fields. `given_up` is called when the client has given up a call
    that is held back; `deliver` lets the server have those calls, and returns when it has answered them. `calls` holds the writing calls in the order in which they came. Everything else passes untouched.
    """

    upstream: str
    judge: Judge = leave_alone
    calls: list[Call] = field(default_factory=list)
    given_up: Callable[[], None] = lambda: None

    def __enter__(self) -> "FaultProxy":
        self._server = urlsplit(self.upstream)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}{self._server.path}"
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._tx_ids: dict[str, str] = {}
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        self.failures: list[BaseException] = []
        self._held: list[tuple[Call, str, dict[str, str], bytes]] = []
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def deliver(self) -> None:
        upstream = http.client.HTTPConnection(self._server.hostname, self._server.port, timeout=HANGUP_S)
        for call, method, headers, body in self._held:
            self._heard(call, self._ask(upstream, method, headers, body))
        self._held.clear()
        upstream.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            with self._lock:
                self._open.add(connection)
                self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(HANGUP_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        upstream = http.client.HTTPConnection(self._server.hostname, self._server.port, timeout=HANGUP_S)
        try:
            with connection.makefile("rb") as reader:
                while (request := _read_request(reader)) is not None:
                    told, fault = self._exchange(upstream, *request)
                    connection.sendall(told)
                    if fault.end is not End.KEEP:
                        _end(connection, fault)
                        if fault.kind is Kind.LATE:
                            self.given_up()
                        return
        except (ConnectionError, TimeoutError):
            pass
        except BaseException as error:
            self.failures.append(error)
        finally:
            upstream.close()
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _exchange(
        self, upstream: http.client.HTTPConnection, method: str, headers: dict[str, str], body: bytes
    ) -> tuple[bytes, Fault]:
        if method == "DELETE" and self._held:  # a line that holds a call back does not let its session's end pass it by
            return NOTHING.http(), FAULTS["untouched"]
        call = self._call(body)
        if call is None or call.kind in ASKED:
            answer = self._ask(upstream, method, headers, body)
            if call is None:
                return answer.http(), FAULTS["untouched"]
            self._heard(call, answer)
        else:
            answer = NOTHING
            if call.kind is Kind.LATE:
                self._held.append((call, method, headers, body))
        fault = FAULTS[call.fault]
        return fault.bytes_of(answer), fault

    def _heard(self, call: Call, answer: Answer) -> None:
        call.result = json.loads(answer.message)["result"].get("structuredContent")
        if call.tool == WRITING[0]:
            self._tx_ids[call.result["archiveId"]] = call.arguments["transaction"]["txId"]

    def _call(self, body: bytes) -> Call | None:
        message = json.loads(body or b"{}")
        params = message.get("params", {})
        if message.get("method") != "tools/call" or params["name"] not in WRITING:
            return None
        with self._lock:
            tool, arguments = params["name"], params["arguments"]
            call = Call(tool, arguments, self.judge(tool, self._subject(arguments)))
            self.calls.append(call)
        return call

    def _subject(self, arguments: dict) -> str:
        if "transaction" in arguments:
            return arguments["transaction"]["txId"]
        if "archiveId" in arguments:
            return self._tx_ids.get(arguments["archiveId"], "an archive that was saved elsewhere")
        action = arguments["actions"][0]
        return repr([action[name] for name in ("sessionId", "tool", "durationMs", "targets")])

    def _ask(self, upstream: http.client.HTTPConnection, method: str, headers: dict[str, str], body: bytes) -> Answer:
        passed = {name: value for name, value in headers.items() if name not in ("host", "connection")}
        upstream.request(method, self._server.path, body, passed)
        response = upstream.getresponse()
        content = response.read()
        kept = {name.lower(): value for name, value in response.getheaders() if name.lower() != "content-length"}
        return Answer(response.status, kept, content)


def _read_request(reader) -> tuple[str, dict[str, str], bytes] | None:
    """The next request of a connection, whole, or None at its end."""
    line = reader.readline()
    if not line:
        return None
    headers = {}
    while (field_line := reader.readline().strip()) != b"":
        name, _, value = field_line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    body = reader.read(int(headers.get("content-length", 0)))
    return line.split()[0].decode(), headers, body


def _end(connection: socket.socket, fault: Fault) -> None:
    match fault.end:
        case End.RESET:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        case End.HOLD:
            connection.recv(1)  # returns when the client has given up
        case End.DRIP:
            connection.settimeout(0.05)
            until = time.monotonic() + DRIP_S
            while time.monotonic() < until:
                connection.sendall(fault.drip)
                try:
                    if connection.recv(1) == b"":
                        return
                except TimeoutError:
                    pass

"""A server that answers what a test tells it to, over a transport or over a real socket."""

import json
import socket
import threading
from collections.abc import Callable

import httpx

from nl_cutover.ingress.endpoint import Endpoint, Token

URL = "http://127.0.0.1:3102/mc/mcp"


def endpoint(url: str = URL, **options) -> Endpoint:
    return Endpoint(url, Token("sentinel-token-1234"), **options)


def message(request_id, result) -> bytes:
    return json.dumps({"result": result, "jsonrpc": "2.0", "id": request_id}).encode()


def event(body: bytes) -> bytes:
    return b"event: message\ndata: " + body + b"\n\n"


def tool_result(value) -> dict:
    return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value, "isError": False}


class Scripted(httpx.BaseTransport):
    """Handshakes like MC; hands every other request to `answer(request, body)` and records it."""

    def __init__(self, answer: Callable[[httpx.Request, dict], httpx.Response]) -> None:
        self.answer = answer
        self.requests: list[tuple[httpx.Request, dict]] = []
        self.handshakes = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.read() or b"{}")
        if body.get("method") == "initialize":
            self.handshakes += 1
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "serverInfo": {"name": "fake", "version": "1"},
            }
            headers = {"content-type": "text/event-stream", "mcp-session-id": f"s{self.handshakes}"}
            return httpx.Response(200, headers=headers, content=event(message(body["id"], result)))
        if body.get("method") == "notifications/initialized":
            return httpx.Response(202)
        if request.method == "DELETE":
            return httpx.Response(200)
        self.requests.append((request, body))
        return self.answer(request, body)


def sse(body: bytes) -> httpx.Response:
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body)


class RawServer:
    """Reads one request a connection and lets `behave(connection, request)` do the rest."""

    def __init__(self, behave: Callable[[socket.socket, bytes], None]) -> None:
        self._behave = behave
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/mc/mcp"
        self.requests: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                data = b""
                while b"\r\n\r\n" not in data:
                    data += connection.recv(65536)
                head, _, body = data.partition(b"\r\n\r\n")
                length = next(
                    (int(x.split(b":")[1]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length")), 0
                )
                while len(body) < length:
                    body += connection.recv(65536)
                self.requests.append(head + b"\r\n\r\n" + body)
                try:
                    self._behave(connection, body)
                except OSError:
                    pass

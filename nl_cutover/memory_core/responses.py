"""HTTP answers in the server's own forms: JSON-RPC errors, plain JSON errors, Express' error pages, SSE."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from html import escape
from typing import Any

import msgspec

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

SESSION_HEADER = "mcp-session-id"
KEEP_ALIVE_S = 5

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Error</title>
</head>
<body>
<pre>{}</pre>
</body>
</html>
"""


class Response(msgspec.Struct, frozen=True):
    """A whole answer, and whether the headers of the MCP route go with it."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}
    routed: bool = True

    async def __call__(self, send: Send, common: Mapping[str, str]) -> None:
        headers = {**(common if self.routed else {}), **self.headers}
        headers["content-length"] = str(len(self.body))
        headers["keep-alive"] = f"timeout={KEEP_ALIVE_S}"
        raw = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": raw})
        await send({"type": "http.response.body", "body": self.body})


NOT_FOUND = Response(404, routed=False)
ACCEPTED = Response(202)
ENDED = Response(200)
UNKNOWN_SESSION = Response(
    404, b'{"error":"Session not found"}', headers={"content-type": "application/json; charset=utf-8"}
)


def page(status: int, error: str) -> Response:
    """What Express shows for a body it cannot take: HTML, sent before anything looks at the Authorization header."""
    headers = {"content-type": "text/html; charset=utf-8"}
    return Response(status, _PAGE.format(escape(error)).encode(), headers, routed=False)


def rpc_error(status: int, code: int, message: str) -> Response:
    body = {"jsonrpc": "2.0", "error": {"code": code, "message": message}, "id": None}
    return Response(status, msgspec.json.encode(body), {"content-type": "application/json"})


def unauthorized(description: str) -> Response:
    body = msgspec.json.encode({"error": "invalid_token", "error_description": description})
    challenge = f'Bearer error="invalid_token", error_description="{description}"'
    headers = {"www-authenticate": challenge, "content-type": "application/json; charset=utf-8"}
    return Response(401, body, headers)


def events(session: str, messages: Iterable[str]) -> Response:
    """Server-sent events, one a message, no id lines. U+2028 and the like stand raw: only LF ends a line."""
    body = "".join(f"event: message\ndata: {message}\n\n" for message in messages)
    headers = {
        "cache-control": "no-cache, no-transform",
        "content-type": "text/event-stream",
        SESSION_HEADER: session,
    }
    return Response(200, body.encode("utf-8"), headers)

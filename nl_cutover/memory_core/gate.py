"""What stands before the MCP SDK: body limit, Host, Origin, bearer, session, headers, in the observed order."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from ..contract.wire import BODY_LIMIT
from .auth import Denied, Identity, Tokens
from .fidelity import Fidelity, inner_session
from .jsontext import parse
from .responses import (
    ENDED,
    NOT_FOUND,
    SESSION_HEADER,
    UNKNOWN_SESSION,
    Application,
    Message,
    Receive,
    Response,
    Scope,
    Send,
    page,
    rpc_error,
    unauthorized,
)

PATH = "/mc/mcp"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
SUPPORTED_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "2024-10-07")

_SERVER_ERROR = -32000
_INVALID_REQUEST = -32600
_PARSE_ERROR = -32700
_DRAIN_LIMIT = 64 * BODY_LIMIT  # bytes read and dropped, so that a client can finish sending before it reads the 413
_NOT_INITIALIZED = rpc_error(400, _SERVER_ERROR, "Bad Request: Server not initialized")

Headers = dict[str, str]


class Gate:
    """The ASGI application that the listener runs."""

    def __init__(self, sdk: Application, fidelity: Fidelity, tokens: Tokens, allowed_hosts: Collection[str]) -> None:
        self._sdk = sdk
        self._fidelity = fidelity
        self._tokens = tokens
        self._hosts = frozenset((*LOCAL_HOSTS, *(host.lower() for host in allowed_hosts)))
        self._sessions: set[str] = set()
        self._common = {"access-control-expose-headers": "Mcp-Session-Id"}
        if not tokens.local_bearer:
            self._common["access-control-allow-origin"] = "*"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        response = await self._answer(scope, receive, send)
        if response is not None:
            await response(send, self._common)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """The answer, or None when it was streamed."""
        if scope["path"] != PATH:
            return NOT_FOUND
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        body = None
        if _media_type(headers) == "application/json" and scope["method"] not in ("GET", "DELETE"):
            raw = await _read(headers, receive)
            if raw is None:
                return page(413, "PayloadTooLargeError: request entity too large")
            try:
                body = _parse(raw)
            except RecursionError:
                return page(400, "RangeError: Maximum call stack size exceeded")
            except ValueError:
                return page(400, "SyntaxError: the body is not JSON")
        caller = self._admit(headers)
        if isinstance(caller, Response):
            return caller
        session = headers.get(SESSION_HEADER)
        if session is not None and session not in self._sessions:
            return UNKNOWN_SESSION
        match scope["method"]:
            case "POST":
                return await self._post(scope, headers, body, session, caller)
            case "GET":
                return await self._listen(scope, receive, send, headers, session)
            case "DELETE":
                return await self._end(scope, receive, session)
            case _:
                return rpc_error(405, _SERVER_ERROR, "Method not allowed.")

    def _admit(self, headers: Headers) -> Identity | Response:
        host = _hostname(headers.get("host", ""))
        if host not in self._hosts:
            return rpc_error(403, _SERVER_ERROR, f"Invalid Host: {host}" if host else "Missing Host header")
        if self._tokens.local_bearer and "origin" in headers:
            return rpc_error(403, _SERVER_ERROR, "Origin header is not allowed in local-bearer mode")
        caller = self._tokens.identify(headers.get("authorization"))
        return unauthorized(caller.description) if isinstance(caller, Denied) else caller

    async def _post(self, scope: Scope, headers: Headers, body: Any, session: str | None, caller: Identity) -> Response:
        accept = headers.get("accept", "")
        if "application/json" not in accept or "text/event-stream" not in accept:
            message = "Not Acceptable: Client must accept both application/json and text/event-stream"
            return rpc_error(406, _SERVER_ERROR, message)
        if body is None:
            return rpc_error(415, _SERVER_ERROR, "Unsupported Media Type: Content-Type must be application/json")
        messages = body if isinstance(body, list) else [body]
        if not all(_is_message(message) for message in messages):
            return rpc_error(400, _PARSE_ERROR, "Parse error: Invalid JSON-RPC message")
        if any(message.get("method") == "initialize" for message in messages):
            if session is not None:
                return rpc_error(400, _INVALID_REQUEST, "Invalid Request: Server already initialized")
            if len(messages) > 1:
                return rpc_error(400, _INVALID_REQUEST, "Invalid Request: Only one initialization request is allowed")
        elif session is None:
            return _NOT_INITIALIZED
        elif (refusal := _refuse_version(headers)) is not None:
            return refusal
        response = await self._fidelity.deliver(scope, messages, session, caller)
        if session is None and SESSION_HEADER in response.headers:
            self._sessions.add(response.headers[SESSION_HEADER])
        return response

    async def _listen(
        self, scope: Scope, receive: Receive, send: Send, headers: Headers, session: str | None
    ) -> Response | None:
        if "text/event-stream" not in headers.get("accept", ""):
            return rpc_error(406, _SERVER_ERROR, "Not Acceptable: Client must accept text/event-stream")
        if session is None:
            return _NOT_INITIALIZED
        if (refusal := _refuse_version(headers)) is not None:
            return refusal

        async def outward(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message["headers"] if pair[0].lower() != SESSION_HEADER.encode("ascii")]
                kept.append((SESSION_HEADER.encode("ascii"), session.encode("ascii")))
                message = {**message, "headers": kept}
            await send(message)

        await self._sdk(_inward(scope, session), receive, outward)
        return None

    async def _end(self, scope: Scope, receive: Receive, session: str | None) -> Response:
        if session is None:
            return _NOT_INITIALIZED

        async def dropped(_: Message) -> None:
            return None

        self._sessions.discard(session)
        await self._sdk(_inward(scope, session), receive, dropped)
        return ENDED


def _inward(scope: Scope, session: str) -> Scope:
    headers = [
        (b"accept", b"text/event-stream"),
        (SESSION_HEADER.encode("ascii"), inner_session(session).encode("ascii")),
    ]
    return {**scope, "headers": headers}


def _media_type(headers: Headers) -> str:
    return headers.get("content-type", "").split(";")[0].strip().lower()


def _hostname(host: str) -> str:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host
    return f"[{name}]" if ":" in name else name


def _refuse_version(headers: Headers) -> Response | None:
    version = headers.get("mcp-protocol-version")
    if version is None or version in SUPPORTED_VERSIONS:
        return None
    known = ", ".join(SUPPORTED_VERSIONS)
    message = f"Bad Request: Unsupported protocol version: {version} (supported versions: {known})"
    return rpc_error(400, _SERVER_ERROR, message)


async def _read(headers: Headers, receive: Receive) -> bytes | None:
    """The whole body, or None when it passes the limit."""
    parts, size, more = list[bytes](), 0, True
    declared = headers.get("content-length", "")
    too_large = declared.isdecimal() and int(declared) > BODY_LIMIT
    while more and size <= _DRAIN_LIMIT:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        too_large = too_large or size > BODY_LIMIT
        if not too_large:
            parts.append(part)
        more = message["type"] == "http.request" and message.get("more_body", False)
    return None if too_large else b"".join(parts)


def _parse(raw: bytes) -> Any:
    """The body as Express hands it on: an object or an array, an empty object for no body. Raises ValueError."""
    body = parse(raw.decode("utf-8-sig", "replace")) if raw else {}
    if not isinstance(body, dict | list):
        raise ValueError("neither an object nor an array")
    return body


def _is_message(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return False
    request_id = message.get("id", 0)
    if type(request_id) not in (str, int) and not (isinstance(request_id, float) and request_id.is_integer()):
        return False
    if "method" in message:
        return isinstance(message["method"], str) and isinstance(message.get("params", {}), dict)
    return "id" in message and ("result" in message or "error" in message)

"""The layer between the wire and the MCP SDK that keeps every value as JavaScript would.

The SDK parses JSON with pydantic, which refuses lone surrogates and rounds differently. So the SDK only ever sees the
method: a tool's name and arguments wait in the ASGI scope as `jsontext.parse` read them, the handler leaves its
result there as JSON text, and what the SDK returns in its place is dropped. Request ids are replaced on the way in,
so that ids which a client uses twice at once do not meet inside the SDK.
"""

from __future__ import annotations

import json
from itertools import count
from typing import Any
from uuid import UUID

import msgspec

from .auth import Identity
from .jsontext import parse, stringify
from .responses import ACCEPTED, SESSION_HEADER, UNKNOWN_SESSION, Application, Message, Response, Scope, events
from .validation import UNDEFINED

STATE = "nl_cutover.exchange"

_RPC_INTERNAL_ERROR = -32603


class Exchange(msgspec.Struct):
    """One JSON-RPC message on its way through the SDK."""

    caller: Identity
    params: dict[str, Any]
    result: str | None = None  # JSON text, left by the handler

    @property
    def tool(self) -> str:
        """The `name` of a tools/call."""
        name: str = self.params["name"]
        return name

    @property
    def arguments(self) -> Any:
        """The `arguments` of a tools/call; UNDEFINED when the key is absent."""
        return self.params.get("arguments", UNDEFINED)


class Fidelity:
    """Sends JSON-RPC messages through the SDK's ASGI application, each as a request of its own."""

    def __init__(self, sdk: Application) -> None:
        self._sdk = sdk
        self._ids = count(1)

    async def deliver(
        self, scope: Scope, messages: list[dict[str, Any]], session: str | None, caller: Identity
    ) -> Response:
        """Execute the messages of one POST in order and compose the answer. `session` None: an initialize."""
        answers = []
        for message in messages:
            status, answer, session = await self._exchange(scope, message, session, caller)
            if status == UNKNOWN_SESSION.status or session is None:
                return UNKNOWN_SESSION
            if answer is not None:
                answers.append(answer)
        return events(session, answers) if answers and session else ACCEPTED

    async def _exchange(
        self, scope: Scope, message: dict[str, Any], session: str | None, caller: Identity
    ) -> tuple[int, str | None, str | None]:
        is_request = "id" in message and "method" in message
        client_id = stringify(message["id"]) if is_request else ""
        if message.get("method") == "tools/call" and (refusal := _refuse_params(message.get("params"))) is not None:
            return 200, _error(client_id, _RPC_INTERNAL_ERROR, refusal), session
        params = message.get("params")
        exchange = Exchange(caller, params if isinstance(params, dict) else {})
        status, headers, body = await self._through_sdk(scope, self._for_sdk(message), session, exchange)
        if session is None and SESSION_HEADER in headers:
            session = str(UUID(headers[SESSION_HEADER]))
        if not is_request:
            return status, None, session
        if exchange.result is not None:
            return status, f'{{"result":{exchange.result},"jsonrpc":"2.0","id":{client_id}}}', session
        answered = parse(body) if body else {}
        if "result" in answered:
            return status, f'{{"result":{stringify(answered["result"])},"jsonrpc":"2.0","id":{client_id}}}', session
        error = answered.get("error", {"code": _RPC_INTERNAL_ERROR, "message": "Internal error"})
        return status, _error(client_id, error["code"], error["message"]), session

    def _for_sdk(self, message: dict[str, Any]) -> bytes:
        handed = dict(message)
        if "id" in message and "method" in message:
            handed["id"] = next(self._ids)
        if message.get("method") == "tools/call":
            handed["params"] = {"name": "see the exchange", "arguments": {}}
        return json.dumps(handed).encode("ascii")

    async def _through_sdk(
        self, scope: Scope, body: bytes, session: str | None, exchange: Exchange
    ) -> tuple[int, dict[str, str], str]:
        headers = [
            (b"content-type", b"application/json"),
            (b"accept", b"application/json, text/event-stream"),
            (b"content-length", str(len(body)).encode("ascii")),
        ]
        if session is not None:
            headers.append((SESSION_HEADER.encode("ascii"), inner_session(session).encode("ascii")))
        inner = {**scope, "headers": headers, STATE: exchange}
        status, answer_headers, parts = 0, {}, list[bytes]()

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answer_headers.update(
                    {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]}
                )
            elif message["type"] == "http.response.body":
                parts.append(message.get("body", b""))

        await self._sdk(inner, receive, send)
        return status, answer_headers, b"".join(parts).decode("utf-8")


def inner_session(session: str) -> str:
    """The SDK writes its session ids without dashes; on the wire they are plain UUIDs."""
    return session.replace("-", "")


def _refuse_params(params: Any) -> str | None:
    """The message of the JSON-RPC error for a tools/call that no handler sees, or None."""
    name = params.get("name", UNDEFINED) if isinstance(params, dict) else UNDEFINED
    arguments = params.get("arguments", UNDEFINED) if isinstance(params, dict) else UNDEFINED
    if isinstance(name, str) and (arguments is UNDEFINED or isinstance(arguments, dict)):
        return None
    return "Invalid tools/call: name must be a string, arguments an object"


def _error(client_id: str, code: int, message: str) -> str:
    return f'{{"jsonrpc":"2.0","id":{client_id},"error":{{"code":{code},"message":{stringify(message)}}}}}'

"""One MCP session over one httpx transport, for one thread. It initiates; it never listens and declares no capability."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any

import httpcore
import httpx
import msgspec

from .. import __version__
from ..contract import javascript as js
from ..contract.wire import PROTOCOL_VERSION, envelope
from ..verdicts import Delivered, NotSent, Refused, Unknown
from . import delivery, sse
from .delivery import Failure
from .endpoint import Endpoint

_OLDER_VERSION = "2025-03-26"
_ANSWER_LIMIT = 64 * 1024 * 1024  # bytes of one answer that may stand in memory
_REFUSAL = "this client answers no server-initiated request"
_ASIDE = 2.0  # seconds for what no row waits for: a refusal, and the end of all sessions


class Session:
    """`call` sends one `tools/call` and says what became of it. Not safe to share between threads.

    A call may wait for a server that says it is busy, for `endpoint.wait_budget` seconds in all: after a 429 any call,
    after a 503 a handshake or a read. `transport`, `monotonic`, `sleep` and `now` are seams; `sleep` answers whether
    the wait was ended early, and then the server is not asked again.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        transport: httpx.BaseTransport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        open_timeout: float | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.refused_server_requests = 0
        self.protocol_version = ""
        self.server: dict[str, Any] = {}
        self.clock_offset: float | None = None  # seconds, server's Date minus ours
        self.waited = 0.0  # seconds, for a busy server
        self.sleep = sleep
        self._monotonic, self._now = monotonic, now
        self._open_timeout = open_timeout  # seconds for the handshake; None: as long as a call may take
        self._session_id: str | None = None
        self._given_up: list[str] = []  # sessions of calls whose outcome is unknown; ended with this one
        self._open = False
        # At random, so that an answer which belongs to another session does not pass for ours.
        self._last_id = secrets.randbelow(2**40)
        self._base = [
            (b"Authorization", f"Bearer {endpoint.token.reveal()}".encode()),
            (b"Accept", b"application/json, text/event-stream"),
            (b"Content-Type", b"application/json"),
            (b"User-Agent", f"nl-cutover/{__version__}".encode()),
        ]
        # No client above it: that keeps cookies and follows what it is told to, and each call pays for it.
        self._transport = transport or httpx.HTTPTransport(
            proxy=endpoint.proxy,
            trust_env=False,
            # A connection a call: no idle socket to race with, and no second copy of an answer to take for the next one.
            limits=httpx.Limits(max_connections=2, max_keepalive_connections=0),
            verify=endpoint.url.startswith("https:"),
        )

    @cached_property
    def _url(self) -> httpx.URL:
        """Raises httpx.InvalidURL, which is one of the ways in which a call is not sent."""
        return httpx.URL(self.endpoint.url)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> Failure | None:
        """Initialize, once. None when the session stands."""
        answer = self._patiently(lambda: self._handshake() or Delivered({}, b""))
        return None if isinstance(answer, Delivered) else answer

    def _handshake(self) -> Failure | None:
        if self._open:
            return None
        for version in (PROTOCOL_VERSION, _OLDER_VERSION):
            answer = self._initialize(version)
            if isinstance(answer, Refused) and answer.reason.startswith("400") and version != _OLDER_VERSION:
                continue  # a server that rejects a newer version at HTTP level, before negotiation
            break
        if isinstance(answer, Unknown) and answer.retry_after is not None:
            return NotSent("busy", answer.reason, answer.retry_after)  # a handshake writes nothing
        if not isinstance(answer, Delivered):
            return answer
        result = answer.result
        self.protocol_version = str(result.get("protocolVersion", ""))
        self.server = result["serverInfo"] if isinstance(result.get("serverInfo"), dict) else {}
        self._open = True
        self._exchange(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', None, self._open_timeout)
        return None

    def request(self, method: str, params: bytes = b"{}") -> Delivered | Failure:
        """One JSON-RPC request of a reading kind; `params` is JSON text. `Delivered.result` is the JSON-RPC result."""
        return self._with_session(
            lambda request_id: (
                b'{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}' % (request_id, method.encode(), params)
            ),
            reading=True,
        )

    def call(self, tool: str, arguments: bytes, *, reading: bool = False) -> Delivered | Failure:
        """One `tools/call`; `arguments` is JSON text and travels verbatim. `Delivered.result` is the tool result.

        `reading`: it changes nothing, so that it may be asked again where the answer was a 503.
        """
        return self._with_session(lambda request_id: envelope(request_id, tool, arguments), reading=reading)

    def close(self) -> None:
        """End every session that was begun, if that is quickly done. A failure here changes nothing that is recorded."""
        self._give_up()
        deadline = self._monotonic() + _ASIDE
        try:
            for session_id in self._given_up:
                headers = {"Mcp-Session-Id": session_id, "MCP-Protocol-Version": self.protocol_version}
                left = max(deadline - self._monotonic(), 0.001)
                self._aside("DELETE", b"", headers, left)
        except httpx.HTTPError:
            pass  # a server that does not take one takes no other either
        self._given_up.clear()
        self._transport.close()

    def _with_session(self, body: Callable[[int], bytes], *, reading: bool) -> Delivered | Failure:
        rebuilt = False

        def ask() -> Delivered | Failure:
            nonlocal rebuilt
            if (failure := self._handshake()) is not None:
                # Nothing of the call itself has left, whatever became of the handshake.
                return failure if isinstance(failure, NotSent) else NotSent("unreachable", failure.reason)
            self._last_id += 1
            answer = self._exchange(body(self._last_id), self._last_id)
            if isinstance(answer, Unknown):
                self._give_up()
            if isinstance(answer, NotSent) and answer.kind == "session-lost":
                self._forget()
                if not rebuilt:
                    rebuilt = True
                    return ask()
            return answer

        return self._patiently(ask, reading=reading)

    def _patiently(self, ask: Callable[[], Delivered | Failure], *, reading: bool = False) -> Delivered | Failure:
        """Ask again while the server says that it is busy, the call may be repeated and the wait budget lasts."""
        left = self.endpoint.wait_budget
        while True:
            answer = ask()
            if not (isinstance(answer, NotSent) and answer.kind == "busy") and not (
                reading and isinstance(answer, Unknown) and answer.retry_after is not None
            ):
                return answer
            pause = min(max(1.0 if answer.retry_after is None else answer.retry_after, 0.2), 60.0)
            if pause > left:
                return answer
            began = self._monotonic()
            if self.sleep(pause):
                self.waited += self._monotonic() - began
                return answer
            left -= pause
            self.waited += pause

    def _initialize(self, version: str) -> Delivered | Failure:
        self._give_up()
        self._last_id += 1
        body = (
            f'{{"jsonrpc":"2.0","id":{self._last_id},"method":"initialize","params":{{"protocolVersion":"{version}",'
            f'"capabilities":{{}},"clientInfo":{{"name":"nl-cutover","version":"{__version__}"}}}}}}'
        )
        return self._exchange(body.encode(), self._last_id, self._open_timeout)

    def _forget(self) -> None:
        self._session_id, self._open = None, False

    def _give_up(self) -> None:
        if self._session_id is not None:
            self._given_up.append(self._session_id)
        self._forget()

    def _within(self, seconds: float) -> dict[str, Any]:
        """Request extensions that hold an exchange to its deadline: httpx's own is between two bytes, and a head can drip."""
        deadline = self._monotonic() + seconds

        def connected(event: str, info: Mapping[str, Any]) -> None:
            if not event.endswith(("connect_tcp.complete", "start_tls.complete")):
                return
            stream = info["return_value"]
            read = stream.read

            def capped(max_bytes: int, timeout: float | None = None) -> bytes:
                left = deadline - self._monotonic()
                if left <= 0:
                    raise httpcore.ReadTimeout("no complete answer before the deadline")
                return bytes(read(max_bytes, left if timeout is None else min(left, timeout)))

            stream.read = capped

        return {"trace": connected}

    def _headers(self) -> dict[str, str]:
        headers = {"MCP-Protocol-Version": self.protocol_version} if self._open and self.protocol_version else {}
        return headers | ({"Mcp-Session-Id": self._session_id} if self._session_id else {})

    def _exchange(self, body: bytes, request_id: int | None, limit: float | None = None) -> Delivered | Failure:
        """POST one message and read the answer to `request_id` (None for a notification) within `limit` seconds."""
        answer = self._post(body, request_id, limit or self.endpoint.call_timeout)
        if isinstance(answer, Delivered):
            return answer
        token = self.endpoint.token.reveal()  # a server may echo what it was sent
        return msgspec.structs.replace(answer, reason=answer.reason.replace(token, "[redacted]"))

    def _post(self, body: bytes, request_id: int | None, limit: float) -> Delivered | Failure:
        deadline = self._monotonic() + limit
        try:
            url = self._url
            for _ in range(3):
                response = self._ask("POST", url, body, self._headers(), max(deadline - self._monotonic(), 0.001))
                try:
                    if response.status_code in (307, 308):
                        target = url.join(response.headers.get("location", ""))
                        if (target.scheme, target.host, target.port) == (url.scheme, url.host, url.port):
                            url = target
                            continue
                    return self._read(response, request_id)
                finally:
                    response.close()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return delivery.of_exception(error)
        return NotSent("redirect", "the ingress redirects in a circle")

    def _ask(
        self, method: str, url: httpx.URL, body: bytes, headers: Mapping[str, str], limit: float
    ) -> httpx.Response:
        """The head of the answer to one HTTP request, which is to be complete in `limit` seconds. To be closed."""
        connect = min(limit, self.endpoint.connect_timeout)
        timeout = {"connect": connect, "read": limit, "write": limit, "pool": connect}
        raw = ((name.encode(), value.encode()) for name, value in headers.items())
        extensions = {**self._within(limit), "timeout": timeout}
        request = httpx.Request(method, url, headers=[*self._base, *raw], content=body, extensions=extensions)
        response = self._transport.handle_request(request)
        response.request = request
        return response

    def _aside(self, method: str, body: bytes, headers: Mapping[str, str], limit: float) -> None:
        """A request whose answer tells nothing. It is read all the same: a server may not take a reset connection well."""
        response = self._ask(method, self._url, body, headers, limit)
        try:
            for _ in _bounded(response.iter_bytes(), 8192):
                pass
        finally:
            response.close()

    def _read(self, response: httpx.Response, request_id: int | None) -> Delivered | Failure:
        if response.status_code == 200 and (session_id := response.headers.get("mcp-session-id")):
            self._session_id = session_id
        self._note_clock(response.headers.get("date"))
        if response.status_code in (200, 202) and request_id is None:
            return Delivered({}, b"")
        if response.status_code != 200:
            text = b"".join(_bounded(response.iter_bytes(), 8192))
            return delivery.of_status(
                response.status_code,
                response.headers,
                text,
                with_session="mcp-session-id" in response.request.headers,
                now=self._now(),
            )
        chunks = _limited(response.iter_bytes())
        if response.headers.get("content-type", "").partition(";")[0].strip() == "text/event-stream":
            payloads: Iterable[bytes] = sse.events(chunks)
        else:
            payloads = [b"".join(chunks)]
        other_id = False
        for payload in payloads:
            try:
                message = js.parse(payload.decode("utf-8"))
            except (js.NotFaithful, UnicodeDecodeError):
                return Unknown("the answer is not JSON")
            for one in message if isinstance(message, list) else [message]:
                if not isinstance(one, dict):
                    continue
                if "method" in one:
                    self._refuse(one)
                elif one.get("id") == request_id:
                    return delivery.of_message(one, payload)
                else:
                    other_id = True
        return Unknown(
            "the server answered with an id that was not sent" if other_id else "the answer ended without a result"
        )

    def _refuse(self, message: dict[str, Any]) -> None:
        """Refuse a server-initiated request. A notification asks for nothing and is passed over."""
        if "id" not in message:
            return
        self.refused_server_requests += 1
        request_id = js.canonical(message["id"])
        body = f'{{"jsonrpc":"2.0","id":{request_id},"error":{{"code":-32601,"message":{js.encode_string(_REFUSAL)}}}}}'
        try:
            self._aside("POST", body.encode(), self._headers(), _ASIDE)
        except httpx.HTTPError:
            pass

    def _note_clock(self, date: str | None) -> None:
        if self.clock_offset is None and date is not None:
            try:
                self.clock_offset = parsedate_to_datetime(date).timestamp() - self._now().timestamp()
            except ValueError:
                pass


def _limited(chunks: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > _ANSWER_LIMIT:
            raise httpx.ReadError("the answer is larger than 64 MiB")
        yield chunk


def _bounded(chunks: Iterable[bytes], limit: int) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk[:limit]
        limit -= len(chunk)
        if limit <= 0:
            return

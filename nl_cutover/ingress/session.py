"""One MCP session over one httpx client, for one thread. It initiates; it never listens and declares no capability."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

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


class Session:
    """`call` sends one `tools/call` and says what became of it. Not safe to share between threads.

    `transport`, `monotonic` and `sleep` are seams.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        transport: httpx.BaseTransport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        wait_budget: float = 30.0,
        open_timeout: float | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.refused_server_requests = 0
        self.protocol_version = ""
        self.server: dict[str, Any] = {}
        self.clock_offset: float | None = None  # seconds, server's Date minus ours
        self._monotonic, self._sleep, self._wait_budget = monotonic, sleep, wait_budget
        self._open_timeout = open_timeout  # seconds for the handshake; None: as long as a call may take
        self._session_id: str | None = None
        self._open = False
        # At random, so that an answer which belongs to another session does not pass for ours.
        self._last_id = secrets.randbelow(2**40)
        self._client = httpx.Client(
            headers={
                "Authorization": f"Bearer {endpoint.token.reveal()}",
                "Accept": "application/json, text/event-stream",
                "Content-Type": "application/json",
                "User-Agent": f"nl-cutover/{__version__}",
            },
            timeout=endpoint.call_timeout,
            transport=transport,
            trust_env=endpoint.environment_proxies,
            # A connection a call: no idle socket to race with, and no second copy of an answer to take for the next one.
            limits=httpx.Limits(max_connections=2, max_keepalive_connections=0),
            verify=endpoint.url.startswith("https:"),
        )

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> Failure | None:
        """Initialize, once. None when the session stands."""
        if self._open:
            return None
        for version in (PROTOCOL_VERSION, _OLDER_VERSION):
            answer = self._initialize(version)
            if isinstance(answer, Refused) and answer.reason.startswith("400") and version != _OLDER_VERSION:
                continue  # a server that rejects a newer version at HTTP level, before negotiation
            break
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
            )
        )

    def call(self, tool: str, arguments: bytes) -> Delivered | Failure:
        """One `tools/call`; `arguments` is JSON text and travels verbatim. `Delivered.result` is the tool result."""
        return self._with_session(lambda request_id: envelope(request_id, tool, arguments))

    def close(self) -> None:
        """End the session. A failure here changes nothing that is already recorded."""
        if self._open and self._session_id is not None:
            try:
                self._client.delete(self.endpoint.url, headers=self._headers(), timeout=2.0)
            except httpx.HTTPError:
                pass
        self._forget()
        self._client.close()

    def _with_session(self, body: Callable[[int], bytes]) -> Delivered | Failure:
        waited = 0.0
        rebuilt = False
        while True:
            failure = self.open()
            if failure is not None:
                # Nothing of the call itself has left, whatever became of the handshake.
                answer: Delivered | Failure = (
                    failure if isinstance(failure, NotSent) else NotSent("unreachable", failure.reason)
                )
            else:
                self._last_id += 1
                answer = self._exchange(body(self._last_id), self._last_id)
            if isinstance(answer, Unknown):
                self._forget()
            if not isinstance(answer, NotSent):
                return answer
            if answer.kind == "session-lost" and not rebuilt:
                rebuilt = True
                self._forget()
                continue
            if answer.kind == "busy" and waited < self._wait_budget:
                pause = min(max(1.0 if answer.retry_after is None else answer.retry_after, 0.2), 60.0)
                if waited + pause <= self._wait_budget:
                    self._sleep(pause)
                    waited += max(pause, 0.01)
                    continue
            return answer

    def _initialize(self, version: str) -> Delivered | Failure:
        self._forget()
        self._last_id += 1
        body = (
            f'{{"jsonrpc":"2.0","id":{self._last_id},"method":"initialize","params":{{"protocolVersion":"{version}",'
            f'"capabilities":{{}},"clientInfo":{{"name":"nl-cutover","version":"{__version__}"}}}}}}'
        )
        return self._exchange(body.encode(), self._last_id, self._open_timeout)

    def _forget(self) -> None:
        self._session_id, self._open = None, False

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
        url = httpx.URL(self.endpoint.url)
        deadline = self._monotonic() + limit
        connect = min(limit, self.endpoint.connect_timeout)
        timeout = httpx.Timeout(limit, connect=connect, pool=connect)
        try:
            for _ in range(3):
                with self._client.stream(
                    "POST", url, content=body, headers=self._headers(), timeout=timeout
                ) as response:
                    if response.status_code in (307, 308):
                        target = url.join(response.headers.get("location", ""))
                        if (target.scheme, target.host, target.port) == (url.scheme, url.host, url.port):
                            url = target
                            continue
                    return self._read(response, request_id, deadline)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return delivery.of_exception(error)
        return NotSent("redirect", "the ingress redirects in a circle")

    def _read(self, response: httpx.Response, request_id: int | None, deadline: float) -> Delivered | Failure:
        if response.status_code == 200 and (session_id := response.headers.get("mcp-session-id")):
            self._session_id = session_id
        self._note_clock(response.headers.get("date"))
        if response.status_code in (200, 202) and request_id is None:
            return Delivered({}, b"")
        if response.status_code != 200:
            text = b"".join(_bounded(self._until(response.iter_bytes(), deadline), 8192))
            return delivery.of_status(
                response.status_code,
                response.headers,
                text,
                with_session="mcp-session-id" in response.request.headers,
                now=datetime.now(UTC),
            )
        chunks = self._until(response.iter_bytes(), deadline)
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

    def _until(self, chunks: Iterable[bytes], deadline: float) -> Iterator[bytes]:
        size = 0
        for chunk in chunks:
            size += len(chunk)
            if self._monotonic() > deadline:
                raise httpx.ReadTimeout("no complete answer before the deadline")
            if size > _ANSWER_LIMIT:
                raise httpx.ReadError("the answer is larger than 64 MiB")
            yield chunk

    def _refuse(self, message: dict[str, Any]) -> None:
        """Refuse a server-initiated request. A notification asks for nothing and is passed over."""
        if "id" not in message:
            return
        self.refused_server_requests += 1
        request_id = js.canonical(message["id"])
        body = f'{{"jsonrpc":"2.0","id":{request_id},"error":{{"code":-32601,"message":{js.encode_string(_REFUSAL)}}}}}'
        try:
            self._client.post(self.endpoint.url, content=body.encode(), headers=self._headers(), timeout=5.0)
        except httpx.HTTPError:
            pass

    def _note_clock(self, date: str | None) -> None:
        if self.clock_offset is None and date is not None:
            try:
                self.clock_offset = parsedate_to_datetime(date).timestamp() - datetime.now(UTC).timestamp()
            except ValueError:
                pass


def _bounded(chunks: Iterable[bytes], limit: int) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk[:limit]
        limit -= len(chunk)
        if limit <= 0:
            return

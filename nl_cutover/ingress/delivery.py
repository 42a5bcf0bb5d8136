"""What a failure means. This is the one module that decides it.

before the first byte left (no connection, TLS, pool)            NotSent, may be retried
401, 403, 404, 413, 421, 429, 301, 307, 308, and a 400 about the   NotSent with its reason: proves non-execution
session that it was sent with
405, 406, 415, other 400; a JSON-RPC error about the request;      Refused, and the refusal itself proves it
the health gate
any other JSON-RPC error, `isError`                               Refused
everything else: 5xx, 302, 303, a cut stream, a deadline           Unknown: a 503 may come from a proxy that had
                                                                  handed the request on; reads may ask it again
200 with the fields that the operation promises                   Delivered
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import httpx

from ..contract import javascript as js
from ..verdicts import Delivered, NotSent, Refused, Unknown

Failure = NotSent | Refused | Unknown
_SESSION_WORDS = re.compile("session not found|no valid session|session id|not initialized", re.IGNORECASE)
_ABOUT_THE_REQUEST = (-32700, -32600, -32601, -32602)  # JSON-RPC: said before any handler runs
_HEALTH_GATE = "Cannot execute "
_BEFORE_SENDING = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.ProxyError,
    httpx.InvalidURL,
    httpx.LocalProtocolError,
)
_SHOWN = 200  # characters of a server's own words that a reason may hold


def of_exception(error: Exception) -> NotSent | Unknown:
    """A failure of the transport: only one that precedes the first byte proves that nothing was executed."""
    if isinstance(error, _BEFORE_SENDING):
        return NotSent("unreachable", _words(error))
    if isinstance(error, httpx.TimeoutException):
        return Unknown("no answer before the deadline")
    return Unknown(f"the connection failed after the request had left: {_words(error)}")


def of_status(
    status: int, headers: Mapping[str, str], body: bytes, *, with_session: bool, now: datetime
) -> NotSent | Refused | Unknown:
    """An HTTP answer that is not a 200 with JSON-RPC in it."""
    says = quote(body)
    match status:
        case 401:
            return NotSent("credentials", f"401 {says}")
        case 403 if b"Invalid Host" in body:
            return NotSent("host", f"403 {says}")
        case 403:
            return NotSent("credentials", f"403 {says}")
        case 404 if with_session:
            return NotSent("session-lost", f"404 {says}")
        case 404:
            return NotSent("unreachable", "404: there is no MCP endpoint at this URL")
        case 400 if with_session and _SESSION_WORDS.search(says):
            return NotSent("session-lost", f"400 {says}")
        case 400 | 405 | 406 | 415:
            return Refused(f"{status} {says}", proven=True)
        case 413:
            return NotSent("too-large", "413: the request is larger than the ingress takes")
        case 421:
            return NotSent("host", "421: the server does not accept this Host")
        case 429:
            return NotSent("busy", "429: too many requests", retry_after(headers.get("retry-after"), now))
        case 503:
            wait = retry_after(headers.get("retry-after"), now)
            return Unknown(f"HTTP 503 {says}".rstrip(), 1.0 if wait is None else wait)
        case 301 | 307 | 308:
            return NotSent("redirect", f"{status}: the ingress redirects to {_origin(headers.get('location', ''))}")
        case _ if 300 <= status < 400:  # 303 is how a server answers after a POST was carried out
            return Unknown(f"HTTP {status} to {_origin(headers.get('location', ''))}")
        case _:
            return Unknown(f"HTTP {status} {says}".rstrip())


def of_message(message: Any, reply: bytes) -> Delivered | Refused | Unknown:
    """A JSON-RPC message with our id. `Delivered` here means: executed, and not marked as an error."""
    if isinstance(message, dict) and isinstance(error := message.get("error"), dict):
        code = _number(error.get("code"))
        words = f"JSON-RPC error {js.encode_number(code)}: {clip(error.get('message'))}"
        return Refused(words, proven=code in _ABOUT_THE_REQUEST)
    result = message.get("result") if isinstance(message, dict) else None
    if not isinstance(result, dict):
        return Unknown("the answer is neither a result nor an error")
    if result.get("isError") is True:
        text = _text_of(result)
        return Refused(clip(text) or "the server marked the result as an error", proven=text.startswith(_HEALTH_GATE))
    return Delivered(result, reply)


def structured(result: dict[str, Any]) -> Any:
    """`structuredContent`, or the text block that older servers answer in. None where there is neither."""
    content = result.get("structuredContent")
    if isinstance(content, dict):
        return content["result"] if set(content) == {"result"} else content
    try:
        return js.parse(_text_of(result))
    except js.NotFaithful:
        return None


def _text_of(result: dict[str, Any]) -> str:
    blocks = result.get("content")
    texts = [b.get("text") for b in blocks if isinstance(b, dict)] if isinstance(blocks, list) else []
    return "".join(t for t in texts if isinstance(t, str))


def retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds to wait, from either form of Retry-After (RFC 9110, 10.2.3); None where it says nothing usable."""
    if value is None:
        return None
    if value.strip().isascii() and value.strip().isdigit():
        return float(value.strip())
    try:
        when = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=now.tzinfo)
    return max((when - now) / timedelta(seconds=1), 0.0)


def quote(body: bytes) -> str:
    """A server's own words, on one line, without markup, bounded."""
    text = re.sub(r"<[^>]*>", " ", body[:4096].decode("utf-8", "replace"))
    return clip(text)


def clip(value: Any) -> str:
    text = (
        " ".join(js.encode_string(value)[1:-1].replace("\\n", " ").replace('\\"', '"').split())
        if isinstance(value, str)
        else ""
    )
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else 0


def _origin(location: str) -> str:
    try:
        url = httpx.URL(location)
    except (httpx.InvalidURL, TypeError):
        return "an unusable location"
    return (
        f"{url.scheme}://{url.netloc.decode('ascii', 'replace').rpartition('@')[2]}{url.path}" if url.host else url.path
    )


def _words(error: BaseException) -> str:
    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    return clip(str(cause)) or type(cause).__name__

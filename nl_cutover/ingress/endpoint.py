"""Where the ingress is and with what to knock. A token never stands in an argument, a URL, a repr or a log."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from ..contract.wire import DEFAULT_URL
from ..errors import CredentialsError, UsageError

_TOKEN_LIKE = re.compile("token|key|secret|auth|password", re.IGNORECASE)

_EXAMPLE = f"use a URL like {DEFAULT_URL}"


class Token:
    """A bearer token that no representation shows."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "Token(...)"

    def reveal(self) -> str:
        return self._value


def token_from_environment(environ: Mapping[str, str], slot: str) -> Token:
    """Read the token from its slot, trimmed. Raises CredentialsError naming the slot, never a value."""
    value = environ.get(slot, "").strip()
    if not value:
        raise CredentialsError(
            f"the environment slot {slot} is {'empty' if slot in environ else 'not set'}",
            f"export {slot} with the bearer token of the identity that will own the archives",
        )
    if not value.isascii() or not value.isprintable() or " " in value:
        raise CredentialsError(f"{slot} does not hold a bearer token: it has blanks or unprintable characters")
    return Token(value)


def proxy_from_environment(environ: Mapping[str, str], url: str) -> tuple[str, str] | None:
    """(variable, proxy URL) of the proxy that the environment names for this URL, as curl reads it; None for none."""
    parts = urlsplit(url)
    exempt = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if proxy_bypass_environment(parts.hostname or "", {"no": exempt}):
        return None
    for name in (f"{parts.scheme}_proxy", f"{parts.scheme}_proxy".upper(), "all_proxy", "ALL_PROXY"):
        if value := environ.get(name, "").strip():
            return name, value if "://" in value else f"http://{value}"
    return None


class Endpoint:
    """The URL, verbatim, with what may travel to it.

    Raises UsageError for a URL that carries credentials, is not http(s), or would carry a token in cleartext to a host
    or proxy that is not loopback (allowed by `cleartext=True`, which the receipt states). The environment's proxies
    are not asked; `proxy` is the http(s) URL of one that is to be used.
    """

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        cleartext: bool = False,
        proxy: str | None = None,
        connect_timeout: float = 5.0,
        call_timeout: float = 60.0,
        wait_budget: float = 30.0,
    ) -> None:
        parts, host = _parsed(url, "ingress", _EXAMPLE)
        strangers = [] if _is_loopback(host) else [host]
        if parts.username is not None or parts.password is not None or _TOKEN_LIKE.search(parts.query):
            raise UsageError(
                "the ingress URL carries a credential", "put the token into the environment slot named by --token-env"
            )
        self.proxy, self.proxy_name = proxy, None
        if proxy is not None:
            by, through = _parsed(proxy, "proxy's", "correct the proxy in the environment, or do not ask for it")
            self.proxy_name = f"{by.scheme}://{by.netloc.rpartition('@')[2]}"
            strangers += [] if _is_loopback(through) else [f"the proxy {through}"]
        if parts.scheme == "http" and not cleartext and strangers:
            raise UsageError(
                f"a token would travel in cleartext to {strangers[-1]}",
                "use https, a tunnel to loopback, or --allow-cleartext, which the receipt will state",
            )
        self.url = url
        self.token = token
        self.cleartext = cleartext and parts.scheme == "http" and bool(strangers)
        self.connect_timeout = connect_timeout  # seconds
        self.call_timeout = call_timeout  # seconds, for one exchange as a whole
        self.wait_budget = wait_budget  # seconds that one call may wait, in all, for a server that says it is busy

    def with_token(self, token: Token) -> Endpoint:
        """The same endpoint for another identity."""
        other = object.__new__(Endpoint)
        other.__dict__.update(self.__dict__, token=token)
        return other


def _parsed(url: str, whose: str, hint: str) -> tuple[SplitResult, str]:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise UsageError(f"the {whose} URL cannot be parsed", hint) from None
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"the {whose} URL is not an http(s) URL with a host", hint)
    return parts, host


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

"""Where the ingress is and with what to knock. A token never stands in an argument, a URL, a repr or a log."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

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


class Endpoint:
    """The URL, verbatim, with what may travel to it.

    Raises UsageError for a URL that carries credentials, is not http(s), or would carry a token in cleartext to a host
    that is not loopback (allowed by `cleartext=True`, which the receipt states).
    """

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        cleartext: bool = False,
        environment_proxies: bool = False,
        connect_timeout: float = 5.0,
        call_timeout: float = 60.0,
    ) -> None:
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            raise UsageError(
                "the ingress URL cannot be parsed", "use a URL like http://127.0.0.1:3102/mc/mcp"
            ) from None
        if parts.scheme not in ("http", "https") or not host:
            raise UsageError("the ingress URL is not an http(s) URL with a host", _EXAMPLE)
        if parts.username is not None or parts.password is not None or _TOKEN_LIKE.search(parts.query):
            raise UsageError(
                "the ingress URL carries a credential", "put the token into the environment slot named by --token-env"
            )
        if parts.scheme == "http" and not cleartext and not _is_loopback(host):
            raise UsageError(
                f"a token would travel in cleartext to {host}",
                "use https, a tunnel to loopback, or --allow-cleartext, which the receipt will state",
            )
        self.url = url
        self.token = token
        self.cleartext = cleartext and parts.scheme == "http" and not _is_loopback(host)
        self.environment_proxies = environment_proxies
        self.connect_timeout = connect_timeout  # seconds
        self.call_timeout = (
            call_timeout  # seconds, for the body of an answer as a whole, and between two bytes of its head
        )

    def with_token(self, token: Token) -> Endpoint:
        """The same endpoint for another identity."""
        other = object.__new__(Endpoint)
        other.__dict__.update(self.__dict__, token=token)
        return other


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

"""Bearer tokens: one nameless token (local-bearer mode), or tokens that map to identities."""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from ..errors import CredentialsError

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.@-]*)=(.*[^=].*)")


class Identity(msgspec.Struct, frozen=True):
    """Who calls. `user` None: local-bearer mode, where rows belong to nobody and everybody sees them."""

    user: str | None = None
    source: str | None = None


class Denied(msgspec.Struct, frozen=True):
    """Why a request is not let in: the `error_description` of the 401."""

    description: str


class Tokens:
    """The accepted tokens, held as digests; neither the tokens nor what callers send is ever logged."""

    def __init__(self, tokens: Sequence[tuple[str, Identity]]) -> None:
        self._digests = [(sha256(token.encode()).digest(), identity) for token, identity in tokens]
        self.local_bearer = any(identity.user is None for _, identity in tokens)

    def identify(self, authorization: str | None) -> Identity | Denied:
        """The identity behind an Authorization header. The time taken does not tell which token was near."""
        if authorization is None:
            return Denied("Missing Authorization header")
        scheme, _, rest = authorization.partition(" ")
        token = rest.split(" ")[0]
        if scheme.lower() != "bearer" or not token:
            return Denied("Invalid Authorization header format, expected 'Bearer TOKEN'")
        sent = sha256(token.encode("utf-8", "surrogatepass")).digest()
        found: Identity | None = None
        for digest, identity in self._digests:
            if hmac.compare_digest(sent, digest):
                found = identity
        return found or Denied("Invalid local bearer token")


def read_tokens(path: Path) -> Tokens:
    """The tokens of a token file. Raises CredentialsError as `read_token_file` does."""
    return Tokens(read_token_file(path))


def read_token_file(path: Path) -> list[tuple[str, Identity]]:
    """Read a token file: one bare TOKEN, or lines `NAME=TOKEN`; `#` starts a comment line, blank lines are skipped.

    Raises CredentialsError when it cannot be read, is empty, mixes both forms or gives one token to two names.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise CredentialsError(f"the token file {path} cannot be read: {failure}") from None
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    named = [_NAMED.fullmatch(line) for line in lines]
    if len(lines) == 1 and named[0] is None:
        return [(lines[0], Identity())]
    pairs = [(match[2], match[1]) for match in named if match is not None]
    hint = "write one bare token, or one NAME=TOKEN a line"
    if not pairs or len(pairs) != len(lines):
        raise CredentialsError(f"the token file {path} holds no token, or mixes bare and named ones", hint)
    if len({token for token, _ in pairs}) != len(pairs):
        raise CredentialsError(f"the token file {path} gives one token to two names", hint)
    return [(token, Identity(name, "token-file")) for token, name in pairs]

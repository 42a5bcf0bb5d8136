"""A gate before errors and command output leave the process: given secrets, bearer values, URL credentials."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

_BEARER = re.compile(r"(?i)(bearer\s+)[A-Za-z0-9._~+/=-]{6,}")
_USERINFO = re.compile(r"(?i)\b(https?://|[a-z][a-z0-9+.-]{1,15}://[^/\s:@]*:)[^/\s@]+@")


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Text without the given secrets, bearer values or URL credentials."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "[redacted]")
    return _USERINFO.sub(r"\1[redacted]@", _BEARER.sub(r"\1[redacted]", text))


def quiet_libraries() -> None:
    """HTTP and MCP libraries log URLs and headers at INFO; nothing below WARNING is let out."""
    for name in ("httpx", "httpcore", "httpx2", "httpcore2", "mcp", "docker", "urllib3"):
        logging.getLogger(name).setLevel(logging.WARNING)

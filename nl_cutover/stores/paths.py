"""Paths in sentences: on one line and valid Unicode, whatever bytes the name holds."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from urllib.parse import quote

Anchor = str | os.PathLike[str]


def shown(path: Anchor) -> str:
    """The path with control characters as `\\n` or `\\xNN`, undecodable bytes as `\\xNN` and a backslash doubled."""
    return "".join(map(_shown, os.fspath(path)))


def _shown(char: str) -> str:
    code = ord(char)
    if char == "\\":
        return "\\\\"
    if char.isprintable():
        return char
    if 0xDC80 <= code <= 0xDCFF:  # how Python carries a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    escaped = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    if escaped is not None:
        return escaped
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def in_base64(path: Anchor) -> str | None:
    """The exact bytes of a path that `shown` had to change; None when it is shown as it is."""
    text = os.fspath(path)
    return None if shown(text) == text else base64.b64encode(os.fsencode(text)).decode("ascii")


def from_report(text: str, encoded: str | None) -> Path:
    """The path behind a pair of `shown` and `in_base64`."""
    return Path(os.fsdecode(base64.b64decode(encoded)) if encoded is not None else text)


def uri(path: Path, **parameters: str | int) -> str:
    """A `file:` URI for SQLite. `?`, `#`, `%` and bytes that are not UTF-8 are percent-encoded, so none is syntax."""
    query = "&".join(f"{name}={value}" for name, value in parameters.items())
    return f"file:{quote(os.fsencode(path.absolute()))}?{query}"

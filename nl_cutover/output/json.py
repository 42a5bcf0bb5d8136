"""Machine output: one JSON object and a line end, written by msgspec, never by anything that wraps or colours."""

from __future__ import annotations

from typing import Any

import msgspec


def as_json(report: Any) -> str:
    """The report as JSON text. A string that is not Unicode is written with `\\xNN` escapes, never refused."""
    try:
        return msgspec.json.encode(report).decode() + "\n"
    except UnicodeEncodeError:
        return msgspec.json.encode(_clean(msgspec.to_builtins(report))).decode() + "\n"


def _clean(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode("utf-8")
        case list() | tuple():
            return [_clean(item) for item in value]
        case dict():
            return {_clean(key): _clean(item) for key, item in value.items()}
        case _:
            return value

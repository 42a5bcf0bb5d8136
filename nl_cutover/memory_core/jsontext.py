"""`JSON.parse` and `JSON.stringify`: what a body becomes inside a JavaScript server, and how it is written again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any, NoReturn

from ..contract.javascript import encode_number

_DIGITS = frozenset("0123456789")
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_LAST_INDEX = 2**32 - 2
_LONE = re.compile("[\ud800-\udfff]")
_EXACT = 2**53  # up to here every integer is a double


def _is_index(key: str) -> bool:
    return _INDEX.fullmatch(key) is not None and int(key) <= _LAST_INDEX


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    for key in made:
        if key[:1] in _DIGITS and _is_index(key):
            break
    else:
        return made
    # A JavaScript object yields array-index keys first, in ascending order (ECMA-262 OrdinaryOwnPropertyKeys).
    indices = sorted((key for key in made if _is_index(key)), key=int)
    return {key: made[key] for key in indices} | made


def _integer(lexeme: str) -> int | float:
    number = float(lexeme)
    return int(number) if -_EXACT <= number <= _EXACT else number


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_constant=_constant)


def parse(text: str) -> Any:
    """`JSON.parse`. Raises ValueError for malformed text, RecursionError beyond Python's depth (about 900 levels)."""
    return _decoder.decode(text)


def stringify(value: Any, *, pretty: bool = False) -> str:
    """`JSON.stringify(value)`, or `JSON.stringify(value, null, 2)`. Raises RecursionError."""
    parts: list[str] = []
    _write(value, parts.append, "\n" if pretty else "")
    # Raw surrogates can only stand inside strings, where well-formed JSON.stringify escapes them.
    return _LONE.sub(lambda match: f"\\u{ord(match.group()):04x}", "".join(parts))


def _write(value: Any, write: Callable[[str], object], line: str) -> None:
    kind = type(value)
    if kind is str:
        write(encode_basestring(value))
    elif kind is dict:
        inner = line and line + "  "
        lead, colon = "{" + inner, ": " if line else ":"
        for key, item in value.items():
            write(lead + encode_basestring(key) + colon)
            _write(item, write, inner)
            lead = "," + inner
        write(line + "}" if value else "{}")
    elif kind is list:
        inner = line and line + "  "
        lead = "[" + inner
        for item in value:
            write(lead)
            _write(item, write, inner)
            lead = "," + inner
        write(line + "]" if value else "[]")
    elif kind is int:
        write(str(value))
    elif kind is float:
        write(encode_number(value) if -float("inf") < value < float("inf") else "null")
    elif value is None:
        write("null")
    elif kind is bool:
        write("true" if value else "false")
    else:
        raise TypeError(f"not a JSON value: {kind.__name__}")

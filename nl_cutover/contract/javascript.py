"""JSON under JavaScript's rules: what a JavaScript writer stored, and what a JavaScript server gives back.

The canonical form of a value is `JSON.stringify` of the value with its keys sorted by code unit, so anyone with Node
can recompute a digest:

    const sort = v => Array.isArray(v) ? v.map(sort) : v && typeof v === 'object'
        ? Object.fromEntries(Object.keys(v).sort().map(k => [k, sort(v[k])])) : v

(with own `__proto__` keys kept). Lone surrogates stand as `\\udXXX` escapes, as well-formed `JSON.stringify` does it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import rfc8785

_LONE = re.compile("[\ud800-\udfff]")
# What String.prototype.trim removes: WhiteSpace and LineTerminator of ECMA-262. Python's strip() differs.
_WHITESPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


class NotFaithful(ValueError):
    """JSON text that a JavaScript server would not give back as it is. The message never holds a value."""


class TooDeep(NotFaithful):
    """Nested deeper than this process can walk. JavaScript may well read it, so nothing may be assumed of it."""

    def __init__(self) -> None:
        super().__init__("nested too deep to be compared")


def trim(text: str) -> str:
    """`String.prototype.trim`."""
    return text.strip(_WHITESPACE)


def encode_string(text: str) -> str:
    """A JSON string as `JSON.stringify` prints it: raw beyond ASCII, lone surrogates escaped."""
    return _escaped(json.dumps(text, ensure_ascii=False))


def _escaped(text: str) -> str:
    return _LONE.sub(lambda m: f"\\u{ord(m.group()):04x}", text)


def encode(value: Any) -> str:
    """A value as compact JSON text, keys in their order. Raises ValueError for what JSON cannot carry."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _escaped(text)


def encode_number(value: float) -> str:
    """A JSON number as `JSON.stringify` prints it (ECMA-262 Number::toString)."""
    return rfc8785.dumps(float(value)).decode("ascii")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise NotFaithful("an object holds the same key twice; JavaScript keeps only the last")
    return made


def _exact_number(lexeme: str) -> float:
    value = float(lexeme)
    if value in (float("inf"), float("-inf")):
        raise NotFaithful("a number beyond the range of a double, which JavaScript turns into null")
    if len(lexeme) > 15 and Decimal(lexeme) != Decimal(encode_number(value)):
        raise NotFaithful("a number with more digits than a double holds, which JavaScript would round")
    return value


def _constant(name: str) -> Any:
    raise NotFaithful(f"{name} is not JSON")


_exact = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_exact_number, parse_float=_exact_number, parse_constant=_constant
)
_lenient = json.JSONDecoder(parse_int=float, parse_float=float, parse_constant=_constant)


def parse_exact(text: str) -> Any:
    """Parse JSON text; raise NotFaithful where a JavaScript server would store something else.

    Refused: malformed text, NaN and Infinity, twin keys, numbers that a double cannot carry, nesting too deep to walk.
    """
    return _decode(_exact, text)


def parse(text: str) -> Any:
    """Parse as `JSON.parse` does: the last of twin keys wins, numbers are doubles. Raises NotFaithful."""
    return _decode(_lenient, text)


def _decode(decoder: json.JSONDecoder, text: str) -> Any:
    try:
        return decoder.decode(text)
    except NotFaithful:
        raise
    except RecursionError:
        raise TooDeep from None
    except ValueError:
        raise NotFaithful("not JSON") from None


def _code_units(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


def canonical(value: Any) -> str:
    """The canonical text of a parsed value (module docstring). Raises NotFaithful when nested too deep."""
    parts: list[str] = []
    try:
        _canonical(value, parts.append)
    except RecursionError:
        raise TooDeep from None
    return "".join(parts)


def _canonical(value: Any, write: Callable[[str], None]) -> None:
    match value:
        case None:
            write("null")
        case bool():
            write("true" if value else "false")
        case int() | float():
            write(encode_number(value))
        case str():
            write(encode_string(value))
        case list():
            write("[")
            for index, item in enumerate(value):
                if index:
                    write(",")
                _canonical(item, write)
            write("]")
        case dict():
            write("{")
            for index, key in enumerate(sorted(value, key=_code_units)):
                write(("," if index else "") + encode_string(key) + ":")
                _canonical(value[key], write)
            write("}")
        case _:
            raise TypeError(f"not a JSON value: {type(value).__name__}")


def digest(value: Any) -> str:
    """SHA-256 (hex) of the canonical form, UTF-8."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def first_difference(left: Any, right: Any, path: str = "$") -> str | None:
    """JSONPath of the first place in which two parsed values differ, or None. Never a value."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys(), key=_code_units):
            here = f"{path}[{encode_string(key)}]"
            if (key in left) != (key in right):
                return here
            if (found := first_difference(left[key], right[key], here)) is not None:
                return found
        return None
    if isinstance(left, list) and isinstance(right, list):
        for index, (a, b) in enumerate(zip(left, right, strict=False)):
            if (found := first_difference(a, b, f"{path}[{index}]")) is not None:
                return found
        return None if len(left) == len(right) else f"{path}[{min(len(left), len(right))}]"
    return None if canonical(left) == canonical(right) else path

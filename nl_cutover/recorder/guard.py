"""What may stand in an archive: data. Anything else is refused before sending, with the path at which it stands.

Refused as the host's own guard refuses it (neo#14829): functions, cycles, class instances, a `module` key. Refused
beside that, because MC would keep something else: numbers that a double cannot carry, keys that are not text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ..contract.archives import DEPTH_LIMIT
from ..contract.javascript import encode_string
from ..contract.wire import BODY_LIMIT

_NAME = re.compile(r"[^\W\d]\w*")


class NotDataError(ValueError):
    """The message names the path and the kind of the value, never the value."""


def require_data(value: Any, path: str) -> None:
    """Raise NotDataError unless the value is made of dicts, lists, tuples, text, numbers, booleans and None."""
    above: list[int] = []  # the containers on the way down, by id
    steps: list[tuple[Any, str, int]] = [(value, path, 0)]
    seen = 0
    while steps:
        seen += 1
        if seen > BODY_LIMIT:  # lists that hold the same list twice, many times over, would be walked for ever
            raise NotDataError(f"{path}: more values than a request can carry")
        value, path, depth = steps.pop()
        del above[depth:]
        if value is None or isinstance(value, bool | str):
            continue
        if isinstance(value, int | float):
            _require_number(value, path)
            continue
        if type(value) not in (dict, list, tuple):
            kind = "a function" if callable(value) else f"an instance of {type(value).__name__}"
            raise NotDataError(f"{path} is {kind}")
        if id(value) in above:
            raise NotDataError(f"{path} is part of itself")
        if depth >= DEPTH_LIMIT:
            raise NotDataError(f"{path} lies deeper than {DEPTH_LIMIT} levels")
        above.append(id(value))
        members = _named(value, path) if isinstance(value, dict) else _numbered(value, path)
        steps += [(member, where, depth + 1) for where, member in members]


def _require_number(value: float, path: str) -> None:
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if number != value or number - number != 0:
        raise NotDataError(f"{path} is a number that JSON or a double cannot carry")


def _named(value: dict[Any, Any], path: str) -> Iterable[tuple[str, Any]]:
    for key, member in value.items():
        if not isinstance(key, str):
            raise NotDataError(f"{path} has a key that is not text")
        where = f"{path}.{key}" if _NAME.fullmatch(key) else f"{path}[{encode_string(key)}]"
        if key == "module":
            raise NotDataError(f"{where} is a module reference")
        yield where, member


def _numbered(value: Iterable[Any], path: str) -> Iterable[tuple[str, Any]]:
    return ((f"{path}[{index}]", member) for index, member in enumerate(value))

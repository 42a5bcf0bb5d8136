"""Argument validation as the server's Zod bridge does it: strip, collect issues, refuse the call as a whole.

Undeclared keys vanish where properties are declared (although tools/list says `additionalProperties: false`), open
bags travel whole, and one bad value anywhere fails the call before anything is stored. `maxItems` is not enforced.
Source: observed on the wire; neo#16202, PR#17740. The issues of integers, bounds and enums are worded as Zod 4 does
and were not observed.
"""

from __future__ import annotations

from enum import Enum
from math import isfinite
from operator import gt, lt
from typing import Any, Final

from ..contract.surface import Schema
from .jsontext import stringify

_SAFE = 2**53 - 1  # Number.MAX_SAFE_INTEGER
_BOUNDS = (
    ("minimum", "too_small", "Too small", ">=", lt),
    ("maximum", "too_big", "Too big", "<=", gt),
)


class Absent(Enum):
    """Stands for JavaScript's `undefined`: a key or a parameter that is not there."""

    UNDEFINED = "undefined"


UNDEFINED: Final = Absent.UNDEFINED

# Stamped by the server from the bearer; an argument of that name is an attempt to speak for someone else.
IDENTITY_KEYS = ("userId", "agentId", "agentIdentityNodeId", "githubLogin", "from", "sender", "authorLogin")


class ArgumentError(ValueError):
    """The arguments do not fit; the message is the text that the server answers after `Error executing X: `."""


def refuse_identity(arguments: Any) -> None:
    """Raise ArgumentError if a top-level key claims an identity."""
    if not isinstance(arguments, dict):
        return
    for key in IDENTITY_KEYS:
        if key in arguments:
            raise ArgumentError(
                f"Identity-override spoof rejected: '{key}' is a server-stamped field. Remove it from tool arguments; "
                "the caller identity is derived from the active RequestContext (OIDC Bearer token for SSE, "
                "NEO_AGENT_IDENTITY or gh-CLI resolution for stdio). See learn/agentos/tooling/MemoryCoreMcpAuth.md."
            )


def validate(schema: Schema, value: Any) -> Any:
    """The value as a handler gets it. Raises ArgumentError with every issue, as `JSON.stringify(issues, null, 2)`."""
    issues: list[dict[str, Any]] = []
    cleaned = _check(schema, value, [], issues)
    if issues:
        raise ArgumentError(stringify(issues, pretty=True))
    return cleaned


def _check(schema: Schema, value: Any, path: list[str | int], issues: list[dict[str, Any]]) -> Any:
    if value is None and schema.get("nullable"):
        return None
    if "enum" in schema and not any(type(value) is type(one) and value == one for one in schema["enum"]):
        told = "expected " + "|".join(map(stringify, schema["enum"]))
        issues.append(
            {"code": "invalid_value", "values": schema["enum"], "path": path, "message": f"Invalid input: {told}"}
        )
        return None
    expected = schema["type"]
    if not _fits(expected, value):
        word = "int" if expected == "integer" and _fits("number", value) else expected
        issue = {"expected": word.replace("integer", "number"), "code": "invalid_type"}
        if expected == "number" and isinstance(value, float):
            issue["received"] = "Infinity"
        message = f"Invalid input: expected {issue['expected']}, received {_kind(value)}"
        issues.append({**issue, "path": path, "message": message})
        return None
    for bound, code, word, sign, beyond in _BOUNDS:
        if bound in schema and beyond(value, schema[bound]):
            issue = {"origin": "number", "code": code, bound: schema[bound], "inclusive": True, "path": path}
            issues.append({**issue, "message": f"{word}: expected number to be {sign}{schema[bound]}"})
    if expected == "array":
        return [_check(schema["items"], item, [*path, index], issues) for index, item in enumerate(value)]
    if expected == "object" and schema["properties"]:
        required = schema.get("required", ())
        return {
            name: _check(declared, value.get(name, declared.get("default", UNDEFINED)), [*path, name], issues)
            for name, declared in schema["properties"].items()
            if name in value or name in required or "default" in declared
        }
    return {} if expected == "object" and not schema["additionalProperties"] else value


def _fits(expected: str, value: Any) -> bool:
    match expected:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        case "integer":
            return _fits("number", value) and value == int(value) and abs(value) <= _SAFE
        case _:
            raise NotImplementedError(f"the surface declares a type that is not validated: {expected}")


def _kind(value: Any) -> str:
    match value:
        case Absent():
            return "undefined"
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"

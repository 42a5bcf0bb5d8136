"""A tool surface, parsed from one OpenAPI document: its tools, its tiers, its exact profiles. No I/O.

What a mode shows is one mapping of tools by name. tools/list prints it and tools/call looks up in it, so the two
cannot disagree. `x-neo-harness-tool-projection` names the tiers that an embedded harness sees;
`x-neo-exact-tool-profiles` names sets of operations, each with an input schema of its own where one is declared.
Source: neo#13084, neo#13106, neo#15186.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

Schema = Mapping[str, Any]

MEMORY_CORE = Path(__file__).with_name("memory-core.openapi.json")
NEURAL_LINK = Path(__file__).with_name("neural-link.openapi.json")

HARNESS = "harness-embedded"  # the mode of the tier projection; no profile can take its name
MODE_ENV = "NEO_NL_TOOL_PROJECTION_MODE"
META_KEY = "neoToolProjection"  # of `params._meta`: what a client asks for where no mode is forced

_TYPES = frozenset({"object", "array", "string", "boolean", "number", "integer"})
# A profile that declares anything else would list a constraint that no call enforces.
_ENFORCED = frozenset({"type", "nullable", "properties", "required", "items", "enum", "minimum", "maximum", "default"})


class Tool(msgspec.Struct, frozen=True):
    """One operation. Both schemas are in their listed form, references resolved."""

    name: str
    description: str
    input_schema: Schema
    output_schema: Schema
    tier: str | None = None

    def listed(self) -> dict[str, Any]:
        """The tools/list entry."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
        }


class Surface(msgspec.Struct, frozen=True):
    """What one document declares. `profiles`: by name, the tools with the input schemas that hold there."""

    tools: Mapping[str, Tool]
    visible_tiers: frozenset[str]
    profiles: Mapping[str, Mapping[str, Tool]]

    def view(self, mode: object) -> Mapping[str, Tool]:
        """The tools of a projection, in document order; none for a mode that is not declared (it fails closed)."""
        if mode == HARNESS:
            return {name: tool for name, tool in self.tools.items() if tool.tier in self.visible_tiers}
        return self.profiles.get(mode, {}) if isinstance(mode, str) else {}


def not_visible(name: str, mode: object) -> str:
    """Why a projection refuses a call, in the server's words (`POLICY_REFUSED`)."""
    return f'Tool "{name}" is not visible in the {mode if isinstance(mode, str) and mode else "unknown"} projection.'


def read_surface(document: Schema) -> Surface:
    """Parse a document. KeyError on a broken reference of an operation; a profile that is malformed is left out whole."""
    tools = derive_tools(document)
    projection = document.get("x-neo-harness-tool-projection")
    tiers = projection.get("defaultVisibleTiers") if isinstance(projection, dict) else None
    root = document.get("x-neo-exact-tool-profiles")
    declared = root.get("profiles") if isinstance(root, dict) else None
    profiles = {}
    for name, profile in declared.items() if isinstance(declared, dict) else ():
        parsed = _profile(name, profile, tools, document)
        if parsed:
            profiles[name] = parsed
    visible = (tier for tier in tiers if isinstance(tier, str)) if isinstance(tiers, list) else ()
    return Surface(tools, frozenset(visible), profiles)


def derive_tools(document: Schema) -> dict[str, Tool]:
    """The tools of an OpenAPI document by name, in document order. KeyError on a broken reference."""
    tools = {}
    for path in document["paths"].values():
        for operation in path.values():
            request = operation["requestBody"]["content"]["application/json"]["schema"]
            response = operation["responses"]["200"]["content"]["application/json"]["schema"]
            tools[operation["operationId"]] = Tool(
                name=operation["operationId"],
                description=operation["summary"],
                input_schema=_listed(request, document, strict=True, root=True),
                output_schema=_listed(response, document, strict=False, root=True),
                tier=operation.get("x-neo-tool-tier"),
            )
    return tools


def _profile(name: str, profile: Any, tools: Mapping[str, Tool], document: Schema) -> dict[str, Tool] | None:
    declared = profile.get("tools") if isinstance(profile, dict) else None
    if not name or name != name.strip() or name == HARNESS or not isinstance(declared, dict):
        return None
    try:
        return {tool: _constrained(tools[tool], entry, document) for tool, entry in declared.items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None


def _constrained(tool: Tool, entry: Any, document: Schema) -> Tool:
    """The tool as one profile has it. Raises for an entry that cannot be enforced as it is declared."""
    if not isinstance(entry, dict) or entry.keys() - {"inputSchema", "description"}:
        raise TypeError("a tool's entry is an object, and a constraint under another name would bind nobody")
    if "inputSchema" not in entry:
        return tool
    schema = _listed(entry["inputSchema"], document, strict=True, root=True)
    if schema["type"] != "object":
        raise ValueError("arguments are an object")
    _refuse_unenforced(schema)
    return msgspec.structs.replace(tool, input_schema=schema)


def _refuse_unenforced(schema: Schema) -> None:
    kind, numeric = schema["type"], schema["type"] in ("number", "integer")
    unknown = schema.keys() - _ENFORCED - {"additionalProperties", "description"}
    bounds = [schema[key] for key in ("minimum", "maximum") if key in schema]
    if kind not in _TYPES or unknown or (bounds and not numeric):
        raise ValueError(f"not enforced: {kind} with {sorted(unknown)}")
    if not all(type(bound) in (int, float) and isfinite(bound) for bound in bounds):
        raise ValueError("a bound is a number")
    if not isinstance(schema.get("enum", [None]), list) or not isinstance(schema.get("nullable", False), bool):
        raise ValueError("enum is a list, nullable a boolean")
    required, properties = schema.get("required", []), schema.get("properties", {})
    if not isinstance(required, list) or not set(required) <= properties.keys():
        raise ValueError("required names properties")
    for inner in (*properties.values(), *([schema["items"]] if kind == "array" else [])):
        _refuse_unenforced(inner)


def _listed(schema: Schema, document: Schema, *, strict: bool, root: bool = False) -> dict[str, Any]:
    if "$ref" in schema:
        target: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return _listed(target, document, strict=strict, root=root)
    listed = dict(schema)
    if schema["type"] == "object":
        properties = schema.get("properties", {})
        # An object that declares nothing is an open bag; what a server may answer is open everywhere.
        closed = strict and (root or bool(properties))
        listed["properties"] = {
            name: _listed(declared, document, strict=strict) for name, declared in properties.items()
        }
        required = listed.pop("required", None)
        if required:
            listed["required"] = required
        listed["additionalProperties"] = not closed
    elif schema["type"] == "array":
        listed["items"] = _listed(schema["items"], document, strict=strict)
    return listed

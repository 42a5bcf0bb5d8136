"""The tool surface, derived from `openapi.json`: what tools/list says and what arguments are validated against."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

Schema = Mapping[str, Any]

DOCUMENT = Path(__file__).with_name("openapi.json")


class Tool(msgspec.Struct, frozen=True):
    """One operation. Both schemas are in their listed form, references resolved."""

    name: str
    description: str
    input_schema: Schema
    output_schema: Schema

    def listed(self) -> dict[str, Any]:
        """The tools/list entry."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
        }


def load_document(path: Path = DOCUMENT) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


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
            )
    return tools


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

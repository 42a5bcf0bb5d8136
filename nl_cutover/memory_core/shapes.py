"""The shapes in which Memory Cores of different age answer: `shapes.json`, read here and nowhere else.

Source: the wire (final, and the archives of 902ddd4d); the public sources for 744201e5 and for 902ddd4d's schema of
actions (neo:ai/mcp/server/memory-core/openapi.yaml, PR#17740).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from ..contract.wire import GET

_FILE = Path(__file__).with_name("shapes.json")


class ShapeName(StrEnum):
    """By the commit of the server; `final` is what the others became."""

    FINAL = "final"
    INTERIM = "744201e5"
    FIRST = "902ddd4d"


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In what a server differs from the final one. Without fields it is the final one."""

    undeclared: Mapping[str, frozenset[str]] = {}  # by component schema: properties that it lacks
    unanswered: Mapping[str, frozenset[str]] = {}  # by tool: keys that its results lack
    transaction_id: str = "txId"  # the key of a transaction that becomes sourceTxId
    trims_names: bool = True
    has_custody: bool = True  # keeps from whom an archive came
    names_at_mark: bool = True  # the first mark names an unnamed archive; older ones write its null name back

    def surface(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The OpenAPI document without what this shape does not declare."""
        schemas = dict(document["components"]["schemas"])
        for name, lacking in self.undeclared.items():
            properties = {k: v for k, v in schemas[name]["properties"].items() if k not in lacking}
            schemas[name] = {**schemas[name], "properties": properties}
        return {**document, "components": {**document["components"], "schemas": schemas}}

    def answer(self, tool: str, result: dict[str, Any]) -> dict[str, Any] | None:
        """A result of the final shape as this one tells it. A read that knows no `status` finds or answers null."""
        lacking = self.unanswered.get(tool, frozenset())
        if tool == GET and "status" in lacking and result["status"] != "found":
            return None
        return {key: value for key, value in result.items() if key not in lacking}


def load_shape(name: ShapeName) -> Shape:
    return msgspec.json.decode(_FILE.read_bytes(), type=dict[ShapeName, Shape])[name]

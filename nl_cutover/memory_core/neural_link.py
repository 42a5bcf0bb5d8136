"""What stands behind the Neural Link surface here: one small component tree in memory. No browser is attached.

Reads answer from the tree and writes change it, so that a refused write can be told from one that went through. The
healthcheck says what this is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from .. import __version__
from ..contract.surface import Tool
from .auth import Identity
from .operations import Result, execute
from .surface import Answer
from .validation import ArgumentError

_SESSION = "reference-session"
_LEAN = ("id", "className")

Component = dict[str, Any]  # {id, className, ..., items: [Component]}


def _tree() -> Component:
    grid = {"id": "grid-1", "className": "Neo.grid.Container", "items": [_leaf("grid-body-1", "Neo.grid.Body")]}
    bar = {"id": "toolbar-1", "className": "Neo.toolbar.Base", "items": [_leaf("button-1", "Neo.button.Base")]}
    return {"id": "viewport-1", "className": "Neo.container.Viewport", "layout": "vbox", "items": [bar, grid]}


def _leaf(component_id: str, class_name: str) -> Component:
    return {"id": component_id, "className": class_name, "hidden": False, "items": []}


class NeuralLink:
    """The operations of `neural-link.openapi.json`. `started_at`: ms since epoch."""

    def __init__(self, started_at: int) -> None:
        self._started_at = started_at
        self._root = _tree()
        self._lock = threading.Lock()
        self._handlers: dict[str, Callable[[Any], Result]] = {
            "healthcheck": self._health,
            "get_worker_topology": self._topology,
            "get_component_tree": self._component_tree,
            "get_instance_properties": self._properties,
            "set_instance_properties": self._set_properties,
            "create_component": self._create,
            "remove_component": self._remove,
            "reload_page": self._reload,
        }

    def call(self, name: str, arguments: Any, caller: Identity, tools: Mapping[str, Tool]) -> Answer:
        with self._lock:
            return execute(name, arguments, tools.get(name), self._handlers.get(name))

    def _health(self, _: Any) -> Result:
        return {
            "status": "healthy",
            "server": {"name": "neo-neural-link", "version": __version__},
            "backend": "a component tree in memory; no browser is attached",
            "sessions": [{"id": _SESSION, "connectedAt": self._started_at, "activeApps": 1}],
        }

    def _topology(self, _: Any) -> Result:
        return {"workers": [{"type": "app", "sessionId": _SESSION, "apps": ["Reference"]}]}

    def _component_tree(self, arguments: Any) -> Result:
        root = self._find(arguments.get("rootId", self._root["id"]))
        return {"tree": _cut(root, int(arguments.get("depth", -1)), arguments["lean"])}

    def _properties(self, arguments: Any) -> Result:
        component = self._find(arguments["id"])
        return {"properties": {name: component.get(name) for name in arguments["properties"]}}

    def _set_properties(self, arguments: Any) -> Result:
        held = {"id", "items"} & arguments["properties"].keys()
        if held:
            raise ArgumentError(f"not to be set: {', '.join(sorted(held))}")
        self._find(arguments["id"]).update(arguments["properties"])
        return {"success": True}

    def _create(self, arguments: Any) -> Result:
        config = arguments["config"]
        made = {"className": "Neo.component.Base", **config, "items": []}
        if not isinstance(made.get("id"), str) or self._search(self._root, made["id"]) is not None:
            raise ArgumentError("config.id is a string that no component has")
        self._find(arguments["parentId"])["items"].append(made)
        return {"id": made["id"]}

    def _remove(self, arguments: Any) -> Result:
        gone = self._find(arguments["componentId"])
        if gone is self._root:
            raise ArgumentError("the viewport stays")
        _drop(self._root, gone)
        return {"success": True}

    def _reload(self, _: Any) -> Result:
        self._root = _tree()
        return {"success": True}

    def _find(self, component_id: str) -> Component:
        found = self._search(self._root, component_id)
        if found is None:
            raise ArgumentError(f"Component not found: {component_id}")
        return found

    def _search(self, component: Component, component_id: str) -> Component | None:
        if component["id"] == component_id:
            return component
        return next((f for item in component["items"] if (f := self._search(item, component_id)) is not None), None)


def _cut(component: Component, depth: int, lean: bool) -> Component:
    """1: the component alone, 2: with its children, -1: all."""
    shown = {key: value for key, value in component.items() if key != "items" and (not lean or key in _LEAN)}
    if depth == 1 or not component["items"]:
        return shown
    return {**shown, "items": [_cut(item, depth - 1, lean) for item in component["items"]]}


def _drop(component: Component, gone: Component) -> None:
    component["items"] = [item for item in component["items"] if item is not gone]
    for item in component["items"]:
        _drop(item, gone)

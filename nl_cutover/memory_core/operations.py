"""The four operations and the healthcheck, with the semantics that were observed on the real server."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from .. import __version__
from ..contract import javascript, wire
from ..contract.surface import Tool
from .auth import Identity
from .graph import Graph, Node
from .jsontext import stringify
from .retention import TELEMETRY, Retention
from .shapes import Shape
from .surface import Answer
from .validation import ArgumentError, refuse_identity, validate

ARCHIVE = "nl-transaction-archive"

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)

Result = dict[str, Any]


class Plane(msgspec.Struct, frozen=True):
    """Which container side this is, as the healthcheck tells it."""

    id: str
    data_root: str


def execute(name: str, arguments: Any, tool: Tool | None, handler: Callable[[Any], Result | None] | None) -> Answer:
    """One call: no identity claimed, arguments validated, answered as JSON. Never raises on what was sent."""
    if tool is None or handler is None:
        return Answer(f'Error executing {name}: Tool "{name}" not found or not implemented.')
    try:
        refuse_identity(arguments)
        result = handler(validate(tool.input_schema, arguments))
        structured = {"result": None} if result is None else result  # MCP takes an object alone
        return Answer(stringify(result, pretty=True), stringify(structured))
    except ArgumentError as failure:
        return Answer(f"Error executing {name}: {failure}")
    except RecursionError:
        return Answer(f"Error executing {name}: Maximum call stack size exceeded")


def _truthy(value: Any) -> bool:
    """JavaScript's ToBoolean: unlike in Python, an empty array or object is true."""
    return isinstance(value, list | dict) or bool(value)


def _finite(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if number else None


def _unavailable(failure: sqlite3.Error | RecursionError) -> str:
    told = "Maximum call stack size exceeded" if isinstance(failure, RecursionError) else str(failure)
    return f"archive-store-unavailable: {told}"


class Operations:
    """Executes tool calls. `clock`: ms since epoch; `new_id`: a fresh UUID; `shape`: as which server it answers."""

    def __init__(
        self,
        graph: Graph,
        tools: dict[str, Tool],
        plane: Plane,
        *,
        clock: Callable[[], int],
        new_id: Callable[[], str],
        retention: Retention,
        shape: Shape = Shape(),  # noqa: B008 - immutable
    ) -> None:
        self._graph = graph
        self._tools = tools
        self._plane = plane
        self._clock = clock
        self._new_id = new_id
        self._retention = retention
        self._shape = shape
        self._handlers: dict[str, Callable[[Any, Identity], Result]] = {
            wire.SAVE: self._save,
            wire.GET: self._get,
            wire.MARK: self._mark,
            wire.ADMIT: self._admit,
            wire.HEALTH: self._health,
        }

    def call(self, name: str, arguments: Any, caller: Identity, tools: Mapping[str, Tool] | None = None) -> Answer:
        """Execute one call. `arguments` as parsed by `jsontext.parse`, or UNDEFINED. `tools`: what the caller sees."""
        tool, handler = (self._tools if tools is None else tools).get(name), self._handlers.get(name)
        if handler is None:
            return execute(name, arguments, None, None)
        return execute(name, arguments, tool, lambda clean: self._shape.answer(name, handler(clean, caller)))

    def _save(self, arguments: Any, caller: Identity) -> Result:
        transaction = arguments["transaction"]
        ops = transaction.get("ops")
        if transaction.get("status") != "committed" or not isinstance(ops, list) or not ops:
            return {"saved": False, "reason": "invalid-transaction"}
        writer = _origin_writer(transaction, ops[0])
        if writer is None:
            return {"saved": False, "reason": "missing-origin-writer"}
        archive_id, now = self._new_id(), self._clock()
        name = arguments.get("name")
        stored = {
            "archiveId": archive_id,
            "sourceTxId": transaction.get(self._shape.transaction_id),
            "name": (javascript.trim(name or "") or None) if self._shape.trims_names else name,
            "appSessionId": arguments.get("appSessionId"),
            "originWriter": writer,
            **({"custodian": caller.user, "custodySource": caller.source} if self._shape.has_custody else {}),
            "committedAt": _finite(transaction.get("committedAt")),
            "archivedAt": now,
            "ops": ops,
            "replayCount": 0,
            "lastReplayedAt": None,
        }
        node_name = archive_id if name is None else name
        try:
            self._graph.upsert(f"{ARCHIVE}:{archive_id}", ARCHIVE, node_name, now, stored, user=caller.user)
        except (sqlite3.Error, RecursionError) as failure:
            return {"saved": False, "reason": _unavailable(failure)}
        told = ("archiveId", "sourceTxId", "archivedAt")
        return {
            "saved": True,
            **{key: stored[key] for key in told},
            "opCount": len(ops),
            "originWriter": writer,
            "committedAt": stored["committedAt"],
        }

    def _archive(self, archive_id: str, caller: Identity) -> Node | None:
        node = self._graph.node(f"{ARCHIVE}:{archive_id}", caller.user) if archive_id else None
        return node if node is not None and node["label"] == ARCHIVE else None

    def _get(self, arguments: Any, caller: Identity) -> Result:
        try:
            node = self._archive(arguments["archiveId"], caller)
        except sqlite3.Error as failure:
            return {"status": "unavailable", "reason": _unavailable(failure)}
        if node is None:
            return {"status": "not-found"}
        return {"status": "found", **_record(node["properties"])}

    def _mark(self, arguments: Any, caller: Identity) -> Result:
        archive_id = arguments["archiveId"]
        try:
            with self._graph.lock:
                return self._count(archive_id, caller)
        except (sqlite3.Error, RecursionError) as failure:
            return {"updated": False, "status": "unavailable", "reason": _unavailable(failure)}

    def _count(self, archive_id: str, caller: Identity) -> Result:
        node = self._archive(archive_id, caller)
        if node is None:
            return {"updated": False, "status": "not-found"}
        stored, now = node["properties"], self._clock()
        counted = {"replayCount": (stored.get("replayCount") or 0) + 1, "lastReplayedAt": now}
        # The first mark names an unnamed archive: upsert writes this name, and no property overrides it here. Older
        # servers write the whole record back, null name and all.
        name = archive_id if stored.get("name") is None else stored["name"]
        kept = {} if self._shape.names_at_mark else {k: v for k, v in _record(stored).items() if k in stored}
        self._graph.upsert(node["id"], ARCHIVE, name, now, {**kept, **counted}, user=caller.user)
        return {"updated": True, **counted}

    def _admit(self, arguments: Any, caller: Identity) -> Result:
        actions = arguments["actions"]
        admitted = sum(self._admit_one(action, caller) for action in actions)
        return {"admitted": admitted, "refused": len(actions) - admitted}

    def _admit_one(self, action: dict[str, Any], caller: Identity) -> bool:
        token = action.get("sequenceId")
        if token is None or _UUID.fullmatch(token) is None:
            return False
        targets = action.get("targets", {})
        projected = {
            "sequenceId": token,
            "sessionId": action.get("sessionId"),
            "timestamp": action.get("timestamp"),
            "tool": action.get("tool"),
            "success": action.get("success") is True,
            "durationMs": action.get("durationMs"),
            "appName": action.get("appName"),
            "targets": {key: targets.get(key, []) for key in ("classNames", "componentIds")},
            "visibility": "team",  # the digest reads every seat's rows; without it they were their sender's alone
        }
        name = TELEMETRY if projected["tool"] is None else projected["tool"]
        try:
            self._graph.upsert(
                f"{TELEMETRY}:{self._new_id()}",
                TELEMETRY,
                name,
                self._clock(),
                projected,
                user=caller.user,
                cached=False,
            )
        except sqlite3.Error:
            return False
        return True

    def _health(self, arguments: Any, caller: Identity) -> Result:
        return {
            "status": "unhealthy" if self._retention.overdue else "healthy",
            "plane": {"id": self._plane.id, "dataRoot": self._plane.data_root},
            "server": {"name": "neo-memory-core", "version": __version__},
            "retention": self._retention.report(),
        }


def _record(stored: dict[str, Any]) -> Result:
    before = ("archiveId", "name", "sourceTxId", "appSessionId", "originWriter", "custodian")
    ops = stored.get("ops")
    return {
        **{key: stored.get(key) for key in (*before, "committedAt", "archivedAt")},
        "ops": ops if isinstance(ops, list) else [],
        "replayCount": stored.get("replayCount") or 0,
        "lastReplayedAt": stored.get("lastReplayedAt"),
    }


def _origin_writer(transaction: dict[str, Any], first: Any) -> dict[str, Any] | None:
    writer = transaction.get("originWriter")
    if writer is None and isinstance(first, dict):
        writer = first.get("originWriter")
    if not isinstance(writer, dict):
        return None
    return writer if _truthy(writer.get("agentId")) and _truthy(writer.get("sessionId")) else None

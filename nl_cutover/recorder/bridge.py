"""The recorder for hosts that speak MCP over stdio: the four operations, projection and gate on the way.

The host starts it and asks; it answers, and initiates nothing towards the host. What the contract has no word for - an
outcome that nobody knows - is an error here, never `saved: false` or `updated: false`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from io import TextIOWrapper
from typing import Any, cast

import anyio
import mcp_types as types
import msgspec
from anyio import to_thread
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from .. import __version__, verdicts
from ..contract import javascript as js
from ..contract.leaves import ACTION_LOGGING
from ..contract.surface import MEMORY_CORE, Tool, not_visible, read_surface
from ..contract.telemetry import Action, batches
from ..verdicts import Delivered
from .archive import Archive, Found, Marked, NotFound, NotMarked, Refused, Saved, Unavailable
from .connection import Connection
from .projection import Tokens, project, snapshot
from .telemetry import random_token

PROFILE = "nl-recorder"  # of Memory Core's document: what it shows is what is listed and called here
_VERBATIM = "json"
_ESCAPED = re.compile(r"\\ud[89a-f]", re.IGNORECASE)
_DEEPEST = 200  # levels; the SDK fails a result somewhat beyond them
# Where a line that cannot be parsed still shows the id of the whole: first in it, or before its last brace.
_ID = r'"id"\s*:\s*(\d{1,15}|"[^"\\]{1,99}")\s*'
_OUTER = re.compile(rf'^\s*\{{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?{_ID},|,\s*{_ID}\}}\s*$')
_UNREADABLE = "the request cannot be read: it is nested too deep, or is no JSON"
_NO_BATCH = types.JSONRPCError(
    jsonrpc="2.0",
    id=None,
    error=types.ErrorData(code=-32600, message="MCP has no batches since 2025-06-18: one message a line"),
)
_KINDS = {"object": dict, "array": list, "string": str}
# An action may have the names of the wire, or those of the host's own log entry.
_ENTRY_NAMES = {
    "sequenceId": "sequence_id",
    "sessionId": "session_id",
    "durationMs": "duration_ms",
    "appName": "app_name",
}


class UnknownOutcomeError(Exception):
    """The call left, and nobody can say what became of it."""


class Bridge:
    """The operations as JSON in, JSON out. Without I/O of its own but through `archive` and `connection`."""

    def __init__(
        self,
        archive: Archive,
        connection: Connection,
        *,
        enabled: bool,
        new_token: Callable[[], str] = random_token,
    ) -> None:
        self._archive, self._connection, self._enabled = archive, connection, enabled
        self._tokens = Tokens(new_token)
        self.tools = read_surface(json.loads(MEMORY_CORE.read_bytes())).view(PROFILE)

    def call(self, tool: str, arguments: Any) -> dict[str, Any]:
        """The answer of an operation. Raises ValueError for arguments that do not fit, UnknownOutcomeError."""
        if tool not in self.tools:
            raise ValueError(not_visible(tool, PROFILE))
        given = arguments if isinstance(arguments, dict) else {}
        for name, schema in self.tools[tool].input_schema["properties"].items():
            value = given.get(name)
            if not (value is None and schema.get("nullable")) and not isinstance(value, _KINDS[schema["type"]]):
                raise ValueError(f"{name}: expected {schema['type']}")
        match tool:
            case "save_nl_transaction":
                return self._save(given["transaction"], given.get("name"), given.get("appSessionId"))
            case "get_nl_transaction":
                return self._get(given["archiveId"])
            case "mark_nl_transaction_replayed":
                return self._mark(given["archiveId"])
            case _:
                return self._admit(given["actions"])

    def _save(self, transaction: dict[str, Any], name: str | None, app_session_id: str | None) -> dict[str, Any]:
        match self._archive.save(transaction, name=name, app_session_id=app_session_id):
            case Saved(archive_id=made, source_tx_id=source, archived_at=at):
                return {"saved": True, "archiveId": made, "sourceTxId": source, "archivedAt": at}
            case Refused(reason=reason, outcome_unknown=True):
                raise UnknownOutcomeError(reason)
            case Refused(reason=reason):
                return {"saved": False, "reason": reason}

    def _get(self, archive_id: str) -> dict[str, Any]:
        match self._archive.get(archive_id):
            case Found() as found:
                record: dict[str, Any] = msgspec.to_builtins(found)
                del record["result"]
                return {"status": "found", **record}
            case NotFound():
                return {"status": "not-found"}
            case Unavailable(reason=reason):
                return {"status": "unavailable", "reason": reason}

    def _mark(self, archive_id: str) -> dict[str, Any]:
        match self._archive.mark_replayed(archive_id):
            case Marked(replay_count=count, last_replayed_at=at):
                return {"updated": True, "replayCount": count, "lastReplayedAt": at}
            case NotMarked(reason=reason, outcome_unknown=True):
                raise UnknownOutcomeError(reason)
            case NotMarked(reason="not-found"):
                return {"updated": False, "status": "not-found"}
            case NotMarked(reason=reason):
                return {"updated": False, "status": "unavailable", "reason": reason}

    def _admit(self, rows: list[Any]) -> dict[str, Any]:
        if not self._enabled:
            return {"admitted": 0, "refused": len(rows), "reason": f"telemetry is off: {ACTION_LOGGING} is not on"}
        actions = [(self._tokens.of(a.sequence), a) for row in rows if isinstance(a := _action(row), Action)]
        admitted, reason = 0, ""
        for batch in batches(actions):
            match self._connection.admit(batch):
                case Delivered(result=result):
                    admitted += int(result["admitted"])
                case verdicts.Unknown(reason=doubt):
                    raise UnknownOutcomeError(f"{admitted} were admitted, of {len(batch)} it is not known: {doubt}")
                case verdicts.Refused(reason=reason) | verdicts.NotSent(reason=reason):
                    pass
        return {"admitted": admitted, "refused": len(rows) - admitted, **({"reason": reason} if reason else {})}


def _action(row: Any) -> Action | verdicts.Refused:
    """An action in the names of the wire, its targets already read out, or in those of the host's own log entry."""
    try:
        held = snapshot({_ENTRY_NAMES.get(key, key): value for key, value in row.items()})
        if "args" not in row and isinstance(named := row.get("targets"), dict):
            lists = (named.get("classNames"), named.get("componentIds"))
            classes, components = ([t for t in texts or () if isinstance(t, str)] for texts in lists)
            held = msgspec.structs.replace(held, targets=(classes, components))
        return project(held)
    except (AttributeError, TypeError, ValueError) as error:
        return verdicts.Refused(str(error))


def serve(bridge: Bridge) -> None:
    """Serve on stdin and stdout until stdin ends. Nothing but the protocol is written to stdout."""
    anyio.run(_serve, bridge)


async def _serve(bridge: Bridge) -> None:
    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_listed(tool) for tool in bridge.tools.values()])

    async def call_tool(_: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        text = "{}" if params.arguments is None else params.arguments.get(_VERBATIM)
        return await to_thread.run_sync(_answer, bridge, params.name, text)

    server = Server("nl-cutover-recorder", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)
    stdin = anyio.wrap_file(TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace"))
    lines = _lines(stdin, lambda: write.send(SessionMessage(_NO_BATCH)))
    async with stdio_server(stdin=cast(Any, lines)) as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _listed(tool: Tool) -> types.Tool:
    return types.Tool(name=tool.name, description=tool.description, input_schema=dict(tool.input_schema))


async def _lines(stdin: AsyncIterable[str], refuse: Callable[[], Awaitable[None]]) -> AsyncIterator[str]:
    async for line in stdin:
        if line.lstrip().startswith("["):  # the SDK would pass over it in silence
            await refuse()
        else:
            yield _wrapped(line)


def _wrapped(line: str) -> str:
    """A line whose arguments travel as text: the SDK's parser takes no lone surrogates, and rounds otherwise."""
    try:
        message = json.loads(line)
        params = message["params"]
        if message["method"] == "tools/call" and "arguments" in params:
            params["arguments"] = {_VERBATIM: js.encode(params["arguments"])}
            return js.encode(message) + "\n"
    except (KeyError, TypeError):
        pass  # the SDK says what is wrong with it
    except (ValueError, RecursionError):
        if found := _OUTER.search(line):  # the SDK would pass over it in silence, and the host would wait
            params = '{"name":"unreadable","arguments":{}}'
            return f'{{"jsonrpc":"2.0","id":{found[1] or found[2]},"method":"tools/call","params":{params}}}\n'
    return line


def _answer(bridge: Bridge, tool: str, text: object) -> types.CallToolResult:
    try:
        if not isinstance(text, str):
            raise ValueError(_UNREADABLE)
        result = bridge.call(tool, js.parse(text))
    except (ValueError, UnknownOutcomeError) as error:
        words = f"the outcome is unknown: {error}" if isinstance(error, UnknownOutcomeError) else str(error)
        return types.CallToolResult(content=[types.TextContent(text=words)], is_error=True)
    # JSON text can carry a lone surrogate, as an escape, and any depth; a value of the SDK's cannot.
    told = js.encode(result)
    structured = None if _ESCAPED.search(told) or _too_deep(result) else result
    return types.CallToolResult(content=[types.TextContent(text=told)], structured_content=structured)


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = [member for members in inner for member in members]
    return bool(level)

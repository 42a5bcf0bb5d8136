"""Probes a live tool surface against one exact profile: does it list and execute that, and nothing else?

Nothing is executed that could write: an operation of another tier than `read` is called with arguments that its own
schema refuses, and a refusal by policy is told from a refusal of the arguments by the server's words. Source: neo#15186.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from ..verdicts import ExitCode

_POLICY = "Policy Refused"  # how the text of a POLICY_REFUSED result begins
_UNKNOWN = "not found or not implemented"  # how a server words a name that is no operation of its
_PAGES = 100
_CONSTRAINTS = frozenset({"minimum", "maximum", "enum"})
_META_KEY = "neoToolProjection"
_METAS: tuple[Any, ...] = (
    {},
    *(
        {_META_KEY: mode}
        for mode in ("full", "harness-embedded", "no-such-profile", "", None, {"mode": "full"}, ["full"])
    ),
)
# Operations that a Neural Link or a Memory Core has and that no exact profile names.
_FOREIGN = ("patch_code", "call_method", "simulate_event", "get_mcp_tool_handbook", "add_memory")


class Operation(msgspec.Struct, frozen=True):
    """What a document declares of one operation: its listed input schema, and whether it only reads."""

    name: str
    input_schema: Mapping[str, Any]
    reads: bool


class Reply(msgspec.Struct, frozen=True):
    """What came back: `result` of JSON-RPC, or the text of the refusal."""

    result: Mapping[str, Any] | None
    refusal: str = ""


Ask = Callable[[str, Mapping[str, Any]], Reply]  # (method, params); raises what the caller wants to end the run with


class Verdict(StrEnum):
    HOLDS = "holds"
    LEAKS = "leaks"  # more is listed, or executed, than the profile names
    LACKS = "lacks"  # less
    UNPROVEN = "unproven"  # not called, because nothing would have stopped it from being executed


_WORST_FIRST = (Verdict.LEAKS, Verdict.LACKS, Verdict.UNPROVEN)
_CODES = {Verdict.HOLDS: ExitCode.PROVED, Verdict.UNPROVEN: ExitCode.UNMEASURABLE}


class Finding(msgspec.Struct, frozen=True):
    """How one case came out. `detail` is empty when it came out as declared."""

    case: str
    verdict: Verdict
    detail: str = ""


class Parity(msgspec.Struct, frozen=True):
    """One operation: whether the server lists it, and whether a call reaches it."""

    operation: str
    in_profile: bool
    listed: bool
    callable: bool


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole probe. `verdict`: that of the worst finding."""

    schema: str = "nl-cutover/surface/1"
    url: str
    profile: str
    verdict: str
    exit_code: int
    parity: list[Parity]
    findings: list[Finding]


def probe(ask: Ask, profile: Sequence[Operation], others: Sequence[Operation], name: str, url: str) -> Report:
    """Run the whole matrix. `profile`: its operations with the input schemas it declares; `others`: all the rest."""
    findings = [
        *_listings(ask, profile),
        *_calls(ask, profile),
        *_arguments(ask, profile),
        *_absent(ask, profile, others),
    ]
    listed = _names(ask, {})
    inside = {operation.name for operation in profile}
    parity = [
        Parity(one.name, one.name in inside, one.name in listed, not _is_refused_name(_call(ask, one.name, arguments)))
        for one in (*profile, *others)
        if (arguments := _harmless(one)) is not None
    ]
    kinds = {finding.verdict for finding in findings}
    verdict = next((kind for kind in _WORST_FIRST if kind in kinds), Verdict.HOLDS)
    code = _CODES.get(verdict, ExitCode.DIFFERENCE)
    return Report(url=url, profile=name, verdict=str(verdict), exit_code=int(code), parity=parity, findings=findings)


def _listings(ask: Ask, profile: Sequence[Operation]) -> Iterator[Finding]:
    wanted = [operation.name for operation in profile]
    for meta in (None, *_METAS):
        told = "no _meta" if meta is None else f"_meta {msgspec.json.encode(meta).decode()}"
        names = _names(ask, {} if meta is None else {"_meta": meta})
        more, less = sorted(set(names) - set(wanted)), sorted(set(wanted) - set(names))
        verdict = Verdict.LEAKS if more or len(names) > len(set(names)) else Verdict.LACKS if less else Verdict.HOLDS
        detail = "; ".join(f"{word} {', '.join(n)}" for word, n in (("also lists", more), ("does not list", less)) if n)
        yield Finding(f"list, {told}", verdict, detail)
    entries = {str(t.get("name")): t for t in _tools(ask, {})}
    for operation in (one for one in profile if one.name in entries):
        listed = _constraints(entries[operation.name].get("inputSchema"))
        same = listed == _constraints(operation.input_schema)
        detail = "" if same else "the listed input schema is not the profile's"
        yield Finding(f"schema of {operation.name}", Verdict.HOLDS if same else Verdict.LEAKS, detail)


def _calls(ask: Ask, profile: Sequence[Operation]) -> Iterator[Finding]:
    for operation in profile:
        harmless = _harmless(operation)
        if harmless is None:
            yield _unproven(operation)
            continue
        for arguments in _valid(operation) if operation.reads else [harmless]:
            reply = _call(ask, operation.name, arguments)
            reached = reply.result is not None if operation.reads else not _is_refused_name(reply)
            detail = "" if reached else f"refused: {reply.refusal}"
            yield Finding(
                f"call {operation.name} {_told(arguments)}", Verdict.HOLDS if reached else Verdict.LACKS, detail
            )


def _arguments(ask: Ask, profile: Sequence[Operation]) -> Iterator[Finding]:
    for operation in profile:
        if not operation.reads:  # what its profile refuses, the operation itself may take
            if any(_CONSTRAINTS & schema.keys() for schema in operation.input_schema.get("properties", {}).values()):
                yield Finding(f"refuse {operation.name}", Verdict.UNPROVEN, "its constraints are not tried: it writes")
            continue
        for arguments in _invalid(operation):
            reply = _call(ask, operation.name, arguments)
            detail = "" if reply.result is None else "executed"
            verdict = Verdict.LEAKS if detail else Verdict.HOLDS
            yield Finding(f"refuse {operation.name} {_told(arguments)}", verdict, detail)


def _absent(ask: Ask, profile: Sequence[Operation], others: Sequence[Operation]) -> Iterator[Finding]:
    inside = {operation.name for operation in profile}
    for operation in others:
        harmless = _harmless(operation)
        if harmless is None:
            yield _unproven(operation)
            continue
        for meta in (None, *_METAS):
            reply = _call(ask, operation.name, harmless, meta)
            told = "" if meta is None else f" with _meta {msgspec.json.encode(meta).decode()}"
            yield _refused(f"refuse {operation.name}{told}", reply, by_policy=True)
    for name in dict.fromkeys((*_FOREIGN, *(s for o in (*profile, *others) for s in _spellings(o.name)))):
        if name not in inside and name not in {operation.name for operation in others}:
            yield _refused(f"refuse {name!r}", _call(ask, name, {}), by_policy=False)


def _unproven(operation: Operation) -> Finding:
    return Finding(f"call {operation.name}", Verdict.UNPROVEN, "not called: it writes and takes no arguments to refuse")


def _refused(case: str, reply: Reply, *, by_policy: bool) -> Finding:
    if _is_policy(reply) or (not by_policy and reply.result is None and _UNKNOWN in reply.refusal):
        return Finding(case, Verdict.HOLDS)
    detail = "executed" if reply.result is not None else f"reached, then refused: {reply.refusal}"
    return Finding(case, Verdict.LEAKS, detail)


def _spellings(name: str) -> Iterator[str]:
    """Names that a server might take for this one."""
    words = name.split("_")
    yield from (f"neural-link__{name}", f"mcp__neural-link__{name}", f"memory-core__{name}", f"__{name}")
    yield from (name.upper(), name.title(), "-".join(words), words[0] + "".join(w.title() for w in words[1:]))
    yield from (
        f" {name}",
        f"{name} ",
        f"{name}\n",
        f"{name}\x00",
        f"{name}/",
        f"./{name}",
        name.replace("e", "\u0435", 1),
    )


def _names(ask: Ask, params: Mapping[str, Any]) -> list[str]:
    return [str(tool.get("name")) for tool in _tools(ask, params)]


def _tools(ask: Ask, params: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What all the pages of the list hold; more pages than any surface has are not turned."""
    listed: list[Mapping[str, Any]] = []
    for _ in range(_PAGES):
        result = ask("tools/list", params).result or {}
        tools, cursor = result.get("tools"), result.get("nextCursor")
        listed += [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
        if not isinstance(cursor, str):
            break
        params = {**params, "cursor": cursor}
    return listed


def _call(ask: Ask, name: str, arguments: Mapping[str, Any], meta: Any = None) -> Reply:
    extra = {} if meta is None else {"_meta": meta}
    return ask("tools/call", {"name": name, "arguments": arguments, **extra})


def _is_policy(reply: Reply) -> bool:
    return reply.result is None and reply.refusal.startswith(_POLICY)


def _is_refused_name(reply: Reply) -> bool:
    return _is_policy(reply) or _UNKNOWN in reply.refusal


def _constraints(schema: Any) -> Any:
    """A schema without its prose, which a server may word as it likes."""
    if isinstance(schema, dict):
        return {key: _constraints(value) for key, value in schema.items() if key not in ("description", "$schema")}
    return [_constraints(value) for value in schema] if isinstance(schema, list) else schema


def _told(arguments: Mapping[str, Any]) -> str:
    return msgspec.json.encode(arguments).decode()


def _harmless(operation: Operation) -> dict[str, Any] | None:
    """No arguments for a read; for a write, values of another type than it declares. None if it declares none."""
    if operation.reads:
        return {}
    properties = operation.input_schema.get("properties", {})
    return {name: "" if p.get("type") in ("number", "integer") else -1 for name, p in properties.items()} or None


def _valid(operation: Operation) -> Iterator[dict[str, Any]]:
    """The least that is accepted, at each end of every range."""
    properties = operation.input_schema.get("properties", {})
    needed = {name: _least(properties[name]) for name in operation.input_schema.get("required", ())}
    if any(value is None for value in needed.values()):
        return  # a value that only the application knows, such as an id
    yield needed
    for name, schema in properties.items():
        if "maximum" in schema:
            yield {**needed, name: schema["maximum"]}
        for allowed in schema.get("enum", ()):
            yield {**needed, name: allowed}


def _least(schema: Mapping[str, Any]) -> Any:
    return next(
        (schema[key] if key != "enum" else schema[key][0] for key in ("default", "enum", "minimum") if key in schema),
        None,
    )


def _invalid(operation: Operation) -> Iterator[dict[str, Any]]:
    """Arguments that break one constraint each: left out, below, above, a fraction, another type."""
    properties = operation.input_schema.get("properties", {})
    required = operation.input_schema.get("required", ())
    needed = {name: _least(properties[name]) for name in required}
    for name in required:
        yield {key: value for key, value in needed.items() if key != name}
    for name, schema in properties.items():
        low, high = schema.get("minimum"), schema.get("maximum")
        wrong: list[Any] = []
        if low is not None or high is not None:
            near = high if low is None else low
            wrong += [-1] if low is not None and low > -1 else []
            wrong += [low - 1] if low is not None else []
            wrong += [high + 1, 1e9] if high is not None else []
            wrong += [near + 0.5] if schema["type"] == "integer" else []
            wrong += [str(near), True, [near], {}, None]
        if "enum" in schema:
            odd: tuple[Any, ...] = (False, True, 0, 1, "true", "", None, [])
            wrong += [one for one in odd if not _among(one, schema["enum"])]
        for value in wrong:
            yield {**needed, name: value}


def _among(value: Any, allowed: Sequence[Any]) -> bool:
    return any(type(value) is type(one) and value == one for one in allowed)

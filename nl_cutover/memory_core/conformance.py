"""Runs the cases of `checks/conformance.json` against a Memory Core: the reference, or a real one.

`checks/conformance-SHAPE.json` holds by a case's name what an older server answers instead.

A case is one request and what is expected of its answer. Requests: `tool` with `arguments` (left out: no such key),
`rpc` (a JSON-RPC request without id), `notification`, `batch`, `raw` (body text), or none for GET and DELETE; `token`
and `session` say which of those is sent, `headers` overrides (null removes one), `outside` posts beside the ingress'
path, `body_bytes` pads a save to that size. In expectations a string may be a matcher: `<any>`, `<string>`, `<uuid>`,
`<ms>` (an epoch of this century), `<uuid:NAME>` and `<ms:NAME>` keep the value, and `${NAME}` stands for a kept value
in later cases. `{"$either": [...], "$why": ...}` lists what real servers answer under other settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import httpx
import msgspec

from ..errors import CredentialsError, UnreachableError
from ..resources import resource
from ..verdicts import ExitCode
from .jsontext import parse, stringify
from .shapes import ShapeName

NOTICE = (
    "The cases save archives and admit telemetry. No operation deletes either: "
    "up to 10 small archives and 5 telemetry rows stay on that Memory Core."
)

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CENTURY_MS = (946_684_800_000, 4_102_444_800_000)
_TIMEOUT = httpx.Timeout(30.0, connect=5.0)


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    method: str = "POST"
    tool: str | None = None
    arguments: dict[str, Any] | None = None
    rpc: dict[str, Any] | None = None
    notification: dict[str, Any] | None = None
    batch: list[dict[str, Any]] | None = None
    raw: str | None = None
    token: Literal["good", "wrong", "basic", "none"] = "good"
    session: Literal["current", "unknown", "none"] = "current"
    headers: dict[str, str | None] = {}
    outside: bool = False
    body_bytes: int | None = None


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`structured` and `error_text` are results of a tool, `result(s)` and `error` of JSON-RPC, `json` is a body."""

    status: Any = 200
    content_type: str | None = None
    headers: dict[str, str] = {}
    empty: bool = False
    json: Any = msgspec.UNSET
    structured: Any = msgspec.UNSET
    error_text: Any = msgspec.UNSET
    result: Any = msgspec.UNSET
    results: Any = msgspec.UNSET
    error: Any = msgspec.UNSET
    tools: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    request: Request
    expect: Expectation


class _Document(msgspec.Struct, frozen=True):
    cases: list[Case]


class _Variant(msgspec.Struct, frozen=True):
    expect: dict[str, Expectation]


class Verdict(StrEnum):
    AGREES = "agrees"
    AGREES_OTHERWISE = "agrees otherwise"  # an answer that real servers give under other settings
    DIFFERS = "differs"
    SKIPPED = "skipped"


class Finding(msgspec.Struct, frozen=True):
    """How one case came out. `detail` is empty when the answer is the observed one."""

    case: str
    verdict: Verdict
    detail: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run. `verdict`: `agrees` or `differs`."""

    schema: str = "nl-cutover/conformance/1"
    url: str
    shape: str
    verdict: str
    exit_code: int
    findings: list[Finding]

    @classmethod
    def of(cls, url: str, findings: list[Finding], shape: ShapeName = ShapeName.FINAL) -> Report:
        code = exit_code(findings)
        verdict = Verdict.DIFFERS if code else Verdict.AGREES
        return cls(url=url, shape=shape, verdict=str(verdict), exit_code=int(code), findings=findings)

    @property
    def agreed(self) -> int:
        return sum(finding.verdict in (Verdict.AGREES, Verdict.AGREES_OTHERWISE) for finding in self.findings)


def load_cases(shape: ShapeName = ShapeName.FINAL) -> list[Case]:
    """The packaged cases, in the order in which they must run."""
    cases = msgspec.json.decode(resource("checks", "conformance.json").read_bytes(), type=_Document).cases
    expect = {} if shape is ShapeName.FINAL else otherwise(shape)
    return [msgspec.structs.replace(case, expect=expect.get(case.name, case.expect)) for case in cases]


def otherwise(shape: ShapeName) -> dict[str, Expectation]:
    """By a case's name: what a server of an older shape answers where it differs from the final one."""
    return msgspec.json.decode(resource("checks", f"conformance-{shape}.json").read_bytes(), type=_Variant).expect


def exit_code(findings: list[Finding]) -> ExitCode:
    differs = any(finding.verdict is Verdict.DIFFERS for finding in findings)
    return ExitCode.DIFFERENCE if differs or not findings else ExitCode.PROVED


def run(url: str, token: str, cases: list[Case]) -> Iterator[Finding]:
    """Run the cases in order and yield a finding for each.

    Raises UnreachableError and CredentialsError before the first case.
    """
    with httpx.Client(trust_env=False, timeout=_TIMEOUT, follow_redirects=False) as client:
        conversation = _Conversation(client, url, token)
        conversation.knock()
        for case in cases:
            yield conversation.examine(case)


class _Mismatch(Exception):
    pass


class _Conversation:
    def __init__(self, client: httpx.Client, url: str, token: str) -> None:
        self._client = client
        self._url = url
        self._token = token
        self._session: str | None = None
        self._request_id = 0
        self._kept: dict[str, Any] = {}
        self._otherwise: list[str] = []

    def knock(self) -> None:
        client_info = {"name": "nl-cutover-conformance", "version": "1"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client_info}
        opening = Request(rpc={"method": "initialize", "params": params}, session="none")
        try:
            answer = self._send(opening, self._url)
        except httpx.HTTPError as failure:
            raise UnreachableError(
                f"{self._url} does not answer: {failure}", "check the URL and that the Memory Core runs"
            ) from None
        if answer.status_code in (401, 403):
            raise CredentialsError(f"{self._url} refuses the token: {answer.text[:200]}", "check --token-env")
        if (session := answer.headers.get("mcp-session-id")) is not None:
            self._session = session
            with suppress(httpx.HTTPError):
                self._send(Request(method="DELETE"), self._url)
        self._session = None

    def examine(self, case: Case) -> Finding:
        url = self._url
        if case.request.outside:
            parts = urlsplit(url)
            if not parts.path.startswith("/mc/"):
                return Finding(case.name, Verdict.SKIPPED, "this URL does not go through an ingress")
            url = urlunsplit(parts._replace(path=parts.path.removeprefix("/mc")))
        self._otherwise = []
        try:
            answer = self._send(case.request, url)
            self._compare(case.expect, answer)
        except httpx.HTTPError as failure:
            return Finding(case.name, Verdict.DIFFERS, f"no answer: {failure!r}")
        except _Mismatch as difference:
            return Finding(case.name, Verdict.DIFFERS, str(difference))
        if case.request.rpc is not None and case.request.rpc["method"] == "initialize":
            self._session = answer.headers.get("mcp-session-id", self._session)
        if self._otherwise:
            return Finding(case.name, Verdict.AGREES_OTHERWISE, "; ".join(self._otherwise))
        return Finding(case.name, Verdict.AGREES)

    def _send(self, request: Request, url: str) -> httpx.Response:
        headers: dict[str, str | None] = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json" if request.method == "POST" else None,
            "authorization": {
                "good": f"Bearer {self._token}",
                "wrong": f"Bearer {uuid4()}",
                "basic": "Basic eDp5",
                "none": None,
            }[request.token],
            "mcp-session-id": {"current": self._session, "unknown": str(uuid4()), "none": None}[request.session],
            **request.headers,
        }
        sent = {name: value for name, value in headers.items() if value is not None}
        return self._client.request(request.method, url, headers=sent, content=self._body(request))

    def _body(self, request: Request) -> bytes | None:
        if request.raw is not None:
            return request.raw.encode()
        if request.notification is not None:
            return _encode({"jsonrpc": "2.0", **request.notification})
        if request.batch is not None:
            return _encode([self._numbered(message) for message in request.batch])
        if request.rpc is not None:
            return _encode(self._numbered(request.rpc))
        if request.tool is None:
            return None
        params: dict[str, Any] = {"name": request.tool}
        if request.arguments is not None:
            params["arguments"] = self._filled(request.arguments)
        message = self._numbered({"method": "tools/call", "params": params})
        if request.body_bytes is not None:
            first = params["arguments"]["transaction"]["ops"][0]
            first["padding"] = ""
            first["padding"] = "x" * (request.body_bytes - len(_encode(message)))
        return _encode(message)

    def _numbered(self, message: dict[str, Any]) -> dict[str, Any]:
        self._request_id += 1
        return {"jsonrpc": "2.0", "id": self._request_id, **message}

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._filled(item) for item in value]
        if isinstance(value, str) and value.startswith("${"):
            return self._kept.get(value[2:-1], "never-kept")
        return value

    def _compare(self, expect: Expectation, answer: httpx.Response) -> None:
        self._match(expect.status, answer.status_code, "status")
        content_type = answer.headers.get("content-type", "").split(";")[0]
        if expect.content_type is not None:
            self._match(expect.content_type, content_type, "content-type")
        for name, expected in expect.headers.items():
            self._match(expected, answer.headers.get(name), name)
        if expect.empty:
            self._match("", answer.text, "body")
        if expect.json is not msgspec.UNSET:
            self._match(expect.json, _parsed(answer.text), "body")
        parts = (expect.structured, expect.error_text, expect.result, expect.results, expect.error, expect.tools)
        if any(part is not msgspec.UNSET for part in parts):
            self._match("text/event-stream", content_type, "content-type")
            self._compare_messages(expect, _events(answer.text))

    def _compare_messages(self, expect: Expectation, messages: list[Any]) -> None:
        if expect.results is not msgspec.UNSET:
            first = self._request_id - len(expect.results) + 1
            wanted = [{"result": r, "jsonrpc": "2.0", "id": first + n} for n, r in enumerate(expect.results)]
            self._match(wanted, sorted(messages, key=lambda message: str(message.get("id"))), "messages")
            return
        self._match(1, len(messages), "number of messages")
        message = messages[0]
        frame = {"jsonrpc": "2.0", "id": self._request_id}
        if expect.error is not msgspec.UNSET:
            self._match({**frame, "error": expect.error}, message, "message")
        elif expect.result is not msgspec.UNSET:
            self._match({**frame, "result": expect.result}, message, "message")
        elif expect.error_text is not msgspec.UNSET:
            content = [{"type": "text", "text": expect.error_text}]
            self._match({**frame, "result": {"content": content, "isError": True}}, message, "message")
        elif expect.structured is not msgspec.UNSET:
            result = message.get("result", {}) if isinstance(message, dict) else {}
            told = result.get("structuredContent")
            told = None if told == {"result": None} else told  # structured content is an object, text need not be
            content = [{"type": "text", "text": stringify(told, pretty=True)}]
            wanted_result = {"content": content, "structuredContent": expect.structured, "isError": False}
            self._match({**frame, "result": wanted_result}, message, "message")
        elif isinstance(expect.tools, dict):
            listed = {tool["name"]: tool["inputSchema"] for tool in message.get("result", {}).get("tools", [])}
            for name, schema in expect.tools.items():
                self._match(schema, listed.get(name), f"inputSchema of {name}")

    def _match(self, expected: Any, actual: Any, path: str) -> None:
        if isinstance(expected, dict) and "$either" in expected:
            self._match_either(expected, actual, path)
        elif isinstance(expected, dict) and isinstance(actual, dict):
            for key in expected.keys() | actual.keys():
                if (key in expected) != (key in actual):
                    raise _Mismatch(f"{path}.{key} is {'absent' if key in expected else 'not expected'}")
            for key, value in expected.items():
                self._match(value, actual[key], f"{path}.{key}")
        elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
            for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
                self._match(one, other, f"{path}[{index}]")
        elif not self._fits(expected, actual):
            raise _Mismatch(f"{path}: expected {_short(expected)}, got {_short(actual)}")

    def _match_either(self, expected: dict[str, Any], actual: Any, path: str) -> None:
        observed, *others = expected["$either"]
        try:
            self._match(observed, actual, path)
        except _Mismatch:
            for other in others:
                with suppress(_Mismatch):
                    self._match(other, actual, path)
                    self._otherwise.append(expected["$why"])
                    return
            raise

    def _fits(self, expected: Any, actual: Any) -> bool:
        if not isinstance(expected, str):
            return type(expected) is type(actual) and bool(expected == actual)
        if expected.startswith("${"):
            return expected[2:-1] in self._kept and bool(self._kept[expected[2:-1]] == actual)
        matcher, _, name = expected[1:-1].partition(":") if expected[:1] == "<" else ("", "", "")
        match matcher:
            case "any":
                fits = True
            case "string":
                fits = isinstance(actual, str)
            case "uuid":
                fits = isinstance(actual, str) and _UUID.fullmatch(actual) is not None
            case "ms":
                fits = type(actual) is int and _CENTURY_MS[0] < actual < _CENTURY_MS[1]
            case _:
                fits = expected == actual
        if fits and name:
            self._kept[name] = actual
        return fits


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _parsed(text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        raise _Mismatch(f"not JSON: {_short(text)}") from None


def _events(text: str) -> list[Any]:
    # Only LF ends a line: U+2028 and the like stand raw inside the data, and str.splitlines() would cut there.
    return [_parsed(line.removeprefix("data: ")) for line in text.split("\n") if line.startswith("data: ")]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else text[:100] + "…"

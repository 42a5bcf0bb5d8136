"""`check surface`: every leak is seen, none is invented, and the exit code says which."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from nl_cutover.cli import main
from nl_cutover.contract.surface import HARNESS, MEMORY_CORE, NEURAL_LINK, Tool, read_surface
from nl_cutover.denial.surface import Operation, Reply, Report, Verdict, probe
from nl_cutover.memory_core.auth import Identity
from nl_cutover.memory_core.neural_link import NeuralLink
from nl_cutover.memory_core.surface import Answer, Desk, load_document
from nl_cutover.testing import EmbeddedMemoryCore, embedded_memory_core

PROBE = "local-readonly-probe"
SURFACE = read_surface(load_document(NEURAL_LINK))


def run(desk: Desk) -> Report:
    """The probe against a desk in this process: what a client would be told, without the wire."""

    def ask(method: str, params: Mapping[str, Any]) -> Reply:
        if method == "tools/list":
            return Reply(json.loads(desk.listing(params)))
        told = json.loads(desk.call(params, params["name"], params["arguments"], Identity()).result())
        return Reply(None, told["content"][0]["text"]) if told["isError"] else Reply(told)

    def operations(tools: Mapping[str, Tool]) -> list[Operation]:
        return [Operation(tool.name, tool.input_schema, tool.tier == "read") for tool in tools.values()]

    inside = SURFACE.profiles[PROBE]
    others = {name: tool for name, tool in SURFACE.tools.items() if name not in inside}
    return probe(ask, operations(inside), operations(others), PROBE, "here")


class Leaky(Desk):
    """A desk with one hole. `kind` says where."""

    def __init__(self, kind: str) -> None:
        super().__init__(SURFACE, NeuralLink(0), PROBE)
        self.kind = kind
        self.open = Desk(SURFACE, NeuralLink(0))

    def listing(self, params: Mapping[str, Any]) -> str:
        asked = params.get("_meta", {}).get("neoToolProjection")
        if self.kind == "lists all" or (self.kind == "meta widens the list" and asked == "full"):
            return self.open.listing({})
        said = super().listing(params)
        if self.kind == "lists a schema of its own":
            return said.replace('"maximum":2', '"maximum":3')
        if self.kind == "lists less":
            return json.dumps({"tools": json.loads(said)["tools"][1:]})
        return said

    def call(self, params: Mapping[str, Any], name: str, arguments: Any, caller: Identity) -> Answer:
        asked, name_here = params.get("_meta", {}).get("neoToolProjection"), name
        match self.kind:
            case "calls all":
                return self.open.call({}, name, arguments, caller)
            case "one write" if name == "remove_component":
                return self.open.call({}, name, arguments, caller)
            case "meta widens the call" if asked == HARNESS:
                return self.open.call({}, name, arguments, caller)
            case "resolves aliases":
                name_here = name.rpartition("__")[2]
            case "trims names":
                name_here = name.strip()
            case "ignores case":
                name_here = name.lower()
            case "constraints only listed" if name == "get_component_tree":
                return self.open.call({}, name, arguments, caller)
            case "depth 0" if arguments.get("depth") == 0:
                return self.open.call({}, name, arguments, caller)
            case "number as text" if isinstance(arguments.get("depth"), str):
                return self.open.call({}, name, {"depth": 1}, caller)
            case "true is 1" if arguments.get("depth") is True:
                return self.open.call({}, name, {"depth": 1}, caller)
            case "not lean" if arguments.get("lean") is False:
                return self.open.call({}, name, arguments, caller)
            case "refuses a read" if name == "healthcheck":
                return super().call(params, "no such tool", arguments, caller)
        return super().call(params, name_here, arguments, caller)


def test_a_surface_that_holds_is_proved() -> None:
    report = run(Desk(SURFACE, NeuralLink(0), PROBE))
    assert (report.verdict, report.exit_code) == ("holds", 0)
    assert [finding for finding in report.findings if finding.detail] == []
    cases = {finding.case for finding in report.findings}
    for told in (
        "{}",
        '{"depth":-1}',
        '{"depth":0}',
        '{"depth":3}',
        '{"depth":1.5}',
        '{"depth":"1"}',
        '{"depth":true}',
    ):
        assert f"refuse get_component_tree {told}" in cases
    assert 'refuse get_component_tree {"depth":1,"lean":false}' in cases
    assert {'call get_component_tree {"depth":1}', 'call get_component_tree {"depth":2}'} <= cases
    assert [p.operation for p in report.parity if p.listed and p.callable] == list(SURFACE.profiles[PROBE])


@pytest.mark.parametrize(
    ("kind", "verdict", "case"),
    [
        ("lists all", Verdict.LEAKS, "list, no _meta"),
        ("meta widens the list", Verdict.LEAKS, 'list, _meta {"neoToolProjection":"full"}'),
        ("lists a schema of its own", Verdict.LEAKS, "schema of get_component_tree"),
        ("lists less", Verdict.LACKS, "list, no _meta"),
        ("calls all", Verdict.LEAKS, "refuse reload_page"),
        ("one write", Verdict.LEAKS, "refuse remove_component"),
        (
            "meta widens the call",
            Verdict.LEAKS,
            f'refuse create_component with _meta {{"neoToolProjection":"{HARNESS}"}}',
        ),
        ("resolves aliases", Verdict.LEAKS, "refuse 'neural-link__healthcheck'"),
        ("trims names", Verdict.LEAKS, "refuse 'healthcheck\\n'"),
        ("ignores case", Verdict.LEAKS, "refuse 'GET_WORKER_TOPOLOGY'"),
        ("constraints only listed", Verdict.LEAKS, 'refuse get_component_tree {"depth":3}'),
        ("depth 0", Verdict.LEAKS, 'refuse get_component_tree {"depth":0}'),
        ("number as text", Verdict.LEAKS, 'refuse get_component_tree {"depth":"1"}'),
        ("true is 1", Verdict.LEAKS, 'refuse get_component_tree {"depth":true}'),
        ("not lean", Verdict.LEAKS, 'refuse get_component_tree {"depth":1,"lean":false}'),
        ("refuses a read", Verdict.LACKS, "call healthcheck {}"),
    ],
)
def test_every_kind_of_leak_is_seen(kind: str, verdict: Verdict, case: str) -> None:
    """The controls: a server with that one hole must not pass."""
    report = run(Leaky(kind))
    assert (report.verdict, report.exit_code) == (verdict, 8)
    assert case in [finding.case for finding in report.findings if finding.verdict is verdict]


def test_an_operation_on_the_second_page_of_the_list_is_seen() -> None:
    desk = Desk(SURFACE, NeuralLink(0), PROBE)

    def ask(method: str, params: Mapping[str, Any]) -> Reply:
        if params.get("cursor") == "2":
            return Reply({"tools": [{"name": "reload_page"}]})
        if method == "tools/list":
            return Reply({**json.loads(desk.listing(params)), "nextCursor": "2"})
        told = json.loads(desk.call(params, params["name"], params["arguments"], Identity()).result())
        return Reply(None, told["content"][0]["text"]) if told["isError"] else Reply(told)

    view = SURFACE.view(PROBE)
    inside = [Operation(tool.name, tool.input_schema, reads=True) for tool in view.values()]
    report = probe(ask, inside, [], PROBE, "here")
    assert report.verdict == "leaks"
    assert "also lists reload_page" in {finding.detail for finding in report.findings}


def test_probing_a_leaky_server_changes_nothing_there() -> None:
    backend = NeuralLink(0)
    desk = Desk(SURFACE, backend)
    before = desk.call({}, "get_component_tree", {"lean": False}, Identity()).structured
    assert run(desk).verdict == "leaks"
    assert desk.call({}, "get_component_tree", {"lean": False}, Identity()).structured == before


def test_a_write_that_no_argument_stops_is_not_called_and_nothing_is_proved() -> None:
    asked: list[str] = []
    sent: list[tuple[str, Any]] = []

    def ask(method: str, params: Mapping[str, Any]) -> Reply:
        asked.append(str(params.get("name")))
        sent.append((asked[-1], params.get("arguments")))
        return Reply({"tools": []}) if method == "tools/list" else Reply(None, "Policy Refused executing it")

    wipe = Operation("wipe", {"type": "object", "properties": {}}, reads=False)
    report = probe(ask, [], [wipe], "none", "here")
    assert (report.verdict, report.exit_code) == ("unproven", 4)
    assert "wipe" not in asked
    level = {"type": "object", "properties": {"level": {"type": "integer", "maximum": 2}}, "required": ["level"]}
    report = probe(ask, [Operation("drain", level, reads=False)], [], "none", "here")
    assert Verdict.UNPROVEN in {finding.verdict for finding in report.findings}
    assert {json.dumps(arguments) for name, arguments in sent if name == "drain"} == {'{"level": ""}'}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, EmbeddedMemoryCore]]:
    words = {
        "probe": ("--surface", "neural-link", "--tool-projection-mode", PROBE),
        "open": ("--surface", "neural-link"),
        "recorder": ("--tool-projection-mode", "nl-recorder"),
    }
    made = {n: embedded_memory_core(tmp_path_factory.mktemp(n), tokens="t", arguments=w) for n, w in words.items()}
    yield {name: server.__enter__() for name, server in made.items()}
    for server in made.values():
        server.__exit__(None, None, None)


def check(monkeypatch: pytest.MonkeyPatch, *words: str, token: str = "t") -> int:
    monkeypatch.setenv("NEO_MCP_REMOTE_TOKEN", token)
    with pytest.raises(SystemExit) as end:
        main(["check", "surface", *words])
    return int(end.value.code or 0)


@pytest.mark.parametrize(
    ("server", "profile", "code", "verdict"),
    [
        ("probe", PROBE, 0, "holds"),
        ("recorder", "nl-recorder", 0, "holds"),
        ("open", PROBE, 8, "leaks"),
        ("probe", "nl-recorder", 8, "leaks"),
    ],
)
def test_the_verb_against_a_live_server(
    servers: dict[str, EmbeddedMemoryCore],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    server: str,
    profile: str,
    code: int,
    verdict: str,
) -> None:
    assert check(monkeypatch, "--url", servers[server].url, "--profile", profile, "--format", "json") == code
    report = json.loads(capsys.readouterr().out)
    assert (report["schema"], report["verdict"], report["exit_code"]) == ("nl-cutover/surface/1", verdict, code)
    assert {"operation", "in_profile", "listed", "callable"} == set(report["parity"][0])


def test_the_table_shows_parity_and_the_markdown_fits_a_channel(
    servers: dict[str, EmbeddedMemoryCore], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(monkeypatch, "--url", servers["probe"].url, "--profile", PROBE) == 0
    printed = capsys.readouterr().out
    assert "nl-cutover check surface: HOLDS (exit 0" in printed
    assert "get_component_tree       yes        yes       yes" in printed
    assert "reload_page              no         no        no" in printed
    assert check(monkeypatch, "--url", servers["open"].url, "--profile", PROBE, "--format", "markdown") == 8
    printed = capsys.readouterr().out
    assert len(printed) < 2000
    assert max(map(len, printed.splitlines())) <= 80


def test_a_document_of_ones_own_declares_the_profile(
    tmp_path: Path,
    servers: dict[str, EmbeddedMemoryCore],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = load_document(MEMORY_CORE)
    document["x-neo-exact-tool-profiles"]["profiles"]["health"] = {"tools": {"healthcheck": {}}}
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(document))
    words = ("--url", servers["recorder"].url, "--document", str(path))
    assert check(monkeypatch, *words, "--profile", "health") == 8
    assert check(monkeypatch, *words, "--profile", "nl-recorder") == 0
    capsys.readouterr()
    path.write_text("[]")
    assert check(monkeypatch, *words, "--profile", "health") == 2
    assert "is no OpenAPI document" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "token", "code", "told"),
    [
        (("--profile", "nobody"), "t", 2, "declared are: nl-recorder, local-readonly-probe"),
        (("--profile", HARNESS), "t", 2, "no exact profile"),
        (("--profile", PROBE, "--url", "http://127.0.0.1:9/mc/mcp"), "t", 5, "gave no answer"),
        (("--profile", PROBE), "wrong", 6, "refuses the token"),
        (("--profile", PROBE), "", 6, "NEO_MCP_REMOTE_TOKEN"),
    ],
)
def test_what_stops_a_probe(
    servers: dict[str, EmbeddedMemoryCore],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    token: str,
    code: int,
    told: str,
) -> None:
    url = () if "--url" in words else ("--url", servers["probe"].url)
    assert check(monkeypatch, *words, *url, token=token) == code
    printed = capsys.readouterr()
    assert told in printed.err
    assert printed.out == ""

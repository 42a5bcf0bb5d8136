"""Exact profiles, one test for each of the acceptance criteria of neo#15186: declared once, forced, closed."""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nl_cutover.contract import wire
from nl_cutover.contract.surface import HARNESS, MEMORY_CORE, MODE_ENV, NEURAL_LINK, read_surface
from nl_cutover.memory_core.auth import Identity
from nl_cutover.memory_core.jsontext import parse
from nl_cutover.memory_core.neural_link import NeuralLink
from nl_cutover.memory_core.surface import Answer, Desk, load_document
from nl_cutover.testing import EmbeddedMemoryCore, embedded_memory_core

from ..memory_core.mcp_caller import Caller
from . import recorded

PROBE = "local-readonly-probe"
THREE = ["healthcheck", "get_worker_topology", "get_component_tree"]
METAS: list[Any] = [
    None,
    {},
    *({"neoToolProjection": m} for m in ("full", HARNESS, "nl-recorder", "", None, 1, {}, [])),
]
PACKAGE = Path(recorded.__file__).parents[2] / "nl_cutover"
DOCUMENTS = {"neural-link": NEURAL_LINK, "memory-core": MEMORY_CORE}


def desk(document: dict[str, Any], mode: str | None) -> Desk:
    return Desk(read_surface(document), NeuralLink(0), mode)


def names(desk: Desk, meta: Any = None) -> list[str]:
    listed = json.loads(desk.listing({} if meta is None else {"_meta": meta}))
    return [tool["name"] for tool in listed["tools"]]


def call(desk: Desk, name: str, arguments: Any = None, meta: Any = None) -> Answer:
    params = {} if meta is None else {"_meta": meta}
    return desk.call(params, name, {} if arguments is None else arguments, Identity())


def policy_refused(answer: Answer) -> bool:
    told = json.loads(answer.result())
    return told["isError"] is True and told.get("structuredContent", {}).get("code") == "POLICY_REFUSED"


@pytest.fixture
def neural_link() -> dict[str, Any]:
    return load_document(NEURAL_LINK)


def with_profile(document: dict[str, Any], profile: Any, name: str = PROBE) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    changed["x-neo-exact-tool-profiles"]["profiles"] = {name: profile}
    return changed


Serve = Callable[..., Caller]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """`serve("--surface", "neural-link", ...)`: a caller of such a server, in a process of its own."""
    running: list[Any] = []

    def start(*words: str, env: str | None = None) -> Caller:
        environ = {} if env is None else {MODE_ENV: env}
        folder = tmp_path_factory.mktemp("nl")
        running.append(embedded_memory_core(folder, tokens="t", arguments=words, environ=environ))
        core: EmbeddedMemoryCore = running[-1].__enter__()
        return Caller(core.url, core.token)

    yield start
    for server in running:
        server.__exit__(None, None, None)


@pytest.fixture(scope="module")
def probed(serve: Serve) -> Caller:
    return serve("--surface", "neural-link", "--tool-projection-mode", PROBE)


def rpc(caller: Caller, method: str, **params: Any) -> Any:
    answer = caller.post(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    assert answer.status_code == 200
    return json.loads(answer.text.removeprefix("event: message\ndata: "))["result"]


# The document is the sole authority.


def test_the_probe_profile_is_exactly_three_operations(probed: Caller) -> None:
    assert [tool["name"] for tool in rpc(probed, "tools/list")["tools"]] == THREE
    for name, arguments in (("healthcheck", {}), ("get_worker_topology", {}), ("get_component_tree", {"depth": 1})):
        assert rpc(probed, "tools/call", name=name, arguments=arguments)["isError"] is False


def test_the_recorder_profile_is_exactly_the_four_operations(serve: Serve) -> None:
    caller = serve("--tool-projection-mode", "nl-recorder")
    assert [tool["name"] for tool in rpc(caller, "tools/list")["tools"]] == list(wire.OPERATIONS)
    archive = caller.save()
    assert caller.get(archive)["status"] == "found"
    assert caller.mark(archive)["updated"] is True
    assert caller.call(wire.ADMIT, {"actions": []}) == {"admitted": 0, "refused": 0}
    for name in ("healthcheck", "get_mcp_tool_handbook", "add_memory", f"memory-core__{wire.SAVE}", wire.SAVE.upper()):
        refused = rpc(caller, "tools/call", name=name, arguments={})
        assert refused["isError"] is True
        assert refused["structuredContent"]["code"] == "POLICY_REFUSED"


@pytest.mark.parametrize("name", THREE)
def test_an_operation_that_leaves_the_profile_leaves_list_and_call(neural_link: dict[str, Any], name: str) -> None:
    profile = copy.deepcopy(neural_link["x-neo-exact-tool-profiles"]["profiles"][PROBE])
    del profile["tools"][name]
    changed = desk(with_profile(neural_link, profile), PROBE)
    assert names(changed) == [other for other in THREE if other != name]
    assert policy_refused(call(changed, name, {"depth": 1}))


def test_an_operation_that_joins_the_profile_joins_list_and_call(neural_link: dict[str, Any]) -> None:
    changed = desk(with_profile(neural_link, {"tools": {"reload_page": {}}}), PROBE)
    assert names(changed) == ["reload_page"]
    assert parse(call(changed, "reload_page").structured or "") == {"success": True}
    assert policy_refused(call(changed, "healthcheck"))


def test_no_second_list_of_the_operations_stands_anywhere() -> None:
    """What is left permits nothing: tables of handlers, what a client sends, and `wire.OPERATIONS`, held to the profile
    above."""
    profiles = {n: set(p) for d in DOCUMENTS.values() for n, p in read_surface(load_document(d)).profiles.items()}
    assert profiles[PROBE] == set(THREE)
    handlers = {"memory_core/operations.py:Dict", "memory_core/neural_link.py:Dict"}
    allowed = handlers | {"ingress/preflight.py:Dict", "contract/wire.py:Tuple"}
    constants = {name: value for name, value in vars(wire).items() if isinstance(value, str)}

    def words(node: ast.AST) -> set[str]:
        inner = list(ast.walk(node))
        told = {n.value for n in inner if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        named = [n.id for n in inner if isinstance(n, ast.Name)] + [
            n.attr for n in inner if isinstance(n, ast.Attribute)
        ]
        return told | {constants[name] for name in named if name in constants}

    found = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict) and any(
                len(profile & words(node)) > len(profile) / 2 for profile in profiles.values()
            ):
                found.add(f"{file.relative_to(PACKAGE)}:{type(node).__name__}")
    assert found == allowed
    texts = [
        f for f in PACKAGE.rglob("*") if f.suffix in (".json", ".toml", ".yaml") and THREE[2] in f.read_text("utf-8")
    ]
    assert [f.name for f in texts] == [NEURAL_LINK.name]


# Forced at launch.


@pytest.mark.parametrize("meta", METAS, ids=repr)
def test_a_clients_meta_changes_nothing_where_a_mode_is_forced(probed: Caller, meta: Any) -> None:
    extra = {} if meta is None else {"_meta": meta}
    assert [tool["name"] for tool in rpc(probed, "tools/list", **extra)["tools"]] == THREE
    refused = rpc(
        probed, "tools/call", name="set_instance_properties", arguments={"id": "x", "properties": {}}, **extra
    )
    assert refused["structuredContent"]["code"] == "POLICY_REFUSED"
    assert refused["content"][0]["text"] == (
        "Policy Refused executing set_instance_properties: "
        f'Tool "set_instance_properties" is not visible in the {PROBE} projection.'
    )
    deep = rpc(probed, "tools/call", name="get_component_tree", arguments={"depth": 3}, **extra)
    assert deep["isError"] is True


def test_the_environment_forces_where_the_option_is_silent_and_the_option_wins(serve: Serve) -> None:
    words = ("--surface", "neural-link")
    assert [t["name"] for t in rpc(serve(*words, env=PROBE), "tools/list")["tools"]] == THREE
    both = serve(*words, "--tool-projection-mode", PROBE, env=HARNESS)
    assert [t["name"] for t in rpc(both, "tools/list")["tools"]] == THREE
    assert rpc(serve(*words, env=""), "tools/list")["tools"] == [], "an empty mode is a mode, and shows nothing"


# Unknown and malformed profiles fail closed.


@pytest.mark.parametrize("mode", ["unknown-profile", "", " ", f" {PROBE}", f"{PROBE} ", PROBE.upper(), "__proto__"])
def test_an_unknown_profile_shows_nothing_and_refuses_everything(neural_link: dict[str, Any], mode: str) -> None:
    closed = desk(neural_link, mode)
    assert names(closed) == []
    assert all(policy_refused(call(closed, name, {"depth": 1})) for name in read_surface(neural_link).tools)


def test_a_server_launched_with_an_unknown_profile_says_so_and_refuses_everything(tmp_path: Path) -> None:
    words = ("--tool-projection-mode", "nl-recorde")
    with embedded_memory_core(tmp_path, tokens="t", arguments=words) as core:
        caller = Caller(core.url, core.token)
        assert rpc(caller, "tools/list")["tools"] == []
        assert (
            rpc(caller, "tools/call", name="healthcheck", arguments={})["structuredContent"]["code"] == "POLICY_REFUSED"
        )
    assert "no projection 'nl-recorde'" in (tmp_path / "memory-core.log").read_text()
    assert "there are: harness-embedded, nl-recorder" in (tmp_path / "memory-core.log").read_text()


def _depth(**bound: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"depth": {"type": "integer", **bound}}}
    return {"tools": {"healthcheck": {}, "get_component_tree": {"inputSchema": schema}}}


MALFORMED: dict[str, Any] = {
    "a bound that bounds nothing": _depth(maximum=float("nan")),
    "an infinite bound": _depth(minimum=float("-inf")),
    "a constraint under another name": {"tools": {"healthcheck": {}, "get_component_tree": {"inputschema": {}}}},
    "no object": [],
    "no tools": {"description": "none"},
    "tools no object": {"tools": ["healthcheck"]},
    "no tool": {"tools": {}},
    "unknown operation": {"tools": {"healthcheck": {}, "not_an_operation": {}}},
    "entry no object": {"tools": {"healthcheck": True}},
    "schema no object": {"tools": {"healthcheck": {"inputSchema": []}}},
    "schema of a string": {"tools": {"healthcheck": {"inputSchema": {"type": "string"}}}},
    "schema null": {"tools": {"healthcheck": {"inputSchema": None}}},
    "broken reference": {"tools": {"healthcheck": {"inputSchema": {"$ref": "#/components/schemas/Missing"}}}},
    "reference in a circle": {"tools": {"healthcheck": {"inputSchema": {"$ref": "#/components/schemas/Circle"}}}},
    "untyped property": {"tools": {"healthcheck": {"inputSchema": {"type": "object", "properties": {"a": {}}}}}},
    "constraint that no call enforces": {
        "tools": {
            "healthcheck": {"inputSchema": {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}}}
        }
    },
    "bound on a string": {
        "tools": {
            "healthcheck": {"inputSchema": {"type": "object", "properties": {"a": {"type": "string", "minimum": 1}}}}
        }
    },
    "requires what it does not declare": {
        "tools": {"healthcheck": {"inputSchema": {"type": "object", "required": ["a"]}}}
    },
}


@pytest.mark.parametrize("fault", MALFORMED)
def test_a_malformed_profile_counts_as_none_as_a_whole(neural_link: dict[str, Any], fault: str) -> None:
    document = with_profile(neural_link, MALFORMED[fault])
    document["components"]["schemas"]["Circle"] = {"$ref": "#/components/schemas/Circle"}
    closed = desk(document, PROBE)
    assert names(closed) == []
    assert policy_refused(call(closed, "healthcheck"))


@pytest.mark.parametrize("name", ["", " a", "a ", HARNESS])
def test_a_profile_whose_name_is_empty_padded_or_reserved_counts_as_none(
    neural_link: dict[str, Any], name: str
) -> None:
    document = with_profile(neural_link, {"tools": {"reload_page": {}}}, name)
    assert read_surface(document).profiles == {}
    assert "reload_page" not in names(desk(document, name))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["object", "string", "integer", "#/x", "tools"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["tools", *THREE, "inputSchema", "type", "properties", "required", "enum", "$ref", "items"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=16,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["depth", "lean", "tools", "rootId"]), JSON)


@given(JSON, st.sampled_from([*THREE, "reload_page"]), ARGUMENTS)
def test_whatever_is_declared_list_and_call_agree(profile: Any, name: str, arguments: dict[str, Any]) -> None:
    made = desk(with_profile(load_document(NEURAL_LINK), profile), PROBE)
    assert policy_refused(call(made, name, arguments)) == (name not in names(made))


# What the probe may ask of the tree.

REFUSED: list[dict[str, Any]] = [
    {},
    *({"depth": depth} for depth in (-1, 0, 3, 1.5, "1", True, None, [1], 2**60, 1e308)),
    *({"depth": 1, "lean": lean} for lean in (False, None, "true", 1, [])),
    {"lean": True},
    {"Depth": 1},
]


@pytest.mark.parametrize("arguments", REFUSED, ids=repr)
def test_the_tree_is_refused_beyond_two_levels_and_beyond_lean(probed: Caller, arguments: dict[str, Any]) -> None:
    answer = rpc(probed, "tools/call", name="get_component_tree", arguments=arguments)
    assert answer["isError"] is True
    assert answer["content"][0]["text"].startswith("Error executing get_component_tree: [")


def test_the_tree_is_given_down_to_two_levels_and_lean(probed: Caller) -> None:
    def tree(**arguments: Any) -> Any:
        return probed.call("get_component_tree", arguments)["tree"]

    assert (
        tree(depth=1)
        == tree(depth=1, lean=True)
        == tree(depth=1.0)
        == {"id": "viewport-1", "className": "Neo.container.Viewport"}
    )
    assert [item["id"] for item in tree(depth=2)["items"]] == ["toolbar-1", "grid-1"]
    assert all(set(item) == {"id", "className"} for item in tree(depth=2)["items"])
    assert tree(depth=1, rootId="button-1")["className"] == "Neo.button.Base"


def test_the_listed_tree_schema_is_the_one_that_calls_are_held_to(probed: Caller) -> None:
    listed = next(t for t in rpc(probed, "tools/list")["tools"] if t["name"] == "get_component_tree")["inputSchema"]
    assert listed["required"] == ["depth"]
    depth, lean = listed["properties"]["depth"], listed["properties"]["lean"]
    assert (depth["type"], depth["minimum"], depth["maximum"]) == ("integer", 1, 2)
    assert (lean["type"], lean["enum"], lean["default"]) == ("boolean", [True], True)
    assert "description" in depth


def test_refused_writes_leave_the_tree_as_it_was(neural_link: dict[str, Any]) -> None:
    """The control: the same calls through an unforced desk change it."""
    backend = NeuralLink(0)
    surface = read_surface(neural_link)
    forced, unforced = Desk(surface, backend, PROBE), Desk(surface, backend)
    writes: list[tuple[str, Any]] = [
        ("set_instance_properties", {"id": "button-1", "properties": {"text": "mine"}}),
        ("create_component", {"parentId": "toolbar-1", "config": {"id": "new-1"}}),
        ("remove_component", {"componentId": "grid-1"}),
    ]

    def tree() -> Any:
        return call(unforced, "get_component_tree", {"lean": False}).structured

    before = tree()
    assert all(policy_refused(call(forced, *write)) for write in writes)
    assert tree() == before
    for write in writes:
        assert call(unforced, *write).structured is not None
    assert all(word in str(tree()) for word in ("mine", "new-1"))
    assert "grid-1" not in str(tree())


# What was there before.


def test_the_unforced_surface_answers_as_before(serve: Serve) -> None:
    assert recorded.answers(serve()) == recorded.recorded("unforced")


def test_the_tier_projection_answers_as_before_asked_for_or_forced(serve: Serve) -> None:
    before = recorded.recorded("harness")
    assert recorded.answers(serve(), {"neoToolProjection": HARNESS}) == before
    assert recorded.answers(serve("--tool-projection-mode", HARNESS)) == before


@pytest.mark.parametrize("tiers", [["read"], ["read", "extended"], ["extended"], [], None, "read", [1]], ids=repr)
@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_tier_projection_shows_the_tiers_that_the_document_names(document: str, tiers: Any) -> None:
    declared = load_document(DOCUMENTS[document])
    declared["x-neo-harness-tool-projection"] = {"defaultVisibleTiers": tiers}
    tier_of = {op["operationId"]: op["x-neo-tool-tier"] for path in declared["paths"].values() for op in path.values()}
    shown = names(Desk(read_surface(declared), NeuralLink(0), HARNESS))
    assert shown == [name for name, tier in tier_of.items() if isinstance(tiers, list) and tier in tiers]

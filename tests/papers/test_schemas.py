"""The published JSON Schemas: written from the code, and true of what the verbs print and leave."""

import importlib.util
import json
from pathlib import Path

import jsonschema
import pytest

from tests.conftest import Operator

ROOT = Path(__file__).parent.parent.parent
SCHEMAS = {
    path.stem: json.loads(path.read_text("utf-8")) for path in sorted((ROOT / "docs" / "schemas").glob("*.json"))
}


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("nl_cutover_docs_schemas", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def valid(document: dict) -> str:
    """The name of the schema that the document names and fits."""
    name = document["schema"].removeprefix("nl-cutover/").replace("/", "-")
    jsonschema.Draft202012Validator(SCHEMAS[name]).validate(document)
    return name


def test_they_are_as_the_generator_writes_them(generate):
    assert set(SCHEMAS) == set(generate.SCHEMAS)
    for name in SCHEMAS:
        written = (ROOT / "docs" / "schemas" / f"{name}.json").read_text("utf-8")
        assert generate.schema(name) == written, "python docs/generate.py"


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_is_a_schema(name):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


def test_every_kind_of_receipt_fits(receipts):
    kinds = set()
    for path in receipts:
        body = json.loads(path.read_text("utf-8"))
        assert valid(body) == "receipt-1"
        kinds.add(body["kind"])
    tags = [part.get("properties", {}).get("kind", {}) for part in SCHEMAS["receipt-1"]["$defs"].values()]
    discriminated = {tag["enum"][0] for tag in tags if "enum" in tag}
    assert kinds == discriminated, "each kind that has a schema was tried"


@pytest.mark.parametrize(
    "change", [lambda b: b.pop("tool"), lambda b: b.update(number="1"), lambda b: b["outcome"].pop("verdict")]
)
def test_control_a_receipt_that_is_none_does_not_fit(receipts, change):
    body = json.loads(receipts[2].read_text("utf-8"))
    change(body)
    with pytest.raises(jsonschema.ValidationError):
        valid(body)


def test_what_every_verb_prints_fits(whole_road, checkout, tmp_path):
    """A copy of the road's custody: nothing here may disturb the other tests."""
    import shutil

    operator = Operator(tmp_path, whole_road.url, None)
    operator.environ = dict(whole_road.environ)
    shutil.copytree(whole_road.custody, operator.custody)
    road = whole_road.folder / "codex"
    files = sorted((operator.custody / "receipts").iterdir())
    fresh = checkout("closed")
    said = {
        valid(operator(*words).json)
        for words in (
            ("measure", road),
            ("plan", road, "--owner", "x"),
            ("migrate", road, "--owner", "neo-operator", "--telemetry", "admit"),
            ("verify", road),
            ("seal", fresh),
            ("unseal", fresh),
            ("cut", road, "--", "true"),
            ("status",),
            ("explain",),
            ("report",),
            ("resolve", json.loads(files[2].read_text())["id_map"][0]["old"], "--ask", "--url", operator.url),
            ("receipt", "verify", *files),
            ("receipt", "merge", *files, "--expect-host", "x"),
            ("measure", tmp_path / "nowhere"),
            ("migrate",),
        )
    }
    said |= {valid(operator("receipt", "show", n).json) for n in (1, 4)}
    said.add(valid(operator("mc", "conformance", "--url", operator.url).json))
    assert said >= set(SCHEMAS) - {"settle-1"}


def test_what_settle_prints_fits(whole_road, core, tmp_path):
    import shutil

    operator = Operator(tmp_path, core.url, core.token)
    shutil.copytree(whole_road.custody, operator.custody)
    assert valid(operator("settle", "--graph", core.db).json) == "settle-1"

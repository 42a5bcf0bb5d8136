"""README.md and docs/reference.md say what the code says."""

import re
import tomllib

import msgspec
import pytest
import typer

from nl_cutover import verdicts
from nl_cutover.cli import app
from nl_cutover.cli.settings import Config
from nl_cutover.custody.reading import Odd
from nl_cutover.cut import report as cutting
from nl_cutover.cut import sealing
from nl_cutover.migration import plan, verify
from nl_cutover.migration import report as migration
from nl_cutover.migration.plan import Loss
from nl_cutover.stores import report as stores
from nl_cutover.stores import summary
from nl_cutover.stores.filesystems import Filesystem
from nl_cutover.stores.holders import Holder, Holders
from nl_cutover.stores.sealing import SealState
from tests.runbooks.scene import PAPERS, ROOT, settings_of_the_papers

README = (ROOT / "README.md").read_text("utf-8")
REFERENCE = (ROOT / "docs" / "reference.md").read_text("utf-8")
OPERATORS_TYPE = ["measure", "plan", "migrate", "verify", "cut"]
MEASURE = {
    "document": summary.MeasureReport,
    "checkouts[]": stores.CheckoutReport,
    "stores[]": stores.StoreReport,
    "stores[].holders": Holders,
    "stores[].holders.processes[]": Holder,
    "stores[].tables[]": stores.TableReport,
    "stores[].filesystem": Filesystem,
    "stores[].seal": SealState,
    "totals": summary.Totals,
    "control": stores.Control,
}
RUN = {
    "document": migration.RunReport,
    "archives": migration.Archives,
    "marks": migration.Marks,
    "telemetry": migration.TelemetryCounts,
    "losses[]": Loss,
    "odd[]": Odd,
}


def part(name: str) -> list[list[str]]:
    """The cells of the table between the marks of a generated part, without its head."""
    body = re.search(rf"<!-- generated: {name} -->\n(.*?)<!-- end -->", README, re.DOTALL)[1]
    rows = [line.strip("| ").split(" | ") for line in body.splitlines() if line.startswith("|")]
    return rows[2:]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_first_two_commands_are_the_demo_and_the_tests():
    commands = [
        line for block in re.findall(r"```(?:sh|console)\n(.*?)```", README, re.DOTALL) for line in block.split("\n")
    ]
    assert [line.removeprefix("$ ") for line in commands if line][:2] == ["./dev demo", "./dev test"]


def test_the_demo_and_the_tests_are_what_dev_offers():
    script = (ROOT / "dev").read_text("utf-8")
    assert re.search(r"^demo\)$", script, re.MULTILINE)
    assert re.search(r"^test\)$", script, re.MULTILINE)


def test_exit_codes_are_the_codes_of_the_program():
    assert [[int(code), meaning] for code, meaning in part("exit codes")] == [
        [int(code), meaning] for code, meaning in verdicts.EXIT_MEANINGS.items()
    ]
    assert list(verdicts.EXIT_MEANINGS) == list(verdicts.ExitCode)


@pytest.mark.parametrize(("name", "structs"), [("measure", MEASURE), ("run", RUN)])
def test_documented_json_fields_are_those_of_the_documents(name, structs):
    documented = {place.strip("`"): names_in(cell) for place, cell in part(name)}
    assert documented == {
        place: [field.encode_name for field in msgspec.structs.fields(struct)] for place, struct in structs.items()
    }


def test_the_schemas_have_the_documented_names():
    for schema in (summary.SCHEMA, migration.SCHEMA, plan.SCHEMA, verify.SCHEMA, sealing.SCHEMA, cutting.SCHEMA):
        assert f"`{schema}`" in README
    for path in (ROOT / "docs" / "schemas").glob("*-1.json"):
        assert f"`nl-cutover/{path.stem.removesuffix('-1')}/1`" in README


def test_generated_parts_are_as_the_generator_writes_them(generate):
    assert generate.readme(README) == README, "python docs/generate.py"


def test_control_a_generated_part_that_was_changed_is_noticed(generate):
    changed = README.replace("| 7 | partial", "| 7 | nearly")
    assert changed != README
    assert generate.readme(changed) == README


def test_every_verb_in_the_papers_exists(generate):
    verbs = set(generate.verbs())
    for paper in [*PAPERS, ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]:
        for words in re.findall(r"(?:^\$ |`)nl-cutover ([a-z]+(?: [a-z]+)?)", paper.read_text("utf-8"), re.MULTILINE):
            both = tuple(words.split())
            assert both in verbs or both[:1] in verbs, f"{paper.name}: nl-cutover {words}"


def test_the_commands_that_operators_type_are_in_the_readme():
    table = re.findall(r"^\| `nl-cutover ([a-z]+)` \|", README, re.MULTILINE)
    assert table == OPERATORS_TYPE
    shown = re.findall(r"^\$ nl-cutover ([a-z]+)", README, re.MULTILINE)
    assert shown == OPERATORS_TYPE


def sections() -> dict[tuple[str, ...], str]:
    found = re.findall(r"^## nl-cutover ?([a-z -]*)\n\n```text\n(.*?)\n```$", REFERENCE, re.MULTILINE | re.DOTALL)
    return {tuple(words.split()): text for words, text in found}


def test_every_verb_has_its_section_with_every_option(generate):
    assert set(sections()) == set(generate.verbs())
    for words, text in sections().items():
        command = typer.main.get_command(app)
        for word in words:
            command = command.commands[word]
        hidden = [o for p in command.params if getattr(p, "hidden", False) for o in p.opts]
        offered = {option for p in command.params for option in p.opts if option.startswith("--")} - set(hidden)
        listed = set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE))
        assert listed == offered | {"--help"}, words


def test_the_reference_is_the_live_help(generate):
    if f"<!-- as typer {generate.typer_version()} prints it -->" not in REFERENCE:
        pytest.skip("another typer prints help in another shape; names were compared")
    assert generate.reference() == REFERENCE, "python docs/generate.py"


def test_the_settings_that_the_papers_show_are_settings():
    (example,) = re.findall(r"^```toml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    for text in (example, settings_of_the_papers()):
        msgspec.convert(tomllib.loads(text), Config)
    shown = tomllib.loads(example)
    assert set(shown) == {field.encode_name for field in msgspec.structs.fields(Config)}, "the example shows them all"
    assert (shown["url"], shown["token_env"]) == (Config().url, Config().token_env)

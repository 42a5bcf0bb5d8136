"""The runbooks and README.md say what the tool really does: every command in them is run, every line compared."""

import re

import msgspec
import pytest

from tests.runbooks.papers import ELISION, Change, blocks_in, compare, logical, parse, run
from tests.runbooks.redraw import redraw
from tests.runbooks.scene import PAPERS, ROOT

RUNBOOKS = [paper for paper in PAPERS if paper.parent.name == "runbooks"]
pytestmark = pytest.mark.timeout(300)  # the first test waits for every paper
every_paper = pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)


def differences(paper, ran) -> list[str]:
    bound: dict[int, dict[str, str]] = {}
    found = [compare(paper, r.command, r.output, bound.setdefault(r.block.line, {})) for r in ran]
    return [str(difference) for difference in found if difference is not None]


@every_paper
def test_what_a_paper_shows_is_what_its_commands_print(performed, paper):
    found = differences(paper, performed(paper).ran)
    assert not found, "\n".join(found)


@every_paper
def test_every_block_that_a_reader_sees_is_run(performed, paper):
    assert len({r.block.line for r in performed(paper).ran}) == blocks_in(paper) > 0


def test_there_is_a_runbook_for_each_moment():
    road, trouble = {"rehearse", "measure", "migrate", "cut", "aftercare"}, {"late-row", "settle", "rollback"}
    assert {paper.stem for paper in RUNBOOKS} == road | trouble | {"wrong-plane", "ci-smoke", "one-row"}


def test_every_scene_is_used_by_a_paper(performed):
    used = {step.name for paper in PAPERS for step in parse(paper) if isinstance(step, Change)}
    assert used == performed(PAPERS[0]).scenes


@every_paper
def test_control_no_line_can_be_wrong_without_being_reported_with_file_and_line(performed, paper, tmp_path):
    """Change the last word of each line that a paper shows, one at a time: each change is found, at that line."""
    copy = tmp_path / paper.name
    lines = paper.read_text("utf-8").splitlines()
    tried = 0
    for at, ran in enumerate(performed(paper).ran):
        for line in ran.command.shown:
            if line.text in ("", ELISION) or set(line.text) <= {"-", " "}:
                continue
            wrong = [*lines]
            wrong[line.number - 1] += "x"
            copy.write_text("\n".join(wrong) + "\n", "utf-8")
            commands = [command for step in parse(copy) if not isinstance(step, Change) for command in step.commands]
            found = compare(copy, commands[at], ran.output, {})
            assert found is not None, f"{paper}:{line.number}: {line.text}"
            begins = max(shown.number for shown in logical(ran.command.shown) if shown.number <= line.number)
            assert found.line == begins
            assert f"{copy}:{begins}: the paper and the command differ" in str(found)
            tried += 1
    assert tried > 5


@every_paper
def test_the_updater_writes_what_the_comparison_takes(performed, paper):
    performance = performed(paper)
    for ran in performance.ran:
        bare = msgspec.structs.replace(ran.command, shown=())
        for command in (bare, ran.command):
            drawn = redraw(command, ran.output, performance.place)
            fresh = msgspec.structs.replace(command, shown=tuple(_numbered(drawn, command.line)))
            assert compare(paper, fresh, ran.output, {}) is None, drawn
            assert redraw(fresh, ran.output, performance.place) == drawn
        assert redraw(ran.command, ran.output, performance.place) == [line.text for line in ran.command.shown]


def _numbered(texts, after):
    from tests.runbooks.papers import Line

    return [Line(number, text) for number, text in enumerate(texts, start=after + 1)]


@every_paper
def test_what_a_paper_prints_and_shows_holds_no_token(performed, paper, core):
    assert core.token not in paper.read_text("utf-8")
    assert not [r.command.text for r in performed(paper).ran if core.token in r.output]


@every_paper
def test_a_paper_never_opens_a_store_behind_the_tools_back(paper):
    commands = [c.text for step in parse(paper) if not isinstance(step, Change) for c in step.commands]
    assert not [c for c in commands if re.search(r"\b(sqlite3|sqlite-utils|rm|cp|mv)\b|--token\b|--token=", c)]
    piped = [c for c in commands if "|" in c]
    assert all("set -o pipefail" in commands[: commands.index(c)] for c in piped), "a pipe hides the exit code"


@pytest.mark.parametrize(
    "paper", [*PAPERS, ROOT / "CHANGELOG.md", ROOT / "docs" / "reference.md"], ids=lambda paper: paper.name
)
def test_a_paper_can_be_read_anywhere(paper):
    text = paper.read_text("utf-8")
    assert str(ROOT) not in text
    assert not re.search(r"/(?:home|root|tmp|work|private)/", text)
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (paper.parent / target).exists(), target
    inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        inside ^= line.startswith("```")
        if not inside and not line.startswith("|"):
            assert len(line) <= 80, f"{paper.name}:{number} is {len(line)} columns wide"


def test_a_paper_that_is_run_again_from_a_copy_differs_nowhere_else(tmp_path):
    """The whole way once, without a scene: a word that is changed in a block fails, the right one does not."""
    paper = tmp_path / "small.md"
    right = "```console\n$ printf 'a  b\\n'\na    b\n$ false\n$ echo $?\n1\n```\n"
    outputs = {"printf 'a  b\\n'": "a  b\n", "false": "", "echo $?": "1\n"}
    paper.write_text(right)
    assert differences(paper, run(paper, outputs.__getitem__, {})) == []
    for wrong in (right.replace("a    b", "a    c"), right.replace("\n1\n", "\n0\n"), right.replace("\n1\n", "\n")):
        paper.write_text(wrong)
        (found,) = differences(paper, run(paper, outputs.__getitem__, {}))
        assert re.search(rf"{re.escape(str(paper))}:\d: the paper and the command differ", found)

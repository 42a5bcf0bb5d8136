"""The comparison itself: what a placeholder takes, what an elision leaves out, and what a paper may not contain."""

from pathlib import Path

import pytest

from tests.runbooks.papers import KINDS, Command, Line, PaperError, compare, matches, parse, run

PAPER = Path("paper.md")
TAKES = {
    "time": ["2026-11-30T14:44:53.444672+00:00", "2026-11-30T14:44:54Z"],
    "run": ["20261130T144454Z-214b89"],
    "store": ["fe00-20e1c2"],
    "id": ["5f0c1d2e-0000-4000-8000-000000000001"],
    "digest": ["05bd5bd09bd350b3", "a" * 64, "c02f5dbc89ff282ed83…1d6e94d9ee344b06cb2cdf"],
    "path": [["/var/x", "y"][0], "/a/b…/c.sqlite"],
    "host": ["vm", "mac-mini.local"],
    "port": ["3102"],
    "seconds": ["0.6"],
    "bytes": ["4152"],
    "n": ["0", "49"],
    "version": ["0.1.0", "1.2.3rc1"],
    "errno": ["[Errno 111] Connection refused"],
    "holders": [
        "nobody holds it",
        "held by pid 12 (node)",
        "held by pid 12 (node), pid 13 (python3.11) and 2 more",
        "holders unknown: 31 processes of other users could not be looked into",
    ],
}
REFUSES = {
    "time": ["yesterday", "2026-11-30", "2026-11-30T14:44:54+02:00"],
    "run": ["20261130T144454Z"],
    "store": ["fe00", "5f0c1d2e-0000-4000-8000-000000000001"],
    "id": ["5f0c1d2e"],
    "digest": ["05bd5bd0", "z" * 64],
    "path": ["relative/path", "/a, and more"],
    "host": ["two words"],
    "port": ["none"],
    "seconds": ["soon"],
    "bytes": ["-"],
    "n": ["-", "many"],
    "version": ["latest"],
    "errno": ["refused"],
    "holders": ["held by somebody"],
}


def command(*shown: str) -> Command:
    return Command(1, "do", tuple(Line(number, text) for number, text in enumerate(shown, start=2)))


def differs(shown: list[str], output: str) -> bool:
    return compare(PAPER, command(*shown), output, {}) is not None


def test_every_kind_of_placeholder_is_tried():
    assert set(TAKES) == set(REFUSES) == set(KINDS)


@pytest.mark.parametrize(("kind", "text"), [(k, t) for k, texts in TAKES.items() for t in texts])
def test_a_placeholder_takes_its_kind(kind, text):
    assert matches(f"at <{kind}>, then", f"at {text}, then", {})


@pytest.mark.parametrize(("kind", "text"), [(k, t) for k, texts in REFUSES.items() for t in texts])
def test_and_nothing_else(kind, text):
    assert not matches(f"at <{kind}>, then", f"at {text}, then", {})


def test_a_labelled_placeholder_is_the_same_thing_throughout():
    assert not differs(["<store-1>", "<store-2>", "<store-1>"], "a-1\nb-2\na-1\n")
    assert differs(["<store-1>", "<store-2>", "<store-1>"], "a-1\nb-2\nb-2\n")
    assert not differs(["<store-1> <store-1>"], "a-1 a-1\n")
    assert differs(["<store-1> <store-1>"], "a-1 a-2\n")


def test_unknown_text_must_be_equal():
    assert not differs(["rows (52)."], "rows (52).\n")
    assert differs(["rows (52)."], "rows (53).\n")
    assert differs(["rows .."], "rows ab\n"), "it is no regular expression"


def test_the_width_of_columns_does_not_count_but_their_number_does():
    shown = ["seat  path", "----  ------", "clio  <path>"]
    assert not differs(shown, "seat     path\n-------  ------------\nclio     /a/b/c\n")
    assert differs(shown, "seat     path\n-------------------\nclio     /a/b/c\n")
    assert differs(shown, "seat path\n-------  ------------\nclio     /a/b/c\n"), "one blank joins two columns"


def test_where_a_sentence_wraps_does_not_count():
    assert not differs(["! a store stays", "    locked"], "! a store\n    stays locked\n")
    assert not differs(["- a store stays", "  locked"], "- a store stays locked\n")
    assert differs(["! a store", "  stays locked"], "! a store stays locked\n")


def test_an_elision_leaves_out_one_line_or_more_but_not_none():
    assert not differs(["a", "...", "d"], "a\nb\nc\nd\n")
    assert not differs(["a", "..."], "a\nb\n")
    assert differs(["a", "...", "b"], "a\nb\n")
    assert differs(["a", "..."], "a\n")
    assert differs(["...", "x"], "a\nb\n")


def test_missing_and_additional_lines_are_found():
    assert differs(["a", "b"], "a\n")
    assert differs(["a"], "a\nb\n")
    assert differs([], "a\n")
    assert not differs([], "")


def test_notes_that_only_some_machines_print_do_not_count():
    note = "! SQLite 3.40.1 can lose commits when a checkpoint races a log reset; this tool\n    never does\n"
    unknown = "! fe00-12: holders unknown: 3 processes of other users could not be looked into\n"
    assert not differs(["a"], f"a\n\n{note}{unknown}")
    assert differs(["a"], "a\n! another note\n")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("    ```console\n    $ nl-cutover measure\n    ```\n", 1, "at the margin"),
        ("~~~console\n$ nl-cutover measure\n~~~\n", 1, "at the margin"),
        ("```console ignore\n$ nl-cutover measure\n```\n", 2, "not run"),
        ("```sh\nnl-cutover measure\n```\n", 2, "not run"),
        ("```\n$ nl-cutover measure\n```\n", 2, "not run"),
        ("```console\nnl-cutover measure\n```\n", 2, "before the first command"),
        ("```console\n$ nl-cutover measure\n```\n", 1, "echo $?"),
        ("```console\n$ nl-cutover measure\n", 1, "no end"),
    ],
)
def test_a_command_that_would_not_be_run_is_an_error_with_its_line(tmp_path, text, line, words):
    paper = tmp_path / "paper.md"
    paper.write_text(text)
    with pytest.raises(PaperError) as error:
        parse(paper)
    assert str(error.value).startswith(f"{paper}:{line}: ")
    assert words in str(error.value)


def test_an_unknown_placeholder_and_an_unknown_scene_are_errors(tmp_path):
    with pytest.raises(PaperError, match=r"paper.md:2: <when> is no placeholder"):
        compare(PAPER, command("at <when>"), "at noon\n", {})
    paper = tmp_path / "paper.md"
    paper.write_text("<!-- scene: it rains -->\n")
    with pytest.raises(PaperError, match=r"paper.md:1: no such scene: it rains"):
        list(run(paper, str, {}))

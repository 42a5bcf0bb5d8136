"""docs/acceptance.md names tests that exist: a criterion whose test was renamed away is noticed."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAPER = ROOT / "docs" / "acceptance.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows(text: str) -> list[str]:
    """The rows of every table, without heads and rules."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [line for line in lines if not re.fullmatch(r"\|(-+\|)+", line) and not line.startswith("| criterion ")]


def lacks(row: str) -> str:
    """What is wrong with a row, or nothing."""
    named = NAMED.findall(row.strip("| ").split(" | ")[-1])
    if not named:
        return "no test is named"
    for file, test in named:
        path = ROOT / file
        tree = ast.parse(path.read_text("utf-8")) if path.is_file() else ast.Module([], [])
        if not any(isinstance(node, ast.FunctionDef) and node.name == test for node in ast.walk(tree)):
            return f"there is no {test} in {file}"
    return ""


ROWS = rows(PAPER.read_text("utf-8"))


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_every_criterion_names_a_test_that_exists(row):
    assert lacks(row) == ""


def test_no_criterion_stands_there_twice():
    criteria = [(row.split(" | ")[0], row.split(" | ")[-1]) for row in ROWS]
    assert len(ROWS) > 20
    assert len(set(criteria)) == len(criteria)


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("`tests/test_acceptance.py::test_that_is_not_there`", "there is no test_that_is_not_there"),
        ("`tests/no_such_file.py::test_x`", "there is no test_x"),
        ("by hand", "no test is named"),
    ],
)
def test_the_control_a_missing_test_is_noticed(cell, told):
    assert told in lacks(f"| a criterion | neo#1 | {cell} |")

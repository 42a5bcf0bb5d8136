"""Deleting a branch of the prober makes the control fail: every branch is needed by a fixture."""

import ast
import importlib
import sys
import types
from pathlib import Path

import pytest

from nl_cutover.denial import calls, flow, judge, loads, packages, paths, prober, reach

from .conftest import RULES

BUILT = frozenset({"calls", "flow", "judge", "loads", "packages", "paths", "prober", "reach", "static"})

# Branches whose loss changes no result, by the text of their line, and why.
SPARED = {
    "if TYPE_CHECKING:": "for the type checker",
    "if not pattern.match(code, start) or not _begins_word(code, start):": "speed: what is found is passed over later",
    "if node is None or node.end_byte - node.start_byte != len(word):": "speed: what is not a name is passed over later",
    'if word == b"import" and self._plain_import(start):': "speed: the long way finds the same",
    'if node.type == "property_identifier" and word != b"constructor":': "speed: what is not a name is passed over later",
    "if node is None or node.type not in _WHOLES:": "speed: what is above has no text",
    'if node.type == "string_fragment" and chain[-2].named_child_count == 1 and chain[-3].type not in _WHOLES:': (
        "speed: the long way finds the same"
    ),
    'if known is None and text.startswith(("./", "../")):': "speed: the long way finds the same",
    "if target in self.packages.files:": "speed: the long way finds the same",
    "if chain[end - 1].type not in _WHOLES:": "speed: what is above has no text",
    "if text in seen:": "ends a ring of aliases, which has a test of its own",
    "if string is None:": "for the type checker: an import without a source is told from others before",
    "if function is None:": "for the type checker: arguments have a callee",
}


def branches(module: types.ModuleType) -> list[tuple[int, int, str]]:
    """(line, column, kind) of each branch that can be taken away."""
    text = Path(module.__file__).read_text()
    tree, lines = ast.parse(text), text.splitlines()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and lines[node.lineno - 1].strip() not in SPARED:
            found.append((node.test.lineno, node.test.col_offset, "if"))
        elif isinstance(node, ast.match_case) and not isinstance(node.pattern, ast.MatchAs):
            found.append((node.pattern.lineno, node.pattern.col_offset, "case"))
    return sorted(found)


class Deletes(ast.NodeTransformer):
    def __init__(self, where: tuple[int, int, str]) -> None:
        self.where = where

    def visit_If(self, node):
        self.generic_visit(node)
        if self.where == (node.test.lineno, node.test.col_offset, "if"):
            node.test = ast.copy_location(ast.Constant(False), node.test)
        return node

    def visit_match_case(self, node):
        self.generic_visit(node)
        if self.where == (node.pattern.lineno, node.pattern.col_offset, "case"):
            node.guard = ast.copy_location(ast.Constant(False), node.pattern)
        return node


def survives(module: types.ModuleType, where: tuple[int, int, str]) -> bool:
    """Whether the control still passes without that branch."""
    code = compile(
        ast.fix_missing_locations(Deletes(where).visit(ast.parse(Path(module.__file__).read_text()))),
        module.__file__,
        "exec",
    )
    mutant = types.ModuleType(module.__name__)
    mutant.__file__, mutant.__package__ = module.__file__, module.__package__
    saved = {
        name: sys.modules.pop(name) for name in [*sys.modules] if name.rpartition(".")[2] in BUILT and "denial" in name
    }
    try:
        sys.modules[module.__name__] = mutant
        exec(code, mutant.__dict__)
        return importlib.import_module("nl_cutover.denial.static").control_failure(RULES) == ""
    except Exception:
        return False
    finally:
        for name in [*sys.modules]:
            if name.rpartition(".")[2] in BUILT and "denial" in name:
                del sys.modules[name]
        sys.modules.update(saved)


CASES = [(m, where) for m in (prober, flow, calls, loads, judge, reach, packages, paths) for where in branches(m)]


@pytest.mark.parametrize(
    ("module", "where"), CASES, ids=[f"{m.__name__.rpartition('.')[2]}-{w[0]}-{w[1]}" for m, w in CASES]
)
def test_a_branch_that_is_lost_fails_the_control(module, where):
    assert not survives(module, where)

"""Deleting a branch of the prober makes the control fail: every branch is needed by a fixture."""

import ast
import importlib
import sys
import types
from pathlib import Path

import pytest

from nl_cutover.denial import calls, flow, judge, loads, packages, prober, reach
from nl_cutover.denial import static as static_module

from .conftest import RULES


def branches(module: types.ModuleType) -> list[tuple[int, int, str]]:
    """(line, column, kind) of each branch that can be taken away."""
    tree = ast.parse(Path(module.__file__).read_text())
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
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
    saved = {name: sys.modules[name] for name in (module.__name__, static_module.__name__)}
    try:
        sys.modules[module.__name__] = mutant
        exec(code, mutant.__dict__)
        del sys.modules[static_module.__name__]
        return importlib.import_module(static_module.__name__).control_failure(RULES) == ""
    except Exception:
        return False
    finally:
        sys.modules.update(saved)


CASES = [(m, where) for m in (prober, flow, calls, loads, judge, reach, packages) for where in branches(m)]


@pytest.mark.parametrize(
    ("module", "where"), CASES, ids=[f"{m.__name__.rpartition('.')[2]}-{w[0]}-{w[1]}" for m, w in CASES]
)
def test_a_branch_that_is_lost_fails_the_control(module, where):
    assert not survives(module, where)

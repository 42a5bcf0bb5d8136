"""Trees made of texts, and the check run on them as an operator does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from nl_cutover.denial.report import Finding, StaticReport
from nl_cutover.denial.rules import load_allowances, load_rules
from nl_cutover.denial.static import Static, check_static

RULES = load_rules()


@pytest.fixture
def tree(tmp_path) -> Callable[[Mapping[str, str | bytes]], Path]:
    def make(files: Mapping[str, str | bytes]) -> Path:
        root = tmp_path / "tree"
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return root

    return make


@pytest.fixture
def look(tree) -> Callable[..., Static]:
    """`look({"a.mjs": "…"}, surface=[…])` checks that tree."""

    def run(files: Mapping[str, str | bytes], surface: tuple[str, ...] = (), allow: str | None = None) -> Static:
        root = tree(files)
        allowed = []
        if allow is not None:
            path = root.parent / "allow.toml"
            path.write_text(allow)
            allowed = load_allowances(path)
        return check_static(root, RULES, surface=surface, allowed=allowed)

    return run


def brief(report: StaticReport) -> list[tuple[str, int, str, str]]:
    return [(f.path, f.line, f.specifier, f.resolution) for f in report.findings]


def only(report: StaticReport) -> Finding:
    assert len(report.findings) == 1, report.findings
    return report.findings[0]


def check(*words: object, cwd: Path, **environ: str) -> tuple[int, dict]:
    """`nl-cutover check …` in its own process, as JSON."""
    import os

    command = [sys.executable, "-m", "nl_cutover", "check", *map(str, words)]
    at = command.index("--") if "--" in command else len(command)
    command[at:at] = ["--format", "json"]
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, env=os.environ | environ, timeout=110, check=False
    )
    return done.returncode, json.loads(done.stdout) | {"stderr": done.stderr}

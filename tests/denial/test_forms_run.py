"""Each fixture really loads a driver when it runs, and nothing of it does under the preload."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nl_cutover.resources import resource

from ..node import BETTER_SQLITE3, node, node_modules

FORMS = sorted(p.name for p in resource("checks", "fixtures", "forms").iterdir() if p.name[:2].isdigit())
NEWER = {"38-node-sqlite.mjs", "39-get-builtin-module.cjs"}  # need node:sqlite, which came with Node 22.5
VERSIONS = ["installed", "22", "24"]

pytestmark = pytest.mark.node


def binary(version: str) -> tuple[str, tuple[int, int]]:
    """A Node of that version, and which it is: its npm package carries the program."""
    if version == "installed":
        path = node()
    else:
        path = str(node_modules(f"node@{version}") / "node_modules" / ".bin" / "node")
        if not Path(path).exists():
            pytest.skip(f"the npm package of Node {version} brings no program for this platform")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    major, minor = said.lstrip("v").split(".")[:2]
    return path, (int(major), int(minor))


@pytest.fixture(scope="session")
def forms(tmp_path_factory) -> Path:
    """The fixtures in a folder with a driver beside them."""
    root = tmp_path_factory.mktemp("forms")
    shutil.copytree(resource("checks", "fixtures", "forms"), root / "forms")
    (root / "node_modules").symlink_to(node_modules(BETTER_SQLITE3) / "node_modules", target_is_directory=True)
    return root / "forms"


def run(program: str, form: str, forms: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k != "NODE_OPTIONS"}
    return subprocess.run(
        [program, form], cwd=forms, env=clean | environ, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_each_form_loads_a_driver(version, forms):
    program, number = binary(version)
    silent = {}
    for form in FORMS:
        done = run(program, form, forms)
        if "loaded" not in done.stdout:
            silent[form] = done.stderr[-300:]
    expected = NEWER if number < (22, 5) else set()
    assert set(silent) == expected, silent

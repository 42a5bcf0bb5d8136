"""Each fixture really loads a driver when it runs, and nothing of it does under the preload."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nl_cutover.resources import resource

from ..node import BETTER_SQLITE3, node, node_modules

FORMS = sorted(p.name for p in resource("checks", "fixtures", "forms").iterdir() if p.name[:2].isdigit())
NEWER = {"38-node-sqlite.mjs", "39-get-builtin-module.cjs"}  # need node:sqlite, which came with Node 22.5
VERSIONS = ["installed", "22", "24"]

ADDON = """
extern int napi_create_object(void *env, void **result);
extern int napi_set_named_property(void *env, void *object, const char *name, void *value);
void *napi_register_module_v1(void *env, void *exports) {
    void *value;
    napi_create_object(env, &value);
    napi_set_named_property(env, exports, "Database", value);
    return exports;
}
"""

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


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory) -> Path:
    """The fixtures beside a stand-in for a Node for which the real addon is not compiled: the runtime's own SQLite
    under the package's name, and an addon of ours under the name of its addon."""
    root = tmp_path_factory.mktemp("stand-in")
    shutil.copytree(resource("checks", "fixtures", "forms"), root / "forms")
    package = root / "node_modules" / "better-sqlite3"
    (package / "lib").mkdir(parents=True)
    (package / "build" / "Release").mkdir(parents=True)
    (package / "package.json").write_text('{"name": "better-sqlite3", "main": "lib/index.js"}')
    (package / "lib" / "index.js").write_text("module.exports = require('./database');")
    (package / "lib" / "database.js").write_text(
        "module.exports = class extends require('node:sqlite').DatabaseSync {};"
    )
    for name in ("bindings", "file-uri-to-path"):
        (root / "node_modules" / name).symlink_to(node_modules(BETTER_SQLITE3) / "node_modules" / name)
    (root / "addon.c").write_text(ADDON)
    flags = ["-dynamiclib", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared", "-fPIC"]
    out = package / "build" / "Release" / "better_sqlite3.node"
    subprocess.run(["cc", *flags, "-o", str(out), str(root / "addon.c")], check=True, capture_output=True)
    return root / "forms"


def run(program: str, form: str, forms: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k != "NODE_OPTIONS"}
    return subprocess.run(
        [program, form], cwd=forms, env=clean | environ, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_each_form_loads_a_driver(version, request):
    program, number = binary(version)
    forms = request.getfixturevalue("forms" if version == "installed" else "stand_in")
    silent = {}
    for form in FORMS:
        done = run(program, form, forms)
        if "loaded" not in done.stdout:
            silent[form] = done.stderr[-300:]
    expected = NEWER if number < (22, 5) else set()
    assert set(silent) == expected, silent


@pytest.mark.parametrize("preload", ["--require=deny.cjs", "--import=deny.mjs"])
@pytest.mark.parametrize("version", VERSIONS)
def test_no_form_loads_a_driver_under_the_preload(version, preload, forms, tmp_path):
    """40 of 40 on each Node: refused by the guard, not by want of a driver or of a form."""
    program, _ = binary(version)
    flag, _, file = preload.partition("=")
    options = f"{flag} {resource('checks', file)}"
    for form in FORMS:
        evidence = tmp_path / form
        evidence.mkdir()
        done = run(
            program, form, forms, NODE_OPTIONS=options, NL_CUTOVER_DENY_DIR=str(evidence), NL_CUTOVER_DENY_NONCE="n"
        )
        written = "".join(file.read_text() for file in evidence.iterdir())
        assert "loaded" not in done.stdout, form
        assert '"kind":"refused"' in written, (form, done.stderr)

"""Without an engine the docker tests are skipped with the reason, and in CI that is a failure."""

import os
import subprocess
import sys

import pytest

from .conftest import ROOT


@pytest.mark.parametrize(("ci", "code", "outcome"), [({}, 0, "1 skipped"), ({"NL_CUTOVER_CI": "1"}, 1, "1 error")])
def test_where_no_engine_answers(tmp_path, ci, code, outcome):
    environ = {k: v for k, v in os.environ.items() if k != "NL_CUTOVER_CI" and not k.startswith("PYTEST")}
    environ |= {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"} | ci
    one = "tests/plane/test_image.py::test_labels_name_version_revision_and_plane"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", one]
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == code, done.stdout
    assert outcome in done.stdout
    assert "no Docker engine answers" in done.stdout

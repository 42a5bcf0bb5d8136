"""`.ci/engine` empties what it made, and nothing else."""

import subprocess

import pytest

from .conftest import ROOT


@pytest.mark.parametrize("verb", ["start", "stop"])
def test_a_folder_that_is_not_an_engines_stays_as_it_is(tmp_path, verb):
    (tmp_path / "kept").write_text("x")
    done = subprocess.run(
        [ROOT / ".ci" / "engine", verb, tmp_path], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert str(tmp_path) in done.stderr
    assert [found.name for found in tmp_path.iterdir()] == ["kept"]

"""A run that left every kind of receipt, once for the session; copies of it are for the tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nl_cutover.testing import plant_store
from tests.conftest import Operator

STORE = ".neo-ai-data/sqlite/memory-core-graph.sqlite"


def plant(path: Path, **rows: int) -> Path:
    (path / STORE).parent.mkdir(parents=True)
    plant_store(path / STORE, **rows)
    return path


@pytest.fixture(scope="session")
def whole_road(tmp_path_factory, core) -> Operator:
    """measure, plan, migrate, settle, verify, landing, cut, measure: eight receipts of one run."""
    operator = Operator(tmp_path_factory.mktemp("road"), core.url, core.token)
    checkout = plant(operator.folder / "codex", archives=6, actions=9, seed=901)
    twin = operator.folder / "clio" / ".neo-ai-data"
    twin.mkdir(parents=True)
    (twin / "sqlite").symlink_to(checkout / ".neo-ai-data" / "sqlite", target_is_directory=True)
    both = (checkout, operator.folder / "clio")
    for code, *words in (
        (3, "measure", *both, "--receipt"),
        (0, "plan", *both, "--owner", "neo-operator", "--telemetry", "admit", "--receipt"),
        (0, "migrate", *both, "--owner", "neo-operator", "--telemetry", "admit"),
        (0, "settle", "--graph", core.db),
        (0, "verify", *both),
        (0, "cut", *both, "--", "true"),
        (0, "measure", *both, "--receipt"),
    ):
        done = operator(*words)
        assert done.code == code, (words, done.out, done.err)
    return operator


@pytest.fixture
def receipts(whole_road, tmp_path) -> list[Path]:
    folder = Path(shutil.copytree(whole_road.custody / "receipts", tmp_path / "receipts"))
    return sorted(folder.iterdir())

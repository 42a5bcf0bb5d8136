"""Folders that other users may enter, and the four stores as copies."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .zoo import STORE

FOUR = Path(__file__).parent.parent / "stores"


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may enter; pytest's own are closed to others."""
    path = Path(tempfile.mkdtemp(prefix="nl-cutover-test-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        for where, _, _ in os.walk(path):
            os.chmod(where, 0o755)
        shutil.rmtree(path)


@pytest.fixture
def four(tmp_path: Path) -> Callable[[str], Path]:
    """A checkout whose store is a copy of one of the four that the recorder's own code wrote."""

    def copied(name: str) -> Path:
        checkout = tmp_path / name
        (checkout / STORE).parent.mkdir(parents=True)
        for file in (FOUR / name).glob("*.sqlite*"):
            shutil.copyfile(file, (checkout / STORE).parent / file.name)
        return checkout

    return copied

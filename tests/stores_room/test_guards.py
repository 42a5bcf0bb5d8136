"""Rules about the code itself, each with a control that shows the rule can fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nl_cutover.stores

ROOM = Path(nl_cutover.stores.__file__).parent
# Opening a store in any way that may write: a bare path, a mode that is not `ro`, or sqlite-utils on a path.
WRITING = re.compile(
    r"sqlite3\.connect\((?!\s*uri\()(?!address)|mode=\"?rw|sqlite_utils|\.deserialize\(|ATTACH", re.IGNORECASE
)
ALLOWED = {
    "seal.py": 1,  # the fence
    "snapshot.py": 1,  # its own partial copy
    "control.py": 1,  # the planted control store, in a temporary folder
}


def test_only_the_seal_opens_a_store_for_writing() -> None:
    """F13, F31."""
    found = {path.name: len(WRITING.findall(path.read_text())) for path in ROOM.glob("*.py")}
    assert {name: count for name, count in found.items() if count} == ALLOWED


@pytest.mark.parametrize(
    "line",
    [
        "sqlite3.connect(path)",
        'sqlite3.connect(uri(path, mode="rw"), uri=True)',
        'sqlite3.connect(f"file:{path}", uri=True)',
        "sqlite_utils.Database(path)",
        'connection.execute("attach ? as other")',
    ],
)
def test_the_rule_can_fail(line: str) -> None:
    assert WRITING.search(line)


def test_the_rule_lets_reading_through() -> None:
    assert not WRITING.search('sqlite3.connect(uri(path, mode="ro", immutable=1), uri=True)')


def test_nothing_checkpoints_or_vacuums() -> None:
    """F17: a tool that never checkpoints a source store stays out of the log-reset race."""
    for path in ROOM.glob("*.py"):
        text = path.read_text().lower()
        assert "wal_checkpoint" not in text
        assert "vacuum" not in text
        assert "journal_mode=wal" not in text
        assert "print(" not in text


def test_files_stay_small() -> None:
    assert all(len(path.read_text().splitlines()) < 400 for path in ROOM.glob("*.py"))

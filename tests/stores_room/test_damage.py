"""What is no store, or only part of one: never a zero."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nl_cutover.contract.rows import ACTIONS, ARCHIVES
from nl_cutover.stores.verdict import verdict_of
from nl_cutover.verdicts import ExitCode

from .zoo import counts, execute, folder, plant, reason, report, store


@pytest.mark.parametrize("size", [0, 1, 99])
def test_a_zero_byte_store(tmp_path: Path, size: int) -> None:
    """F18: SQLite calls it a healthy, empty database. Others are still measured."""
    bad, good = tmp_path / "bad/z.sqlite", plant(tmp_path / "good/a.sqlite", archives=2)
    bad.parent.mkdir()
    bad.write_bytes(b"SQLite format 3\0"[:size].ljust(size, b"x"))
    before = folder(tmp_path)
    found = report(bad, good, closed=True)
    assert ("zero-byte store" if size == 0 else f"{size} bytes") in reason(found.stores[0])
    assert counts(found.stores[1]) == (2, 0)
    assert [checkout.state for checkout in found.checkouts] == ["unmeasurable", "measured"]
    assert verdict_of(found) is ExitCode.UNMEASURABLE
    assert folder(tmp_path) == before
    Path(f"{bad}-wal").write_bytes(b"x" * 5000)
    assert size or "rows may lie in the -wal" in reason(store(bad))


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"\0" * 4096, "all zero"),
        (random.Random(1).randbytes(8192), "random"),
        (b"SQLite format 3\0" + random.Random(2).randbytes(4080), "impossible"),
        (b"SQLite format 3\0" + b"\x10\x00\x07\x07" + b"\0" * 4076, "format 7"),
        (bytes.fromhex("d9d505f920a163d7") + b"\0" * 600, "rollback journal"),
        (bytes.fromhex("377f0682") + b"\0" * 600, "it is a -wal"),
        (b'{"not": "a store"}' * 40, "not SQLite's"),
    ],
)
def test_not_a_database(tmp_path: Path, content: bytes, hint: str) -> None:
    """F19: one message in SQLite, a hint from the first bytes here."""
    path = tmp_path / "n.sqlite"
    path.write_bytes(content)
    assert hint in reason(store(path))
    assert os.listdir(tmp_path) == ["n.sqlite"]


def test_a_header_that_fits_and_a_body_that_does_not(tmp_path: Path) -> None:
    path = plant(tmp_path / "n.sqlite", archives=200)
    data = bytearray(path.read_bytes())
    data[100:] = random.Random(3).randbytes(len(data) - 100)
    path.write_bytes(data)
    assert "SQLITE_" in reason(store(path))


@pytest.mark.parametrize("wal", [True, False])
@pytest.mark.parametrize("keep", [0.5, 0.9, -1])
def test_a_truncated_store(tmp_path: Path, wal: bool, keep: float) -> None:
    """F21."""
    path = plant(tmp_path / "a.sqlite", archives=100, wal=wal)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep) if keep > 0 else -1])
    assert "shorter than its header claims" in reason(store(path))


def _root(path: Path, table: str) -> tuple[int, int]:
    """Offset of the table's root page, an interior one, and the page size."""
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    data = path.read_bytes()
    at = (root - 1) * size
    assert data[at] == 5, "an interior page"
    return at, size


def test_pages_lost_under_a_right_count(tmp_path: Path) -> None:
    """A child dropped from the table's tree: the index still counts every row, and so does `count(*)`."""
    path = plant(tmp_path / "a.sqlite", archives=500, actions=3)
    at, _ = _root(path, ARCHIVES)
    data = bytearray(path.read_bytes())
    data[at + 3 : at + 5] = (int.from_bytes(data[at + 3 : at + 5], "big") - 1).to_bytes(2, "big")
    path.write_bytes(data)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(f"SELECT count(*) FROM {ARCHIVES}").fetchone() == (500,)
    found = store(path)
    assert "pages are lost" in found.table(ARCHIVES).reason
    assert found.table(ACTIONS).rows == 3


def test_a_zeroed_page_of_one_table_does_not_hide_the_other(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=500, actions=3)
    at, size = _root(path, ARCHIVES)
    data = bytearray(path.read_bytes())
    page = int.from_bytes(data[at + 8 : at + 12], "big")  # its rightmost child
    data[(page - 1) * size : page * size] = b"\0" * size
    path.write_bytes(data)
    found = store(path)
    assert (found.table(ARCHIVES).state, found.table(ACTIONS).rows) == ("unmeasurable", 3)
    assert "SQLITE_CORRUPT" in found.table(ARCHIVES).reason


@pytest.mark.parametrize("accounted", [False, True])
def test_a_lost_overflow_page_of_a_large_value(tmp_path: Path, accounted: bool) -> None:
    """`count(*)`, `length()` and `typeof()` never load it."""
    path = plant(tmp_path / "a.sqlite", archives=3)
    execute(path, f"UPDATE {ARCHIVES} SET ops = printf('%.*c', 40000, 'x')")
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    data = bytearray(path.read_bytes())
    filled = [n for n in range(len(data) // size) if data[n * size + 4 : (n + 1) * size] == b"x" * (size - 4)]
    assert filled
    at = filled[len(filled) // 2] * size
    data[at : at + 4] = (len(data) // size + 50).to_bytes(4, "big")  # the chain leads nowhere
    path.write_bytes(data)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(f"SELECT count(*), sum(length(archive_id)) FROM {ARCHIVES}").fetchone()[0] == 3
    accounts: Callable[..., bool] | None = (lambda *_: True) if accounted else None
    assert "SQLITE_CORRUPT" in store(path, accounts=accounts).table(ARCHIVES).reason


def test_a_schema_that_cannot_be_parsed(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=3)
    execute(
        path, "PRAGMA writable_schema=1", f"UPDATE sqlite_master SET sql = 'CREATE TABLE gone' WHERE name = '{ACTIONS}'"
    )
    assert "malformed database schema" in reason(store(path))

"""A private copy by the backup API, counted against the transaction it was made in."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from nl_cutover.contract.rows import ACTIONS, ARCHIVES, COLUMNS, DDL, Row, Text
from nl_cutover.errors import CustodyError, RefusedError, UnmeasurableError
from nl_cutover.stores import snapshot as snapshots
from nl_cutover.stores.snapshot import Snapshot, rows, snapshot

from .zoo import INSERT_ARCHIVE, execute, folder, plant, report, store, writer


def _keys(made: Snapshot, table: str) -> list[object]:
    return [row.key for row in rows(made, table)]


@pytest.mark.parametrize(
    ("name", "archives", "actions"), [("live", 40, 188), ("closed", 12, 60), ("hostile", 57, 199), ("oversized", 7, 10)]
)
def test_the_four_stores(four: Callable[[str], Path], tmp_path: Path, name: str, archives: int, actions: int) -> None:
    checkout = four(name)
    before = folder(checkout)
    found = store(checkout)
    (tmp_path / "custody").mkdir()
    made = snapshot(found, tmp_path / "custody")
    assert made.counts == {ACTIONS: actions, ARCHIVES: archives}
    assert os.listdir(tmp_path / "custody") == [f"{found.id}.sqlite"]
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    for table in (ACTIONS, ARCHIVES):
        read = list(rows(made, table))
        assert len(read) == made.counts[table]
        assert read == sorted(read, key=lambda row: row.key)  # type: ignore[arg-type,return-value]
        assert all(isinstance(row.key, Text) for row in read)
    assert os.listdir(tmp_path / "custody") == [f"{found.id}.sqlite"]
    assert folder(checkout) == before


def test_what_the_snapshot_holds_is_what_was_measured(tmp_path: Path) -> None:
    path = plant(tmp_path / "s/a.sqlite", archives=20, actions=30)
    digests: set[tuple[str, str]] = set()
    found = store(path, accounts=lambda table, key, digest: bool(digests.add((table, digest))))
    made = snapshot(found, tmp_path)
    assert {(table, row.digest) for table in (ACTIONS, ARCHIVES) for row in rows(made, table)} == digests
    assert len(digests) == 50


@pytest.mark.parametrize("state", ["up", "killed", "killed, no -shm"])
def test_rows_in_the_log_are_in_the_snapshot(tmp_path: Path, state: str) -> None:
    """F01, F44."""
    path = plant(tmp_path / "s/a.sqlite", archives=3)
    with writer(path) as w:
        w.archive("late")
        if state != "up":
            w.kill()
        if "no -shm" in state:
            os.unlink(f"{path}-shm")
        before = folder(path.parent)
        made = snapshot(store(path), tmp_path)
        assert made.counts[ARCHIVES] == 4
        assert folder(path.parent) == before
        if state == "up":
            w.archive("later")
            assert b"later" not in _keys(made, ARCHIVES)
            assert w.run("PRAGMA wal_checkpoint(TRUNCATE)")[0][0][0] == 0
    assert _keys(made, ARCHIVES) == [b"a00000", b"a00001", b"a00002", b"late"]


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_nothing_is_written_over(tmp_path: Path, suffix: str) -> None:
    """F08: a sidecar beside the destination would be replayed into it."""
    found = store(plant(tmp_path / "s/a.sqlite", archives=3))
    occupied = tmp_path / f"{found.id}.sqlite{suffix}"
    occupied.symlink_to("gone")
    with pytest.raises(RefusedError, match="exists"):
        snapshot(found, tmp_path)
    assert os.readlink(occupied) == "gone"
    assert {name for name in os.listdir(tmp_path) if "partial" in name} == set()


def test_what_a_killed_run_left_is_no_obstacle(tmp_path: Path) -> None:
    found = store(plant(tmp_path / "s/a.sqlite", archives=3))
    for suffix in ("", "-journal"):
        (tmp_path / f"{found.id}.sqlite.partial{suffix}").write_text("half")
    assert snapshot(found, tmp_path).counts[ARCHIVES] == 3


def test_a_copy_that_differs_is_no_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = store(plant(tmp_path / "s/a.sqlite", archives=3))
    real = snapshots.walk

    def losing(connection: sqlite3.Connection, name: str) -> snapshots.TableReport:
        if "partial" in connection.execute("PRAGMA database_list").fetchone()[2]:
            connection.execute("DELETE FROM nl_transaction_archive WHERE archive_id = 'a00001'")
        return real(connection, name)

    monkeypatch.setattr(snapshots, "walk", losing)
    with pytest.raises(CustodyError, match=r"counts .*2.*, the store .*3"):
        snapshot(found, tmp_path)
    assert os.listdir(tmp_path) == ["s"]


def test_a_store_that_is_another_one_now(tmp_path: Path) -> None:
    path = plant(tmp_path / "s/a.sqlite", archives=3)
    found = store(path)
    os.replace(plant(tmp_path / "new.sqlite", archives=9), path)
    with pytest.raises(UnmeasurableError, match="no longer store"):
        snapshot(found, tmp_path)
    assert os.listdir(tmp_path) == ["s"]


def test_what_was_not_measured_is_not_copied(tmp_path: Path) -> None:
    path = plant(tmp_path / "s/a.sqlite", archives=3)
    (found,) = report(path).stores  # a bare WAL file
    with pytest.raises(UnmeasurableError, match="bare file"):
        snapshot(found, tmp_path)


def test_a_disk_that_is_not_there(tmp_path: Path) -> None:
    found = store(plant(tmp_path / "s/a.sqlite", archives=3))
    with pytest.raises(CustodyError, match="could not be written"):
        snapshot(found, tmp_path / "gone")


def test_older_schemas_absent_tables_and_twins(tmp_path: Path) -> None:
    """F33, F34: missing columns are None, twins come in the order they were stored."""
    path = plant(tmp_path / "s/a.sqlite", tables=False)
    execute(
        path,
        f"CREATE TABLE {ARCHIVES} (ops, extra, archive_id COLLATE NOCASE)",
        f"INSERT INTO {ARCHIVES} VALUES (1, 'x', 'B'), (2, 'x', 'a'), (3, 'x', NULL), (4, 'x', 'B'), (5, 'x', x'00'), "
        "(6, 'x', 7), (7, 'x', 'b')",
    )
    made = snapshot(store(path), tmp_path)
    assert made.counts == {ARCHIVES: 7}
    assert list(rows(made, ACTIONS)) == []
    assert [row["ops"] for row in rows(made, ARCHIVES)] == [3, 6, 1, 4, 2, 7, 5]
    row = next(rows(made, ARCHIVES))
    assert (row["name"], row["origin_writer"], len(row.values)) == (None, None, len(COLUMNS[ARCHIVES]))


def test_without_rowid(tmp_path: Path) -> None:
    path = plant(tmp_path / "s/a.sqlite", tables=False)
    inserts = [INSERT_ARCHIVE.replace("?", f"'{key}'") for key in "bca"]
    execute(path, DDL[ARCHIVES] + " WITHOUT ROWID", *inserts)
    assert _keys(snapshot(store(path), tmp_path), ARCHIVES) == [b"a", b"b", b"c"]


def test_streaming_is_flat_in_memory(tmp_path: Path) -> None:
    path = plant(tmp_path / "s/a.sqlite", archives=400)
    execute(path, f"UPDATE {ARCHIVES} SET ops = printf('%.*c', 200000, 'x')")  # 80 MB
    made = snapshot(store(path), tmp_path)
    shutil.rmtree(path.parent)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    total = sum(len(row["ops"]) for row in rows(made, ARCHIVES) if isinstance(row["ops"], bytes))
    assert total == 400 * 200_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kB


def test_rows_are_typed(tmp_path: Path) -> None:
    path = plant(tmp_path / "s/a.sqlite", archives=1)
    execute(path, f"UPDATE {ARCHIVES} SET name = 'a' || char(0), app_session_id = x'61', committed_at = 1.5")
    (row,) = rows(snapshot(store(path), tmp_path), ARCHIVES)
    assert isinstance(row, Row)
    assert (row["name"], type(row["name"])) == (b"a\0", Text)
    assert (row["app_session_id"], type(row["app_session_id"])) == (b"a", bytes)
    assert row["committed_at"] == 1.5

"""The count is the whole truth and the folder is as it was, whatever state the writer left the store in."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nl_cutover.contract.rows import DDL
from nl_cutover.errors import UnmeasurableError
from nl_cutover.stores import reader
from nl_cutover.stores.holders import UNKNOWN
from nl_cutover.stores.identity import Located, resolve
from nl_cutover.stores.measurement import Options
from nl_cutover.stores.reader import Limits, Opened, OpenMode, read_store

from .zoo import SEES_ALL, as_nobody, counts, execute, folder, plant, reason, report, store, writer

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")


@pytest.mark.parametrize(
    ("name", "archives", "actions"), [("live", 40, 188), ("closed", 12, 60), ("hostile", 57, 199), ("oversized", 7, 10)]
)
def test_the_four_stores(four: Callable[[str], Path], name: str, archives: int, actions: int) -> None:
    checkout = four(name)
    before = folder(checkout)
    found = store(checkout)
    assert counts(found) == (archives, actions)
    assert found.wal_bytes == (4_124_152 if name == "live" else 0)
    assert folder(checkout) == before


def test_a_copy_of_the_main_file_alone_is_not_believed(tmp_path: Path) -> None:
    """F01: the copy opens, is healthy, and is simply old."""
    path, copy = plant(tmp_path / "a.sqlite", archives=3), tmp_path / "copy.sqlite"
    with writer(path) as w:
        w.archive("late")
        shutil.copyfile(path, copy)
        assert counts(store(path)) == (4, 0)
        (found,) = report(copy).stores
        assert "its newest rows may be elsewhere" in reason(found)


@pytest.mark.parametrize(
    "ending", ["up", "up, checkpointed", "stopped", "killed", "killed, no -shm", "killed, truncated"]
)
def test_the_same_count_however_the_writer_ended(tmp_path: Path, ending: str) -> None:
    """F03, F05, F06: sidecars or none, writer up, stopped or dead."""
    path = plant(tmp_path / "s/a.sqlite", archives=3, actions=2)
    with writer(path) as w:
        w.archive("x1", "x2", "x3", "x4", "x5")
        w.action("y1")
        if "checkpointed" in ending:
            w.run("PRAGMA wal_checkpoint(TRUNCATE)")
        if "truncated" in ending:
            w.run("PRAGMA wal_checkpoint(TRUNCATE)")
        if "killed" in ending:
            w.kill()
        elif ending == "stopped":
            w.stop()
        if "no -shm" in ending:
            os.unlink(f"{path}-shm")
        before = folder(tmp_path)
        found = store(path)
        assert counts(found) == (8, 3)
        assert folder(tmp_path) == before
        assert found.open_mode == {
            "stopped": "immutable",
            "killed, no -shm": "private copy",
        }.get(ending, "read-only, shared memory untouched")
        assert found.journal_mode == "wal"


def test_a_live_rollback_store(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=3, wal=False)
    with writer(path) as w:
        w.archive("x")
        before = folder(tmp_path)
        found = store(path)
    assert (counts(found), found.open_mode, found.journal_mode) == ((4, 0), "read-only", "rollback")
    assert folder(tmp_path) == before


def test_an_unfinished_transaction_is_not_counted(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=1)
    with writer(path) as w:
        w.run("BEGIN IMMEDIATE")
        w.archive("pending")
        assert counts(store(path)) == (1, 0)
        w.run("COMMIT")
        assert counts(store(path)) == (2, 0)


@pytest.mark.parametrize("wal", [True, False])
def test_a_bare_wal_file_needs_a_word_from_the_operator(tmp_path: Path, wal: bool) -> None:
    """F02: a copied file may have left its rows, or its whole schema, in a -wal elsewhere."""
    path = plant(tmp_path / "a.sqlite", archives=3, wal=wal)
    (found,) = report(path).stores
    if wal:
        assert "bare file without a -wal" in reason(found)
        (found,) = report(path, closed=True).stores
    assert counts(found) == (3, 0)


def test_a_schema_that_is_still_in_the_log(tmp_path: Path) -> None:
    """F02: nothing checkpointed yet; the store in place has its tables, its copy has none."""
    path = tmp_path / "a.sqlite"
    execute(path, "PRAGMA journal_mode=wal")
    with writer(path) as w:
        w.run(*DDL.values())
        w.archive("a", "b")
        assert counts(store(path)) == (2, 0)


@root_only
@pytest.mark.parametrize("state", ["closed", "live"])
def test_a_folder_that_may_only_be_read(public: Path, state: str) -> None:
    """F04: no write permission, no -shm to be made; the count is right all the same."""
    path = plant(public / "s/a.sqlite", archives=3)
    with writer(path) as w:
        w.archive("late")
        if state == "closed":
            w.stop()
        for name in os.listdir(path.parent):
            os.chmod(path.parent / name, 0o444)
        os.chmod(path.parent, 0o555)
        before = folder(public)
        found = as_nobody(lambda: store(path))
        assert counts(found) == (4, 0)
        assert any("belongs to uid 0" in warning for warning in found.warnings)
        assert folder(public) == before


@root_only
def test_a_crashed_store_in_a_folder_that_may_only_be_read(public: Path) -> None:
    """F05's sibling: `-wal` without `-shm`, where `immutable=1` would say `no such table`."""
    path = plant(public / "s/a.sqlite", archives=3)
    with writer(path) as w:
        w.archive("late")
        w.kill()
    os.unlink(f"{path}-shm")
    for name in os.listdir(path.parent):
        os.chmod(path.parent / name, 0o444)
    os.chmod(path.parent, 0o555)
    before = folder(public)
    assert counts(as_nobody(lambda: store(path))) == (4, 0)
    os.chmod(f"{path}-wal", 0o000)
    assert "-wal" in reason(as_nobody(lambda: store(path)))
    os.chmod(f"{path}-wal", 0o444)
    os.chmod(path, 0o000)
    assert "door closed" in reason(as_nobody(lambda: store(path)))
    os.chmod(path, 0o444)
    assert folder(public) == before


@pytest.mark.parametrize(
    ("wal", "commits", "strays", "why"),
    [
        (False, 1, 0, "not in WAL mode; it is another store's"),
        (True, 9, 5, "not its own, it is older"),  # by its change counter
        (True, 0, 0, "not its own, it is older"),  # by its schema cookie
        (True, 0, 5, "not one of the rows that nl_transaction_archive has"),
    ],
)
def test_the_log_of_another_store(tmp_path: Path, wal: bool, commits: int, strays: int, why: str) -> None:
    """F08: SQLite replays any valid log that it finds beside a file, and the rows of that one win."""
    one, two = tmp_path / "one/one.sqlite", plant(tmp_path / "two/two.sqlite", archives=50, wal=wal)
    for n in range(commits):
        execute(two, f"PRAGMA user_version={n + 1}")
    one.parent.mkdir()
    with writer(one) as w:
        w.run("PRAGMA journal_mode=wal", *DDL.values(), *(f"CREATE TABLE t{n} (x)" for n in range(strays)))
        w.archive("stray")
        shutil.copyfile(f"{one}-wal", f"{two}-wal")
    before = folder(two.parent)
    assert why in reason(store(two))
    assert folder(two.parent) == before
    os.unlink(f"{two}-wal")
    assert counts(store(two)) == (50, 0)


def test_a_log_of_another_life(tmp_path: Path) -> None:
    """F08: neither older nor newer, but the store's first page is none that this log ever held."""
    one, two = plant(tmp_path / "one.sqlite", archives=1), plant(tmp_path / "two.sqlite", archives=500)
    with writer(one) as w:
        w.run("SELECT 1 FROM sqlite_master")
        for n in range(6):
            execute(one, f"CREATE TABLE t{n} (x)")
        shutil.copyfile(f"{one}-wal", tmp_path / "stash")
    for n in range(3):
        execute(two, f"CREATE TABLE t{n} (x)")
    shutil.copyfile(tmp_path / "stash", f"{two}-wal")
    assert "not its own, the store's first page came from elsewhere" in reason(store(two))


def test_an_older_log_of_the_same_store(tmp_path: Path) -> None:
    """F08: the store moved on, its old -wal came back."""
    path = plant(tmp_path / "a.sqlite", archives=3)
    with writer(path) as w:
        w.run("CREATE TABLE more (x)")
        shutil.copyfile(f"{path}-wal", tmp_path / "stash")
    for n in range(3):
        execute(path, f"CREATE TABLE later{n} (x)")
    shutil.copyfile(tmp_path / "stash", f"{path}-wal")
    assert "not its own, it is older" in reason(store(path))


@pytest.mark.parametrize("content", [b"\0" * 4096, b"garbage" * 100, b"short"])
def test_a_log_that_is_none(tmp_path: Path, content: bytes) -> None:
    path = plant(tmp_path / "a.sqlite", archives=3)
    Path(f"{path}-wal").write_bytes(content)
    assert "-wal beside it is not its own" in reason(store(path))


def test_a_writer_with_a_deleted_log(tmp_path: Path) -> None:
    """F11: two truths under one name; a retry would give different answers."""
    path = plant(tmp_path / "a.sqlite", archives=3)
    with writer(path) as w:
        w.archive("late")
        os.unlink(f"{path}-wal")
        before = folder(tmp_path)
        why = reason(store(path))
        assert f"pid {w.pid}" in why
        assert "deleted -wal" in why
        os.unlink(f"{path}-shm")
        assert "deleted -" in reason(store(path))
        assert folder(tmp_path).keys() == before.keys() - {f"{path}-shm"}


def test_a_shm_without_its_log_and_holders_that_cannot_be_seen(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=3)
    Path(f"{path}-shm").touch()
    assert "holding a deleted -wal" in reason(store(path, options=Options(holders=False)))
    if SEES_ALL:  # nobody has it open, and that is known
        assert counts(store(path)) == (3, 0)


def test_an_empty_log_left_behind(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=3)
    Path(f"{path}-wal").touch()
    before = folder(tmp_path)
    found = store(path)
    assert (counts(found), found.open_mode) == ((3, 0), "immutable")
    assert folder(tmp_path) == before


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs /proc/locks")
def test_own_locks_survive_a_measurement(tmp_path: Path) -> None:
    """F12: closing any descriptor of a file drops all POSIX locks of the process on it."""
    path = plant(tmp_path / "a.sqlite", archives=3)
    inode = os.stat(path).st_ino

    def locks() -> int:
        return sum(f":{inode} " in line and f" {os.getpid()} " in line for line in open("/proc/locks"))

    with closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT count(*) FROM nl_transaction_archive").fetchone()
        held = locks()
        assert held
        assert counts(store(path)) == (3, 0)
        assert locks() == held


def test_a_writer_may_checkpoint_after_a_measurement(tmp_path: Path) -> None:
    """F16: no reader is left behind that pins the log."""
    path = plant(tmp_path / "a.sqlite", archives=3)
    with writer(path) as w:
        w.archive(*(f"x{n}" for n in range(50)))
        assert counts(store(path)) == (53, 0)
        ((busy, _, _),) = w.run("PRAGMA wal_checkpoint(TRUNCATE)")[0]
        assert busy == 0
        assert os.path.getsize(f"{path}-wal") == 0


def test_a_reading_has_an_age_limit(tmp_path: Path) -> None:
    """F16."""
    path = plant(tmp_path / "a.sqlite", actions=20_000)
    limits = Limits(max_seconds=0.0)
    assert "could not be read within 0 s" in reason(store(path, options=Options(limits=limits)))


@pytest.mark.parametrize("how", ["BEGIN EXCLUSIVE", "locking_mode"])
def test_a_locked_store_is_not_an_empty_one(tmp_path: Path, how: str) -> None:
    """F15, F32: a bounded wait, then unmeasurable with the holder's name."""
    path = plant(tmp_path / "a.sqlite", archives=3, wal=how == "locking_mode")
    with writer(path) as w:
        if how == "locking_mode":
            w.run("SELECT 1 FROM sqlite_master", "PRAGMA locking_mode=exclusive", "CREATE TABLE x (y)")
        else:
            w.run(how)
        started = time.monotonic()
        why = reason(store(path, options=Options(limits=Limits(busy_timeout_ms=200))))
        assert time.monotonic() - started < 2
        assert "SQLITE_BUSY" in why
        assert f"pid {w.pid}" in why


def test_a_writer_in_exclusive_mode_without_shared_memory(tmp_path: Path) -> None:
    """F32's sibling: no -shm exists at all, and a copy of the files would be torn."""
    path = plant(tmp_path / "a.sqlite", archives=3)
    with writer(path) as w:
        w.run("PRAGMA locking_mode=exclusive", "BEGIN IMMEDIATE")
        w.archive("late")
        w.run("COMMIT")
        assert not os.path.exists(f"{path}-shm")
        why = reason(store(path, options=Options(limits=Limits(busy_timeout_ms=100))))
        assert "-shm is missing although the store is open" in why
        assert f"pid {w.pid}" in why
        why = reason(store(path, options=Options(limits=Limits(busy_timeout_ms=100), holders=False)))
        assert "SQLITE_BUSY" in why


def test_a_transaction_that_died(tmp_path: Path) -> None:
    """A hot journal: only a writer may play it back."""
    path = plant(tmp_path / "a.sqlite", archives=300, wal=False)
    with writer(path) as w:
        w.run("PRAGMA cache_size=2", "BEGIN IMMEDIATE", "UPDATE nl_transaction_archive SET name = 'half'")
        w.kill()
    before = folder(tmp_path)
    assert "in the middle of a transaction" in reason(store(path))
    assert folder(tmp_path) == before
    execute(path, "SELECT count(*) FROM nl_transaction_archive")
    assert counts(store(path)) == (300, 0)


def test_sidecars_that_are_links(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=3)
    os.symlink("elsewhere", f"{path}-wal")
    assert "is a link" in reason(store(path))


def _located(path: Path) -> Located:
    found = resolve(path)
    assert isinstance(found, Located)
    return found


def test_a_store_that_changes_where_no_lock_protects_is_read_again(tmp_path: Path) -> None:
    """F03, F06: `immutable=1` sees neither locks nor logs; only the files tell that somebody wrote."""
    path = plant(tmp_path / "a.sqlite", archives=3)
    calls: list[OpenMode] = []

    def work(opened: Opened) -> int:
        calls.append(opened.mode)
        if len(calls) == 1:
            with writer(path) as w:
                w.archive("meanwhile")
                w.stop()
            raise sqlite3.DatabaseError("as a torn page would")
        return int(opened.connection.execute("SELECT count(*) FROM nl_transaction_archive").fetchone()[0])

    assert read_store(_located(path), UNKNOWN, work)[0] == 4
    assert calls == [OpenMode.IMMUTABLE] * 2


def test_a_store_that_never_holds_still_is_not_measured(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=3)
    keys = iter("abc")

    def work(_: Opened) -> None:
        with writer(path) as w:
            w.archive(next(keys))
            w.stop()

    with pytest.raises(UnmeasurableError, match="changed while it was read, twice in a row"):
        read_store(_located(path), UNKNOWN, work)
    assert next(keys) == "c"


def test_a_commit_during_a_protected_reading_is_told(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=3)
    with writer(path) as w:
        w.archive("before")

        def work(opened: Opened) -> list[int]:
            count = "SELECT count(*) FROM nl_transaction_archive"
            first = opened.connection.execute(count).fetchone()[0]
            w.archive("meanwhile")
            return [first, opened.connection.execute(count).fetchone()[0]]

        assert read_store(_located(path), UNKNOWN, work)[0] == [4, 4]
        assert read_store(_located(path), UNKNOWN, lambda opened: opened)[1].changed is False


def test_ctrl_c_gets_through_sqlite(tmp_path: Path) -> None:
    """SQLite swallows what its callbacks raise."""
    path = plant(tmp_path / "a.sqlite", archives=3)
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        read_store(_located(path), UNKNOWN, lambda opened: opened.connection.execute(endless).fetchone())
    timer.join()
    assert counts(store(path)) == (3, 0)


def test_shared_memory_that_cannot_be_used_unwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live store is then read as any other reader would; with nobody there it is not."""
    path = plant(tmp_path / "a.sqlite", archives=3)
    real = reader._begin

    def refusing(address: str, *more: object) -> sqlite3.Connection:
        if "readonly_shm" in address:
            error = sqlite3.OperationalError("attempt to write a readonly database")
            error.sqlite_errorname, error.sqlite_errorcode = "SQLITE_READONLY_CANTINIT", 1288
            raise error
        return real(address, *more)  # type: ignore[arg-type]

    with writer(path) as w:
        w.archive("late")
        monkeypatch.setattr(reader, "_begin", refusing)
        found = store(path)
        assert (counts(found), found.open_mode) == ((4, 0), "read-only, shared memory written")
        w.kill()
    if SEES_ALL:
        assert "SQLITE_READONLY_CANTINIT" in reason(store(path))

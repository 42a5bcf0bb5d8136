"""The fence inside a store: nothing gets in, everything can be taken back, the owner's log stays as it is."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nl_cutover.contract.rows import ACTIONS, ARCHIVES, DDL, TABLES
from nl_cutover.errors import RefusedError, UnmeasurableError
from nl_cutover.stores import seal
from nl_cutover.stores.identity import Identity, identity_of
from nl_cutover.stores.seal import Fence, SealState, Updates, canary, unseal
from nl_cutover.verdicts import Zero

from .zoo import INSERT_ARCHIVE, as_nobody, counts, execute, folder, plant, store, writer

URL = "http://127.0.0.1:3102/mc/mcp?it's"
SENTENCE = f"sealed by nl-cutover: this store has moved to the Memory Core, use {URL}"


def _identity(path: Path) -> Identity:
    return identity_of(os.stat(path))


def _seal(path: Path, **more: object) -> SealState:
    with Fence(path, _identity(path), busy_timeout_ms=500, url=URL) as fence:
        state = fence.plant(**more)  # type: ignore[arg-type]
        fence.commit()
    return state


def _sql(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(statement).fetchall()


def _schema(path: Path) -> list[tuple[object, ...]]:
    return _sql(path, "SELECT rowid, * FROM sqlite_master")


@pytest.mark.parametrize("wal", [True, False])
def test_a_writer_that_has_the_store_open_gets_the_sentence(tmp_path: Path, wal: bool) -> None:
    path = plant(tmp_path / "a.sqlite", archives=2, actions=1, wal=wal)
    with writer(path) as w:
        w.archive("before")
        state = _seal(path)
        assert (state.sealed, state.complete, state.updates_refused) == (TABLES, True, False)
        for statement in (
            INSERT_ARCHIVE,
            INSERT_ARCHIVE.replace("INSERT", "REPLACE", 1),
            INSERT_ARCHIVE.replace("INSERT", "INSERT OR IGNORE", 1),
            INSERT_ARCHIVE.replace("INSERT", "INSERT OR FAIL", 1),
            INSERT_ARCHIVE + " ON CONFLICT DO NOTHING",
            INSERT_ARCHIVE + " ON CONFLICT (archive_id) DO UPDATE SET replay_count = 9",
        ):
            for key in ("new", "a00000"):
                answer = w.try_((statement, [key]))
                assert answer == {"error": SENTENCE, "name": "SQLITE_CONSTRAINT_TRIGGER"}, statement
        assert "error" in w.try_(f"INSERT INTO {ACTIONS} SELECT * FROM {ACTIONS}")
        w.run(f"UPDATE {ARCHIVES} SET replay_count = replay_count + 1 WHERE archive_id = 'a00000'")
    assert counts(store(path)) == (3, 1)


def test_a_writer_that_comes_later_gets_the_sentence(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=2)
    _seal(path)
    with writer(path) as w:
        assert w.try_((INSERT_ARCHIVE, ["x"]))["error"] == SENTENCE
    assert canary(path, _identity(path)).proved


def test_updates_as_the_operator_chose(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=2)
    update = f"UPDATE {ARCHIVES} SET replay_count = 1"
    assert _seal(path, updates=Updates.REFUSE).updates_refused
    with writer(path) as w:
        assert w.try_(update)["error"] == SENTENCE
        assert not _seal(path, updates=Updates.ALLOW).updates_refused
        w.run(update)
        assert w.try_((INSERT_ARCHIVE, ["x"]))["error"] == SENTENCE


def test_sealing_and_unsealing_are_idempotent_and_exact(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=2, actions=3)
    execute(path, f"CREATE TRIGGER theirs AFTER INSERT ON {ACTIONS} BEGIN SELECT 1; END")
    before = _schema(path)
    _seal(path, updates=Updates.REFUSE)
    once = _schema(path)
    assert len(once) == len(before) + 3
    _seal(path, updates=Updates.REFUSE)
    assert _schema(path) == once
    assert store(path).seal == SealState(TABLES, True, ())
    stood = unseal(path, _identity(path))
    assert stood.complete
    assert _schema(path) == before
    assert unseal(path, _identity(path)) == SealState()
    assert _schema(path) == before
    assert store(path).seal == SealState()
    assert canary(path, _identity(path)).open == TABLES
    assert counts(store(path)) == (2, 3)


def test_a_rolled_back_fence_leaves_nothing(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=2)
    before = _schema(path)
    with Fence(path, _identity(path), url=URL) as fence:
        fence.plant()
    with pytest.raises(ZeroDivisionError), Fence(path, _identity(path), url=URL) as fence:
        fence.plant()
        raise ZeroDivisionError
    assert _schema(path) == before


def test_missing_tables_are_latent_or_made(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", tables=False)
    execute(path, DDL[ACTIONS], "CREATE TABLE graph (x)")
    before = _schema(path)
    assert _seal(path).sealed == (ACTIONS,)
    assert _seal(path, create_missing=True).sealed == TABLES
    with writer(path) as w:
        w.run(DDL[ARCHIVES].replace("TABLE", "TABLE IF NOT EXISTS", 1))  # as a recorder starts
        assert w.try_((INSERT_ARCHIVE, ["x"]))["error"] == SENTENCE
        w.run(f"CREATE INDEX IF NOT EXISTS i ON {ARCHIVES}(archived_at)")
    assert [table.zero for table in store(path).tables] == [Zero.SEALED, Zero.SEALED]
    unseal(path, _identity(path))
    assert _schema(path) == before


def test_a_made_table_that_holds_rows_stays(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", tables=False)
    _seal(path, create_missing=True)
    execute(path, f"DROP TRIGGER nl_cutover_seal_insert_{ARCHIVES}", INSERT_ARCHIVE.replace("?", "'x'"))
    unseal(path, _identity(path))
    found = store(path)
    assert (found.table(ARCHIVES).rows, found.table(ACTIONS).state) == (1, "absent")


def test_one_table_only_leaves_the_others_seal(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite")
    _seal(path, tables=[ACTIONS])
    assert _seal(path, tables=[ARCHIVES], updates=Updates.REFUSE).complete


def test_a_view_cannot_be_sealed(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", tables=False)
    execute(path, f"CREATE VIEW {ARCHIVES} AS SELECT 1")
    with pytest.raises(RefusedError, match="view"):
        _seal(path, create_missing=True)


def test_another_letter_case_is_sealed(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", tables=False)
    execute(path, DDL[ARCHIVES].replace(ARCHIVES, '"NL_Transaction_Archive"'))
    assert _seal(path).sealed == (ARCHIVES,)
    assert canary(path, _identity(path)).proved


def test_counting_and_sealing_are_one_transaction(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=2, actions=1)
    with writer(path) as w:
        w.archive("last")
        w.run("PRAGMA busy_timeout=100")
        with Fence(path, _identity(path), url=URL) as fence:
            assert w.try_((INSERT_ARCHIVE, ["late"]))["name"] == "SQLITE_BUSY"
            actions, archives = fence.measure(lambda table, key, digest: key == b"a00000")
            assert (archives.rows, archives.unaccounted) == (3, 2)
            assert (actions.rows, actions.unaccounted) == (1, 1)
            assert w.try_((INSERT_ARCHIVE, ["late"]))["name"] == "SQLITE_BUSY"
            fence.plant()
            assert w.try_((INSERT_ARCHIVE, ["late"]))["name"] == "SQLITE_BUSY"
            fence.commit()
            assert w.try_((INSERT_ARCHIVE, ["late"]))["error"] == SENTENCE


def test_zeros_inside_the_fence(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite")
    with Fence(path, _identity(path), url=URL) as fence:
        assert [table.zero for table in fence.measure()] == [Zero.LIVE, Zero.LIVE]
        fence.plant()
        assert [table.zero for table in fence.measure()] == [Zero.SEALED, Zero.SEALED]


def test_a_locked_store_is_refused_with_its_holder(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=2)
    with writer(path) as w:
        w.run("BEGIN IMMEDIATE")
        with pytest.raises(RefusedError, match=f"pid {w.pid} .*SQLITE_BUSY.*nothing was changed"):
            Fence(path, _identity(path), busy_timeout_ms=100).__enter__()
        w.run("ROLLBACK")
        assert _seal(path).complete


def test_a_reader_that_keeps_a_rollback_store(tmp_path: Path) -> None:
    """COMMIT itself may have to wait there; nothing is half done."""
    path = plant(tmp_path / "a.sqlite", archives=2, wal=False)
    before = _schema(path)
    with writer(path) as w:
        w.run("BEGIN", f"SELECT * FROM {ARCHIVES}")
        with pytest.raises(RefusedError, match="SQLITE_BUSY"):
            _seal(path)
        w.run("ROLLBACK")
    assert _schema(path) == before


def test_another_file_under_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F37."""
    path, new = plant(tmp_path / "a.sqlite"), plant(tmp_path / "b.sqlite")
    old = _identity(path)
    with Fence(path, old, url=URL) as fence:
        fence.plant()
        os.replace(new, path)
        with pytest.raises(RefusedError, match="replaced"):
            fence.commit()
    assert store(path).seal == SealState()
    with pytest.raises(UnmeasurableError, match="no longer store"):
        Fence(path, old).__enter__()


def test_a_store_that_cannot_be_measured_is_not_opened_for_writing(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=300, wal=False)
    with writer(path) as w:
        w.run("PRAGMA cache_size=2", "BEGIN IMMEDIATE", f"UPDATE {ARCHIVES} SET name = 'half'")
        w.kill()
    names = sorted(os.listdir(tmp_path))
    with pytest.raises(UnmeasurableError, match="in the middle of a transaction"):
        _seal(path)
    assert sorted(os.listdir(tmp_path)) == names


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_only_the_owner_seals(public: Path) -> None:
    path = plant(public / "a.sqlite")
    path.chmod(0o666)
    public.chmod(0o777)

    def attempt() -> str:
        try:
            _seal(path)
        except RefusedError as error:
            return error.message
        return "sealed"

    assert "belongs to uid 0, this is uid 65534" in as_nobody(attempt)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_what_root_seals_still_belongs_to_its_owner(public: Path) -> None:
    """F03: sidecars of the wrong owner lock the real one out."""
    path = plant(public / "s/a.sqlite")
    for name in (path.parent, path):
        os.chown(name, 65534, 65534)
    _seal(path)
    assert {os.stat(path.parent / name).st_uid for name in os.listdir(path.parent)} == {65534}
    assert counts(as_nobody(lambda: store(path))) == (0, 0)


@pytest.mark.parametrize("state", ["live", "dead", "dead, no -shm", "clean", "rollback"])
def test_closing_neither_checkpoints_nor_unlinks(tmp_path: Path, state: str) -> None:
    path = plant(tmp_path / "a.sqlite", archives=2, wal=state != "rollback")
    with writer(path) as w:
        w.archive("late")
        if state in ("clean", "rollback"):
            w.stop()
        elif state != "live":
            w.kill()
        if "no -shm" in state:
            os.unlink(f"{path}-shm")
        main, log = path.read_bytes(), Path(f"{path}-wal")
        old = log.read_bytes() if log.exists() else b""
        inode = log.stat().st_ino if log.exists() else None
        _seal(path)
        assert canary(path, _identity(path)).proved
        unsealed = _identity(path)
        assert counts(store(path)) == (3, 0)
        if state == "rollback":
            assert os.listdir(tmp_path) == ["a.sqlite"]
        else:
            assert path.read_bytes() == main  # no checkpoint
            assert log.read_bytes()[: len(old)] == old
            assert inode in (None, log.stat().st_ino)
        unseal(path, unsealed)
        assert counts(store(path)) == (3, 0)
        if state == "live":
            w.archive("more")
            assert counts(store(path)) == (4, 0)


def test_a_long_log_is_not_checkpointed_by_the_seal(tmp_path: Path) -> None:
    """By default a commit checkpoints once the log has 1,000 pages."""
    path = plant(tmp_path / "a.sqlite", archives=2)
    with writer(path) as w:
        w.run(f"UPDATE {ARCHIVES} SET ops = printf('%.*c', 3000000, 'x')")
        main = path.read_bytes()
        assert os.path.getsize(f"{path}-wal") > 1_000 * 4_096
        _seal(path)
        unseal(path, _identity(path))
        assert path.read_bytes() == main


def test_a_row_that_gets_through_is_seen_and_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plant(tmp_path / "a.sqlite", archives=2)
    monkeypatch.setattr(seal, "triggers", lambda *_: {})
    assert _seal(path).sealed == ()
    found = canary(path, _identity(path))
    assert (found.proved, found.open, found.refused) == (False, TABLES, ())
    assert counts(store(path)) == (2, 0)


def test_a_trigger_of_ours_that_was_tampered_with(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=2)
    _seal(path)
    name = f"nl_cutover_seal_insert_{ARCHIVES}"
    execute(
        path, f"DROP TRIGGER {name}", f"CREATE TRIGGER {name} BEFORE INSERT ON {ARCHIVES} WHEN 0 BEGIN SELECT 1; END"
    )
    found = store(path)
    assert (found.seal.sealed, found.seal.foreign) == ((ACTIONS,), (name,))
    assert canary(path, _identity(path)).open == (ARCHIVES,)
    assert _seal(path).complete


def test_a_trigger_that_only_looks_like_ours(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite")
    _seal(path)
    name = f"nl_cutover_seal_insert_{ARCHIVES}"
    ((sql,),) = _sql(path, f"SELECT sql FROM sqlite_master WHERE name = '{name}'")
    disarmed = str(sql).replace("mcp?it''s'", "x') WHERE 0; SELECT RAISE(IGNORE) WHERE 0; SELECT ('y'")
    assert disarmed != sql
    execute(path, f"DROP TRIGGER {name}", disarmed)
    assert store(path).seal == SealState((ACTIONS,), False, (name,))


def test_a_not_null_refusal_is_no_proof(tmp_path: Path) -> None:
    """The canary's row lacks columns: only the seal's own sentence counts."""
    path = plant(tmp_path / "a.sqlite")
    assert canary(path, _identity(path)).refused == ()


def test_a_store_in_wal_mode_without_tables_can_be_sealed_and_measured(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", tables=False)
    assert _seal(path).sealed == ()
    assert not canary(path, _identity(path)).proved
    assert {table.state for table in store(path).tables} == {"absent"}


def test_nothing_is_sealed_through_a_fence_that_was_left(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite")
    fence = Fence(path, _identity(path), url=URL)
    with fence:
        pass
    with pytest.raises(RuntimeError, match="not entered"):
        fence.plant()


def test_reading_after_a_seal_leaves_the_folder_alone(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=1)
    _seal(path)
    before = folder(tmp_path)
    assert counts(store(path)) == (1, 0)
    assert folder(tmp_path) == before

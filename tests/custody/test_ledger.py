"""The ledger stops with its own sentence wherever it cannot be believed, and is durable before it returns."""

import errno
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nl_cutover.custody import states
from nl_cutover.custody.directory import LEDGER, store_locks
from nl_cutover.custody.journal import Change
from nl_cutover.custody.ledger import ActionEntry, ArchiveEntry, Ledger, RunFacts, move_action, move_archive
from nl_cutover.custody.reading import LedgerReader
from nl_cutover.errors import CustodyError, RefusedError

FACTS = RunFacts(id="run-1", created_at=1, url="u", plane_id="p", data_root="r", owner="o", plan_digest="d")
CLOCK = iter(range(10**9)).__next__


def opened(folder: Path) -> Ledger:
    ledger = Ledger(folder / "custody", CLOCK)
    ledger.begin(FACTS)
    return ledger


def entry(key="a", content="c", **more) -> ArchiveEntry:
    return ArchiveEntry(key=key, content_digest=content, digest="d", store="s1", **more)


def states_of(ledger: Ledger, table="archives") -> dict[str, str]:
    return dict(ledger.read(f"SELECT key, state FROM {table}"))


def test_rows_enter_once_whatever_the_number_of_runs_and_stores(tmp_path):
    with opened(tmp_path) as ledger:
        for store in ("s1", "s2", "s1"):
            ledger.add_archives([ArchiveEntry("a", "c", "d", store)])
            ledger.add_actions([ActionEntry("x", "d", store)])
        assert states_of(ledger) == {"a": "pending"}
        assert states_of(ledger, "actions") == {"x": "pending"}
        assert ledger.read("SELECT count(*) FROM origins") == [(4,)]


@pytest.mark.parametrize("table", ["archives", "actions"])
def test_only_the_steps_of_the_state_machine_are_taken(tmp_path, table):
    moves = states.ARCHIVE_MOVES if table == "archives" else states.ACTION_MOVES
    move = move_archive if table == "archives" else move_action
    names = sorted({*moves, *(s for sources in moves.values() for s in sources)})
    for to, sources in moves.items():
        for source in names:
            folder = tmp_path / f"{to}-{source}"
            with opened(folder) as ledger:
                ledger.add_archives([entry()])
                ledger.add_actions([ActionEntry("a", "d", "s1")])
                ledger.commit(Change(f"UPDATE {table} SET state = ?", (source,), None))
                if source in sources:
                    ledger.commit(move(1, to))
                    assert states_of(ledger, table) == {"a": to}
                else:
                    with pytest.raises(CustodyError, match="state machine"):
                        ledger.commit(move(1, to))
                    assert states_of(ledger, table) == {"a": source}


def test_a_step_that_is_refused_keeps_nothing_of_its_group_and_ends_the_ledger(tmp_path):
    with opened(tmp_path) as ledger:
        ledger.add_archives([entry("a"), entry("b")])
        with pytest.raises(CustodyError):
            ledger.commit(move_archive(1, "intended"), move_archive(2, "confirmed"))
        assert states_of(ledger) == {"a": "pending", "b": "pending"}
        with pytest.raises(CustodyError):
            ledger.commit(move_archive(1, "intended"))


def test_a_commit_is_on_disk_when_it_returns(tmp_path):
    """The process is killed right after; a thread that never returned may leave anything."""
    code = (
        "import os, sys; from pathlib import Path; sys.path.insert(0, sys.argv[2]); "
        "from tests.custody.test_ledger import opened, entry, move_archive; "
        "ledger = opened(Path(sys.argv[1])); ledger.add_archives([entry()]); "
        "ledger.commit(move_archive(1, 'intended')); os.kill(os.getpid(), 9)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(root)], check=False)
    assert done.returncode == -signal.SIGKILL
    with opened(tmp_path) as ledger:
        assert states_of(ledger) == {"a": "intended"}
        assert ledger.recover() == 1
        assert states_of(ledger) == {"a": "unknown"}
        assert ledger.recover() == 0


def test_a_ledger_whose_log_is_gone_stops_the_run_and_looking_at_it_takes_nothing_away(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; sys.path.insert(0, sys.argv[2]); "
        "from tests.custody.test_ledger import opened, entry, move_archive; "
        "ledger = opened(Path(sys.argv[1])); ledger.add_archives([entry()]); "
        "ledger.commit(move_archive(1, 'intended')); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path), str(Path(__file__).parents[2])], check=False)
    with LedgerReader(tmp_path / "custody") as reader:
        assert reader.counts().archives == {"intended": 1}
    log = tmp_path / "custody" / f"{LEDGER}-wal"
    kept = log.read_bytes()
    log.unlink()
    with pytest.raises(CustodyError, match=r"log .* is missing"):
        Ledger(tmp_path / "custody", CLOCK)
    log.write_bytes(kept)
    with opened(tmp_path) as ledger:
        assert states_of(ledger) == {"a": "intended"}
    assert not log.exists(), "at rest it is one file"


def test_many_threads_commit_in_groups_and_lose_nothing(tmp_path):
    with opened(tmp_path) as ledger:
        ledger.add_archives([entry(f"k{i:03}") for i in range(160)])

        def work(start: int) -> None:
            for number in range(start, 161, 8):
                ledger.commit(move_archive(number, "intended"))
                ledger.commit(move_archive(number, "delivered", archive_id=f"n{number}"))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ledger.read("SELECT state, count(*) FROM archives GROUP BY 1") == [("delivered", 160)]


def test_two_processes_do_not_share_a_custody(tmp_path):
    with opened(tmp_path):
        with pytest.raises(RefusedError, match=f"pid {os.getpid()}"):
            Ledger(tmp_path / "custody", CLOCK)
    opened(tmp_path).__exit__()


def test_a_missing_ledger_never_starts_over(tmp_path):
    opened(tmp_path).__exit__()
    (tmp_path / "custody" / LEDGER).unlink()
    with pytest.raises(CustodyError, match="missing"):
        Ledger(tmp_path / "custody", CLOCK)
    with pytest.raises(CustodyError, match="missing"):
        LedgerReader(tmp_path / "custody")
    assert not (tmp_path / "custody" / LEDGER).exists()


@pytest.mark.parametrize(
    "tear",
    [
        lambda body: b"",
        lambda body: body[: len(body) // 2],
        lambda body: b"\0" * len(body),
        lambda body: body[:8192] + os.urandom(4096) + body[12288:],
        lambda body: b"garbage" * 1000,
    ],
    ids=["emptied", "halved", "zeroed", "a page lost", "another file"],
)
def test_a_torn_ledger_stops_the_run(tmp_path, tear):
    with opened(tmp_path) as ledger:
        ledger.add_archives([entry(f"k{i}") for i in range(200)])
    path = tmp_path / "custody" / LEDGER
    path.write_bytes(tear(path.read_bytes()))
    torn = path.read_bytes()
    with pytest.raises(CustodyError):
        Ledger(tmp_path / "custody", CLOCK)
    assert path.read_bytes() == torn, "it is kept as it is, for whoever can mend it"


def test_a_ledger_of_another_program_or_a_newer_version_is_not_touched(tmp_path):
    opened(tmp_path).__exit__()
    path = tmp_path / "custody" / LEDGER
    connection = sqlite3.connect(path)
    connection.execute(
        "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('ledger', 'm999', 'x')"
    )
    connection.commit()
    connection.close()
    with pytest.raises(CustodyError, match="newer"):
        Ledger(tmp_path / "custody", CLOCK)
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    with pytest.raises(CustodyError, match="not a ledger"):
        Ledger(tmp_path / "custody", CLOCK)


def test_custody_that_others_may_enter_is_refused(tmp_path):
    opened(tmp_path).__exit__()
    (tmp_path / "custody").chmod(0o755)
    with pytest.raises(RefusedError, match="0755"):
        Ledger(tmp_path / "custody", CLOCK)
    assert (tmp_path / "custody" / LEDGER).stat().st_mode & 0o077 == 0


def test_another_plane_or_owner_is_another_custody(tmp_path):
    import msgspec

    with opened(tmp_path) as ledger:
        for change in ({"plane_id": "other"}, {"data_root": "other"}, {"owner": "other"}):
            with pytest.raises(RefusedError, match="another --custody"):
                try:
                    ledger.begin(msgspec.structs.replace(FACTS, **change))
                except RefusedError as error:
                    raise RefusedError(error.hint) from None


def full_connect(*_: object):
    with sqlite3.connect(":memory:") as small:
        small.execute("PRAGMA max_page_count = 1")
        small.execute("CREATE TABLE one (a)")


def full_write(*_: object):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(("what", "full"), [("runpy.run_path", full_connect), ("os.pwrite", full_write)])
def test_a_disk_that_is_full_from_the_start_is_no_fault_and_no_damage(tmp_path, monkeypatch, what, full):
    with monkeypatch.context() as patch:
        patch.setattr(what, full)
        with pytest.raises(CustodyError) as found:
            Ledger(tmp_path / "custody", lambda: 0)
    assert "make room" in found.value.hint
    with Ledger(tmp_path / "custody", lambda: 0):
        pass  # with room again, the same command goes on


def test_a_full_disk_stops_before_anything_could_be_sent(tmp_path):
    """A limit on the file's size stands for the disk: SQLite meets the same error."""
    with opened(tmp_path) as ledger:
        ledger.add_archives([entry(f"k{i}") for i in range(50)])
        pages = ledger.read("PRAGMA page_count")[0][0]
        ledger.read(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(CustodyError, match="disk is full"):
            ledger.add_archives([entry(f"l{i}", "c" * 500) for i in range(200)])
        with pytest.raises(CustodyError):
            ledger.commit(move_archive(1, "intended"))
        assert ledger.read("SELECT DISTINCT state FROM archives") == [("pending",)]


def test_a_row_that_was_changed_after_it_was_sent_is_refused_with_both_digests_and_the_others_go_on(tmp_path):
    with opened(tmp_path) as ledger:
        ledger.add_archives([entry("a", "c1"), entry("b", "c1")])
        ledger.add_actions([ActionEntry("x", "d1", "s1")])
        ledger.commit(move_archive(1, "intended"), move_action(1, "intended"))
        ledger.add_archives([entry("a", "c2"), entry("c", "c1")])
        ledger.add_actions([ActionEntry("x", "d2", "s1"), ActionEntry("y", "d", "s1")])
        ledger.refuse_changed()
        found = ledger.read("SELECT key, content_digest, state, reason FROM archives ORDER BY id")
        assert found[2] == ("a", "c2", "refused", "changed on the host after it was sent: c2 now, c1 was sent")
        assert [row[2] for row in found] == ["intended", "pending", "refused", "pending"]
        assert [s for (s,) in ledger.read("SELECT state FROM actions ORDER BY id")] == [
            "intended",
            "refused",
            "pending",
        ]


def test_rows_that_the_host_took_back_before_they_were_sent_are_forgotten(tmp_path):
    with opened(tmp_path) as ledger:
        ledger.add_archives([entry("gone"), entry("stays"), entry("sent")])
        ledger.commit(move_archive(3, "intended"))
        ledger.forget_unsent(["s1"])
        ledger.add_archives([entry("stays")])
        ledger.drop_vanished()
        assert states_of(ledger) == {"stays": "pending", "sent": "intended"}


def test_what_a_plan_refused_follows_the_next_plan_and_what_was_sent_does_not(tmp_path):
    with opened(tmp_path) as ledger:
        ledger.add_archives([entry("a", refusal="no slot"), entry("b")])
        ledger.add_actions([ActionEntry("x", "d", "s1", refusal="too large")])
        ledger.commit(move_archive(2, "intended"))
        ledger.add_archives([entry("a", identity="SLOT", call_digest="c"), entry("b", refusal="late")])
        ledger.add_actions([ActionEntry("x", "d", "s1")])
        assert states_of(ledger) == {"a": "pending", "b": "intended"}
        assert states_of(ledger, "actions") == {"x": "pending"}
        assert ledger.read("SELECT identity, call_digest, reason, refused_by FROM archives WHERE id = 1") == [
            ("SLOT", "c", "", "")
        ]
        ledger.add_archives([entry("a", refusal="no slot again")])
        assert states_of(ledger)["a"] == "refused"


def test_a_store_that_another_run_holds_is_named_and_no_folder_of_locks(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with (
        store_locks(["fe00-1"]),
        pytest.raises(RefusedError, match=rf"^another nl-cutover \(pid {os.getpid()}\) works with store fe00-1$"),
        store_locks(["fe00-1"]),
    ):
        pass

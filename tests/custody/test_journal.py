"""Group commit: whoever comes first commits for all that wait, and each is told what became of its own change."""

from __future__ import annotations

import random
import sqlite3
import threading
from contextlib import closing

import pytest

from nl_cutover.custody.journal import Change, Journal
from nl_cutover.errors import CustodyError


class Watched(sqlite3.Connection):
    """Counts commits; `before` is called with each statement."""

    commits = 0
    before = staticmethod(lambda sql: None)

    def execute(self, sql, *parameters):
        self.before(sql)
        self.commits += sql == "COMMIT"
        return super().execute(sql, *parameters)


@pytest.fixture
def path(tmp_path):
    with closing(sqlite3.connect(tmp_path / "one.sqlite")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE taken (n INTEGER PRIMARY KEY)")
    return tmp_path / "one.sqlite"


@pytest.fixture
def connection(path):
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Watched)) as made:
        yield made


def take(number: int) -> Change:
    return Change("INSERT INTO taken VALUES (?)", (number,))


def taken(path) -> set[int]:
    with closing(sqlite3.connect(path)) as other:
        return {number for (number,) in other.execute("SELECT n FROM taken")}


def in_threads(count, work):
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a worker still waits for its commit"


def test_a_change_is_durable_when_its_worker_goes_on_and_workers_share_commits(path, connection):
    journal, missing = Journal(connection), []

    def work(number):
        pause = random.Random(number)
        for at in range(20):
            mine = number * 100 + at
            journal.commit(take(mine))
            if mine not in taken(path):
                missing.append(mine)
            threading.Event().wait(pause.random() / 1000)

    in_threads(8, work)
    assert (missing, len(taken(path))) == ([], 160)
    assert connection.commits < 160


def test_a_commit_that_fails_is_told_to_all_of_its_group_and_to_all_that_come_later(path, connection):
    journal, told = Journal(connection), []
    held, goes_on = threading.Event(), threading.Event()

    def hold(sql):
        held.set()
        goes_on.wait(10)

    connection.before = hold
    first = threading.Thread(target=journal.commit, args=(take(1),), daemon=True)
    first.start()
    assert held.wait(10)
    connection.before = lambda sql: None

    def work(number):
        try:
            journal.commit(take(1 if number == 3 else 10 + number))
        except CustodyError:
            told.append(number)

    waiting = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(6)]
    for thread in waiting:
        thread.start()
    while len(journal._waiting) < 6:
        threading.Event().wait(0.01)
    goes_on.set()
    for thread in [first, *waiting]:
        thread.join(10)
    assert sorted(told) == [0, 1, 2, 3, 4, 5]
    assert taken(path) == {1}
    with pytest.raises(CustodyError):
        journal.commit(take(2))
    assert taken(path) == {1}


@pytest.mark.parametrize("when", ["BEGIN IMMEDIATE", "INSERT INTO taken VALUES (?)", "COMMIT"])
def test_ctrl_c_in_a_commit_leaves_the_ledger_as_it_was_and_others_go_on(path, connection, when):
    journal, told = Journal(connection), []

    def interrupt(sql):
        if sql == when:
            connection.before = lambda sql: None
            other = threading.Thread(target=work, daemon=True)
            other.start()
            while len(journal._waiting) < 1:
                threading.Event().wait(0.01)
            threads.append(other)
            raise KeyboardInterrupt

    def work():
        journal.commit(take(2))
        told.append(2)

    threads: list[threading.Thread] = []
    connection.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        journal.commit(take(1))
    threads[0].join(10)
    assert (told, taken(path)) == ([2], {2}), "another worker's change is committed by itself"
    journal.commit(take(3))
    assert taken(path) == {2, 3}


def test_a_worker_whose_change_was_taken_up_by_an_interrupted_commit_is_told(path, connection):
    journal, told = Journal(connection), []

    def work():
        try:
            journal.commit(take(2))
        except CustodyError as error:
            told.append(str(error))

    other = threading.Thread(target=work, daemon=True)

    def interrupt(sql):
        if sql.startswith("INSERT"):
            raise KeyboardInterrupt

    with journal._lock:
        other.start()
        while not journal._waiting:
            threading.Event().wait(0.01)
        connection.before = interrupt
        with pytest.raises(KeyboardInterrupt):
            journal._commit()
    other.join(10)
    assert told == ["the ledger lost a change: its commit was interrupted"]
    assert taken(path) == set()


def test_what_waits_when_the_ledger_is_closed_is_committed_and_what_comes_later_is_refused(path, connection):
    journal, told = Journal(connection), []

    def work():
        journal.commit(take(1))
        told.append(1)

    both = [threading.Thread(target=run, daemon=True) for run in (work, journal.close)]
    with journal._lock:
        both[0].start()
        while not journal._waiting:
            threading.Event().wait(0.01)
        both[1].start()
    for thread in both:
        thread.join(10)
    assert (told, taken(path)) == ([1], {1}), "whichever of them came first"
    with pytest.raises(CustodyError):
        journal.commit(take(2))

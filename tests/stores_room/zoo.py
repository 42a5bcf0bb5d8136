"""Stores in every state, writers in their own processes, and a look at a folder that misses nothing."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from nl_cutover.contract.rows import ACTIONS, ARCHIVES, DDL
from nl_cutover.stores.checkouts import Checkout, discover
from nl_cutover.stores.measurement import Options, measure
from nl_cutover.stores.report import Report, StoreReport
from nl_cutover.stores.tables import Accounts

INITIAL = "pid:[4026531836]"
SEES_ALL = os.geteuid() == 0 and os.path.lexists("/proc/self/ns/pid") and os.readlink("/proc/self/ns/pid") == INITIAL

T = TypeVar("T")
NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
MS = 1_780_000_000_000
STORE = Path(".neo-ai-data/sqlite/memory-core-graph.sqlite")
INDICES = (
    f"CREATE INDEX idx_nl_action_log_sequence ON {ACTIONS}(sequence_id)",
    f"CREATE INDEX idx_nl_transaction_archive_archived ON {ARCHIVES}(archived_at)",
)

INSERT_ACTION = (
    f"INSERT INTO {ACTIONS} (id, agent_id, sequence_id, timestamp, tool, args, result, success) "
    f"VALUES (?, 'neo', 'neo_1', {MS}, 'get_component_tree', '{{}}', '{{}}', 1)"
)
INSERT_ARCHIVE = (
    f"INSERT INTO {ARCHIVES} (archive_id, source_tx_id, origin_writer, committed_at, archived_at, ops) "
    f'VALUES (?, \'tx\', \'{{"agentId":"neo","sessionId":"s"}}\', {MS}, {MS}, \'[{{}}]\')'
)

_WRITER = """
import sqlite3, sys, json
c = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
c.execute('pragma wal_autocheckpoint=0')
print('ready', flush=True)
for line in sys.stdin:
    try:
        result = [c.execute(sql, args).fetchall() for sql, args in json.loads(line)]
        print(json.dumps({'rows': result}), flush=True)
    except sqlite3.Error as error:
        print(json.dumps({'error': str(error), 'name': error.sqlite_errorname}), flush=True)
"""


class Writer:
    """A recorder's connection in a process of its own."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-I", "-S", "-c", _WRITER, os.fspath(path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._line()

    @property
    def pid(self) -> int:
        return self.process.pid

    def try_(self, *statements: str | tuple[str, list[Any]]) -> dict[str, Any]:
        """The rows of each statement, or the error that SQLite gave."""
        assert self.process.stdin
        calls = [(s, []) if isinstance(s, str) else s for s in statements]
        self.process.stdin.write(json.dumps(calls) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line())
        return answer

    def run(self, *statements: str | tuple[str, list[Any]]) -> list[Any]:
        answer = self.try_(*statements)
        assert "rows" in answer, answer
        return list(answer["rows"])

    def archive(self, *keys: str) -> None:
        self.run(*((INSERT_ARCHIVE, [key]) for key in keys))

    def action(self, *keys: str) -> None:
        self.run(*((INSERT_ACTION, [key]) for key in keys))

    def stop(self) -> None:
        self.process.communicate(timeout=10)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=10)

    def _line(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the writer died"
        return line


@contextmanager
def writer(path: Path) -> Iterator[Writer]:
    made = Writer(path)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.kill()


def plant(path: Path, *, archives: int = 0, actions: int = 0, wal: bool = True, tables: bool = True) -> Path:
    """A cleanly closed store as the recorder makes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        if wal:
            connection.execute("PRAGMA journal_mode=wal")
        connection.execute("BEGIN")
        if tables:
            for sql in (*DDL.values(), *INDICES):
                connection.execute(sql)
            connection.executemany(INSERT_ARCHIVE, [(f"a{n:05}",) for n in range(archives)])
            connection.executemany(INSERT_ACTION, [(f"l{n:05}",) for n in range(actions)])
        connection.execute("COMMIT")
    return path


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def folder(root: Path) -> dict[str, object]:
    """Names, kinds, inodes, sizes, mtimes and bytes of everything below `root`."""
    found: dict[str, object] = {}
    for where, folders, files in os.walk(os.fsencode(root)):
        for name in (*folders, *files, b"."):
            path = os.path.join(where, name)
            facts = os.lstat(path)
            content: object = None
            if stat.S_ISREG(facts.st_mode):
                with open(path, "rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
            elif stat.S_ISLNK(facts.st_mode):
                content = os.readlink(path)
            found[os.fsdecode(path)] = (facts.st_mode, facts.st_ino, facts.st_size, facts.st_mtime_ns, content)
    return found


def checkouts(
    *paths: Path, home: Path | None = None, environ: Mapping[str, str] | None = None, **more: Any
) -> list[Checkout]:
    return discover(list(paths), environ=environ or {}, home=home or Path("/nonexistent"), **more)


def report(
    *paths: Path,
    environ: Mapping[str, str] | None = None,
    accounts: Accounts | None = None,
    options: Options | None = None,
    **more: Any,  # of `discover`
) -> Report:
    """Measure these paths; the folder of each must be as it was."""
    return measure(
        checkouts(*paths, environ=environ, **more),
        clock=lambda: NOW,
        environ=environ or {},
        accounts=accounts,
        options=options,
    )


def store(*paths: Path, **more: Any) -> StoreReport:
    """Measure and return the only store."""
    (found,) = report(*paths, closed=True, **more).stores
    return found


def counts(found: StoreReport) -> tuple[int | None, int | None]:
    """(archives, actions); None when not measured."""
    return found.table(ARCHIVES).rows, found.table(ACTIONS).rows


def reason(found: StoreReport) -> str:
    """Why the store was not measured; both tables must say so, with a hint."""
    assert counts(found) == (None, None), counts(found)
    assert {table.state for table in found.tables} == {"unmeasurable"}
    assert all(table.hint and table.unaccounted is None for table in found.tables)
    return found.tables[0].reason


def as_nobody(function: Callable[[], T]) -> T:
    """Run in a forked child without any rights: as root, `chmod` denies nothing."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            answer = pickle.dumps((True, function()))
        except BaseException as error:
            answer = pickle.dumps((False, repr(error)))
        with os.fdopen(send, "wb") as file:
            file.write(answer)
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as file:
        done, value = pickle.loads(file.read())
    os.waitpid(child, 0)
    assert done, value
    result: T = value
    return result

"""Durable changes, committed in groups: a worker returns only when its change is on disk."""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import CustodyError


class Change(msgspec.Struct, frozen=True):
    """One statement. It must touch exactly `rows` rows (None: any number), or nothing of its group is kept."""

    sql: str
    parameters: tuple[Any, ...] = ()
    rows: int | None = 1


class _Item:
    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes
        self.done = threading.Event()
        self.error: CustodyError | None = None


class Journal:
    """The one connection of a ledger. Reads are short and exhausted; writes go through the committing thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._failed: CustodyError | None = None
        self._thread = threading.Thread(target=self._work, name="nl-cutover-journal", daemon=True)
        self._thread.start()

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise custody_error(error) from error

    def commit(self, *changes: Change) -> None:
        """Make the changes durable together. Raises CustodyError; after that nothing more may be sent."""
        item = _Item(changes)
        self._queue.put(item)
        item.done.wait()
        if item.error is not None:
            raise item.error

    def fold(self) -> bool:
        """Fold the log into the file; whether all of it is there now, durably."""
        with self._lock:
            try:
                busy, *_ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.Error:
                return False
        return not busy

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        with self._lock:  # a worker that nobody waits for any more may still be reading
            self._connection.close()

    def _work(self) -> None:
        stop = False
        while not stop:
            group = [self._queue.get()]
            while True:
                try:
                    group.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            stop = None in group
            items = [item for item in group if item is not None]
            if items:
                self._commit(items)

    def _commit(self, items: list[_Item]) -> None:
        try:
            if self._failed is not None:
                raise self._failed
            with self._lock:
                self._apply(items)
        except BaseException as error:
            # Whatever it was: a worker must never take a change for durable that is not.
            failed = (
                error if isinstance(error, CustodyError) else CustodyError(f"the ledger failed: {type(error).__name__}")
            )
            self._failed = failed
            for item in items:
                item.error = failed
        finally:
            for item in items:
                item.done.set()

    def _apply(self, items: list[_Item]) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for change in (change for item in items for change in item.changes):
                touched = self._connection.execute(change.sql, change.parameters).rowcount
                if change.rows is not None and touched != change.rows:
                    raise CustodyError("the ledger refuses a step that its state machine does not know")
            self._connection.execute("COMMIT")
        except BaseException as error:
            try:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                pass
            if isinstance(error, sqlite3.Error):
                raise custody_error(error) from error
            raise


def custody_error(error: sqlite3.Error) -> CustodyError:
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    if name == "SQLITE_FULL":
        return CustodyError(
            "the ledger cannot be written: the disk is full. Nothing is sent that cannot be journalled",
            "make room on the disk that holds the custody directory, then give the same command again",
        )
    return CustodyError(
        f"the ledger cannot be used ({name}): {error}",
        "keep the file as it is; bring it back from a backup, or ask for help with it",
    )

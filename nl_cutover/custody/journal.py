"""Durable changes, committed in groups: a worker returns only when its change is on disk."""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
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
    """Changes that wait for a commit. `outcome`: True once they are durable, the error if they are not, None before."""

    __slots__ = ("changes", "outcome")

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes
        self.outcome: bool | CustodyError | None = None


class Journal:
    """The one connection of a ledger. Reads are short and exhausted.

    Changes that are handed over while a commit is under way become durable together in the next one, made by whoever
    comes first: no thread is waited for that has nothing else to do.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._waiting: deque[_Item] = deque()
        self._failed: CustodyError | None = None

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise custody_error(error) from error

    def commit(self, *changes: Change) -> None:
        """Make the changes durable together. Raises CustodyError; after that nothing more may be sent."""
        item = _Item(changes)
        self._waiting.append(item)
        with self._lock:
            if item.outcome is None:
                self._commit()
        if item.outcome is not True:
            raise item.outcome or CustodyError("the ledger lost a change: its commit was interrupted")

    def fold(self) -> bool:
        """Fold the log into the file; whether all of it is there now, durably."""
        with self._lock:
            self._commit()
            try:
                busy, *_ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.Error:
                return False
        return not busy

    def close(self) -> None:
        with self._lock:  # a worker that nobody waits for any more may still be reading, or have an answer in hand
            self._commit()
            self._connection.close()

    def _commit(self) -> None:
        """Commit all that waits, and tell each item. Ctrl-C is passed on, and nobody is told that it is done."""
        items = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not items:
            return
        outcome: bool | CustodyError
        try:
            if self._failed is not None:
                raise self._failed
            self._apply(items)
            outcome = True
        except Exception as error:
            # Whatever it was: a worker must never take a change for durable that is not.
            outcome = self._failed = (
                error if isinstance(error, CustodyError) else CustodyError(f"the ledger failed: {type(error).__name__}")
            )
        for item in items:
            item.outcome = outcome

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

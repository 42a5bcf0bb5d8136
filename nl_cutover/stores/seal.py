"""The seal: the only module that opens a host store for writing. It adds and removes triggers, and nothing else stays.

Closing must leave the owner's log alone. The last connection of a store checkpoints it and unlinks its `-wal`, unless
it cannot have the file for itself: so a read-only connection of this process stays open while the writing one closes,
and a read-only one neither checkpoints nor unlinks.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from ..contract.rows import DDL, KEY, TABLES
from ..errors import CutoverError, RefusedError
from ..verdicts import Zero
from .failures import explain, name_of
from .holders import Holders, holders_of
from .identity import Identity, Located, identity_of, relocate
from .paths import shown, uri
from .reader import Limits, read_store
from .report import TableReport
from .sealing import MARK, PREFIX, SealState, Updates, seal_state, triggers, unmarked
from .tables import Accounts, Table, find, quoted, walk

_OURS = " /* made by nl-cutover to be sealed */)"
_DEFAULT_TIMEOUT_MS = 5_000


class Canary(msgspec.Struct, frozen=True):
    """Tables whose seal refused an insert, and tables that let one through (it was taken back)."""

    refused: tuple[str, ...]
    open: tuple[str, ...]

    @property
    def proved(self) -> bool:
        return bool(self.refused) and not self.open


class Fence:
    """One write transaction on a store: while it stands no row can be written, and what it planted is undone unless
    `commit` is called. `url` and `by` are what its seal will say, see `sealing`.

    Entering raises RefusedError, naming the holders, when the store stays locked; UnmeasurableError when it cannot
    be read as it should or is another file than `identity`.
    """

    def __init__(
        self, path: Path, identity: Identity, *, busy_timeout_ms: int = _DEFAULT_TIMEOUT_MS, url: str = "", by: str = ""
    ) -> None:
        self._path = path
        self._identity = identity
        self._timeout_ms = busy_timeout_ms
        self._url, self._by = url, by
        self._writing: sqlite3.Connection | None = None
        self._keeping: sqlite3.Connection | None = None
        self._holders: Holders | None = None

    def __enter__(self) -> Self:
        located = relocate(self._path, self._identity)
        self._holders = holders_of([located])[located.identity.id]
        _owned(located)
        read_store(located, self._holders, lambda opened: None, limits=Limits(self._timeout_ms))
        try:
            self._open(located)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.rollback()
        finally:
            self._close()

    def measure(self, accounts: Accounts | None = None) -> tuple[TableReport, ...]:
        """Both tables, counted inside the transaction by the walk that `measure` uses."""
        connection = self._connection
        seal = seal_state(connection)
        try:
            tables = [walk(connection, name, accounts) for name in TABLES]
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from error
        return tuple(
            msgspec.structs.replace(table, zero=Zero.SEALED if table.name in seal.sealed else Zero.LIVE)
            if table.rows == 0
            else table
            for table in tables
        )

    def plant(
        self, tables: Iterable[str] = TABLES, *, create_missing: bool = False, updates: Updates = Updates.ALLOW
    ) -> SealState:
        """Seal these tables; one that is missing is left out, or made so that it can be sealed. Idempotent."""
        connection = self._connection
        try:
            present = []
            for name in tables:
                found = find(connection, name)
                if isinstance(found, Table):
                    present.append(name)
                elif found.reason.startswith("no table") and create_missing:
                    connection.execute(DDL[name].removesuffix(")") + _OURS)
                    present.append(name)
                elif not found.reason.startswith("no table"):
                    raise RefusedError(f"{shown(self._path)} cannot be sealed: {found.reason}", "measure it first")
            wanted = triggers(tuple(present), updates, self._url, self._by)
            standing = {
                trigger: sql
                for trigger, sql in self.ours().items()
                if trigger.startswith(PREFIX) and trigger.endswith(tuple(present))
            }
            for trigger in standing:
                if unmarked(wanted.get(trigger, ("", ""))[1]) != unmarked(standing[trigger]):
                    connection.execute(f"DROP TRIGGER main.{quoted(trigger)}")
            for trigger, (_, sql) in wanted.items():
                if unmarked(standing.get(trigger, "")) != unmarked(sql):
                    connection.execute(sql)
            return seal_state(connection)
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from error

    def ours(self) -> dict[str, str]:
        """Name to SQL of the seal's triggers, as they were planted; a table made to be sealed stands under its own name."""
        found = self._connection.execute(
            "SELECT name, sql FROM main.sqlite_master WHERE type = 'trigger' AND substr(name, 1, ?) = ? "
            "OR type = 'table' AND substr(sql, -?) = ? ORDER BY rowid",
            (len(PREFIX), PREFIX, len(_OURS), _OURS),
        ).fetchall()
        return {str(name): str(sql) for name, sql in found if name.startswith(PREFIX) or name in TABLES}

    def lift(self, to: Mapping[str, str] = {}) -> SealState:
        """Remove the seal, or bring back the one that `ours` told. Returns what stood. Idempotent.

        A table made for it goes too, if it is empty.
        """
        connection = self._connection
        before = seal_state(connection)
        try:
            if (standing := self.ours()) == to:
                return before
            for name in standing:
                if name in TABLES:
                    if name not in to and connection.execute(f"SELECT 1 FROM main.{name} LIMIT 1").fetchone() is None:
                        connection.execute(f"DROP TABLE main.{name}")
                else:
                    connection.execute(f"DROP TRIGGER IF EXISTS main.{quoted(name)}")
            for name, sql in to.items():
                if name not in TABLES:
                    connection.execute(sql)
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from error
        return before

    def commit(self) -> None:
        """Make it stand. Raises RefusedError, with nothing changed, when a reader keeps a rollback store locked."""
        if _identity_now(self._path) != self._identity:
            self.rollback()
            raise RefusedError(
                f"{shown(self._path)} was replaced while it was fenced: nothing was changed", "measure again"
            )
        try:
            self._connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            self.rollback()
            raise self._explained(error) from error

    def rollback(self) -> None:
        """Undo everything since the fence was entered or committed."""
        if self._writing is not None and self._writing.in_transaction:
            self._writing.execute("ROLLBACK")

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._writing is None:
            raise RuntimeError("the fence is not entered")
        return self._writing

    def _open(self, located: Located) -> None:
        seconds = self._timeout_ms / 1000
        try:
            self._writing = sqlite3.connect(
                uri(located.path, mode="rw"), uri=True, isolation_level=None, timeout=seconds
            )
            for pragma in ("wal_autocheckpoint=0", "trusted_schema=0", "synchronous=FULL"):
                self._writing.execute(f"PRAGMA {pragma}")
            self._writing.execute("BEGIN IMMEDIATE")
            # After the writing one: the first connection of a process decides how shared memory is mapped.
            self._keeping = sqlite3.connect(uri(located.path, mode="ro"), uri=True, isolation_level=None)
            self._keeping.execute("SELECT count(*) FROM main.sqlite_master").fetchone()
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from error
        if _identity_now(located.path) != self._identity:
            raise RefusedError(f"{shown(located.path)} was replaced while it was opened", "measure again")

    def _close(self) -> None:
        for connection in (self._writing, self._keeping):  # the order is the point, see the module's docstring
            if connection is not None:
                connection.close()
        self._writing = self._keeping = None

    def _explained(self, error: sqlite3.Error) -> CutoverError:
        assert self._holders is not None
        explained = explain(error, self._path, self._holders, self._timeout_ms / 1000)
        if name_of(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_READONLY")):
            return RefusedError(f"{explained.message}; nothing was changed", explained.hint)
        return explained


def canary(path: Path, identity: Identity, *, busy_timeout_ms: int = _DEFAULT_TIMEOUT_MS) -> Canary:
    """Try to insert one row into each table that is there, as a recorder would. The row is never committed."""
    refused: list[str] = []
    passed: list[str] = []
    with Fence(path, identity, busy_timeout_ms=busy_timeout_ms) as fence:
        connection = fence._connection
        for name in TABLES:
            table = find(connection, name)
            if isinstance(table, Table):
                (refused if _refuses(connection, table) else passed).append(name)
    return Canary(tuple(refused), tuple(passed))


def unseal(
    path: Path, identity: Identity, to: Mapping[str, str] = {}, *, busy_timeout_ms: int = _DEFAULT_TIMEOUT_MS
) -> SealState:
    """`Fence.lift` for one store."""
    with Fence(path, identity, busy_timeout_ms=busy_timeout_ms) as fence:
        before = fence.lift(to)
        fence.commit()
    return before


def _refuses(connection: sqlite3.Connection, table: Table) -> bool:
    key = table.columns.get(KEY[table.name])
    columns = f"({quoted(key)}) VALUES ('nl-cutover-canary')" if key is not None else "DEFAULT VALUES"
    connection.execute("SAVEPOINT canary")
    try:
        connection.execute(f"INSERT INTO {table.source} {columns}")
    except sqlite3.IntegrityError as error:
        # A NOT NULL column refuses the row too, after the trigger had its chance: only the sentence is a proof.
        return str(error).startswith(MARK)
    finally:
        connection.execute("ROLLBACK TO canary")
        connection.execute("RELEASE canary")
    return False


def _owned(located: Located) -> None:
    if os.geteuid() not in (0, located.owner):
        raise RefusedError(
            f"{shown(located.path)} belongs to uid {located.owner}, this is uid {os.geteuid()}: "
            "sidecars made now would lock the owner out",
            "run as the store's owner",
        )


def _identity_now(path: Path) -> Identity | None:
    try:
        return identity_of(os.stat(path))
    except OSError:
        return None


__all__ = ["Canary", "Fence", "SealState", "Updates", "canary", "seal_state", "unseal"]

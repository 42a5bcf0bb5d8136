"""A private copy of a store, made by SQLite's backup API inside the read transaction that counts it.

Source rows are read from snapshots only: no transaction stays open on a host store while the network is waited for.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from ..contract.rows import COLUMNS, KEY, TABLES, Row, Text
from ..durability import make_durable
from ..errors import CustodyError, RefusedError, UnmeasurableError
from .failures import name_of
from .holders import holders_of
from .identity import SIDECARS, StoreId, relocate
from .paths import shown, uri
from .reader import Limits, Opened, read_store
from .report import StoreReport, TableReport
from .tables import Table, find, quoted, walk

_STEP = 8_192  # pages between two chances for Ctrl-C


class Snapshot(msgspec.Struct, frozen=True):
    """`counts`: rows of each table that the store holds. The file is in rollback mode and never written again."""

    store: StoreId
    path: Path
    counts: dict[str, int]
    version: str


def snapshot(store: StoreReport, directory: Path, *, limits: Limits | None = None) -> Snapshot:
    """Copy a measured store to `<directory>/<store id>.sqlite` (mode 0600) and count the copy again.

    Raises RefusedError when the destination or a sidecar of it exists, UnmeasurableError when the store cannot be
    read or is not the one that was measured, CustodyError when the copy cannot be written or differs.
    """
    _measured(store.tables)
    located = relocate(store.location, store.identity)
    target = directory / f"{store.id}.sqlite"
    for suffix in ("", *SIDECARS):
        if os.path.lexists(f"{target}{suffix}"):
            raise RefusedError(
                f"{shown(target)}{suffix} exists: a snapshot is never written over another file",
                "use an empty custody directory, or remove what a broken run left there",
            )
    partial = Path(f"{target}.partial")
    try:
        _discard(partial)
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o600))
        tables, opened = read_store(
            located,
            holders_of([located])[store.id],
            lambda opened: _copied(opened, partial),
            limits=limits,
            look_again=lambda: holders_of([located])[store.id],
        )
        make_durable(partial)
        os.rename(partial, target)
        make_durable(directory)
    except OSError as error:
        raise CustodyError(
            f"the snapshot {shown(target)} could not be written ({error.strerror})", "check the disk and its free space"
        ) from error
    finally:
        _discard(partial)
    return Snapshot(store.id, target, _counts(tables), opened.facts.version)


def rows(snapshot: Snapshot, table: str) -> Iterator[Row]:
    """Every row of `table`, ordered by key (storage class, then bytes), twins in the order they were stored.

    Columns that an older schema lacks are None. One row in memory at a time; the connection lives as long as the
    iterator.
    """
    with closing(sqlite3.connect(uri(snapshot.path, mode="ro", immutable=1), uri=True)) as connection:
        found = find(connection, table)
        if not isinstance(found, Table):
            return
        connection.text_factory = Text
        for values in connection.execute(f"SELECT {found.selected} FROM {found.source} ORDER BY {_order(found)}"):
            yield Row(table, values)


def _order(table: Table) -> str:
    # With the key's own binary index this needs no sorting; an older schema without a key keeps its stored order.
    key = table.columns.get(KEY[table.name])
    terms = [f"{quoted(key)} COLLATE BINARY"] if key is not None else []
    if table.has_rowid:
        terms.append("rowid")
    else:
        terms += [quoted(table.columns[c]) for c in COLUMNS[table.name] if c in table.columns]
    return ", ".join(terms)


def _copied(opened: Opened, partial: Path) -> list[TableReport]:
    tables = [walk(opened.connection, name) for name in TABLES]
    _measured(tables)
    try:
        with closing(sqlite3.connect(uri(partial, mode="rw"), uri=True, isolation_level=None)) as copy:
            opened.connection.backup(copy, pages=_STEP, progress=lambda *_: None)
            copy.execute("PRAGMA journal_mode=DELETE")  # a WAL store brings its mode along
            again = [walk(copy, name) for name in TABLES]
    except sqlite3.DatabaseError as error:
        raise CustodyError(
            f"the snapshot {shown(partial)} could not be written ({name_of(error)})",
            "check the disk and its free space",
        ) from error
    if again != tables:
        raise CustodyError(
            f"the snapshot {shown(partial)} counts {_counts(again)}, the store {_counts(tables)}",
            "check the disk; nothing was sent",
        )
    return tables


def _measured(tables: Iterable[TableReport]) -> None:
    for table in tables:
        if table.state == "unmeasurable":
            raise UnmeasurableError(table.reason, table.hint)


def _counts(tables: Iterable[TableReport]) -> dict[str, int]:
    return {table.name: table.rows for table in tables if table.rows is not None}


def _discard(partial: Path) -> None:
    for suffix in ("", *SIDECARS):
        Path(f"{partial}{suffix}").unlink(missing_ok=True)

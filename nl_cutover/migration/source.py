"""Source rows out of private snapshots: the host stores themselves are never read while the network is waited for."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..contract.rows import COLUMNS, KEY, Row, Text, key_of_text
from ..errors import RefusedError


class SourceStore(msgspec.Struct, frozen=True):
    """A store's snapshot. `tables` are the tables that it holds; `path` is the snapshot, `store_path` the store."""

    id: str
    store_path: str
    path: Path
    tables: tuple[str, ...]


class Source:
    """The snapshots of a run, shared by its workers."""

    def __init__(self, stores: list[SourceStore]) -> None:
        self.stores = {store.id: store for store in stores}
        self._connections: dict[str, sqlite3.Connection] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()

    def rows(self, store: SourceStore, table: str) -> Iterator[Row]:
        """Every row, in the byte order of its key. Flat in memory."""
        if table not in store.tables:
            return
        with self._open(store) as connection:
            for values in connection.execute(
                f"SELECT {', '.join(COLUMNS[table])} FROM main.{table} ORDER BY CAST({KEY[table]} AS BLOB), 1, 2, 3, 4"
            ):
                yield Row(table, values)

    def fetch(self, store_id: str, table: str, key: str, digest: str) -> Row:
        """The row with this key and digest. Raises RefusedError when the snapshot does not hold it."""
        columns = ", ".join(COLUMNS[table])
        with self._lock:
            connection = self._connections.get(store_id)
            if connection is None:
                connection = self._connections[store_id] = self._open(self.stores[store_id]).connection
            found = connection.execute(
                f"SELECT {columns} FROM main.{table} WHERE {KEY[table]} = ?", (key_of_text(key),)
            ).fetchall()
        for values in found:
            row = Row(table, values)
            if row.digest == digest:
                return row
        raise RefusedError(f"row {key} of {table} is no longer in store {store_id} as it was planned")

    def holds(self, store_id: str) -> bool:
        return store_id in self.stores

    def _open(self, store: SourceStore) -> _Opened:
        connection = sqlite3.connect(
            store.path.absolute().as_uri() + "?mode=ro&immutable=1", uri=True, check_same_thread=False
        )
        connection.text_factory = Text
        return _Opened(connection)


class _Opened:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __enter__(self) -> sqlite3.Connection:
        return self.connection

    def __exit__(self, *_: object) -> None:
        self.connection.close()

"""Source rows out of private snapshots: the host stores themselves are never read while the network is waited for."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator

import msgspec

from ..contract.rows import COLUMNS, KEY, Row, Text, key_of_text
from ..errors import RefusedError
from ..stores.snapshot import Snapshot, rows


class SourceStore(msgspec.Struct, frozen=True):
    """A store's private snapshot; `path` is the store's own, as it is shown."""

    path: str
    snapshot: Snapshot

    @property
    def id(self) -> str:
        return self.snapshot.store


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
        """Every row, in the order of its key. Flat in memory."""
        return rows(store.snapshot, table)

    def fetch(self, store_id: str, table: str, key: str, digest: str) -> Row:
        """The row with this key and digest. Raises RefusedError when the snapshot does not hold it."""
        columns = ", ".join(COLUMNS[table])
        with self._lock:
            connection = self._connections.get(store_id)
            if connection is None:
                address = self.stores[store_id].snapshot.path.absolute().as_uri() + "?mode=ro&immutable=1"
                connection = sqlite3.connect(address, uri=True, check_same_thread=False)
                connection.text_factory = Text
                self._connections[store_id] = connection
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

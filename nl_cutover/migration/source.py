"""Source rows out of private snapshots: the host stores themselves are never read while the network is waited for."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

import msgspec

from ..contract.rows import ACTIONS, COLUMNS, KEY, Row, Text, key_of_text
from ..errors import RefusedError
from ..stores.paths import shown
from ..stores.snapshot import Snapshot, rows
from ..stores.tables import Table, find, quoted
from ..verdicts import Absent, Unmeasurable


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
        self._selects: dict[tuple[str, str], str] = {}
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

    def extra(self, store: SourceStore, table: str) -> dict[str, int]:
        """`TABLE.COLUMN`, as shown, of each column that the contract does not know, and how many rows have a value."""
        found = self._find(store.id, table)
        if not isinstance(found, Table):
            return {}
        unknown = [stored for lower, stored in found.columns.items() if lower not in COLUMNS[table]]
        return {
            f"{table}.{shown(c)}": self._ask(store.id, f"SELECT count({quoted(c)}) FROM {found.source}", ())[0][0]
            for c in unknown
        }

    def gaps(self, store: SourceStore, gap_ms: float) -> list[tuple[bytes, float]]:
        """(sequence id, timestamp) of each action that comes more than `gap_ms` after the one before it, in order."""
        if not store.snapshot.counts.get(ACTIONS):
            return []
        found = self._ask(
            store.id,
            "SELECT sequence_id, timestamp FROM (SELECT sequence_id, timestamp, timestamp - lag(timestamp) OVER "
            "(PARTITION BY sequence_id ORDER BY timestamp) AS gap FROM main.nl_action_log "
            "WHERE typeof(timestamp) IN ('integer', 'real') AND timestamp BETWEEN 946684800000 AND 4102444800000 "
            "AND typeof(sequence_id) = 'text' AND sequence_id <> '') "
            "WHERE gap > ? ORDER BY 1, 2",
            (gap_ms,),
        )
        return [(bytes(sequence), float(at)) for sequence, at in found]

    def fetch(self, store_id: str, table: str, key: str, digest: str) -> Row:
        """The row with this key and digest. Raises RefusedError when the snapshot does not hold it."""
        for values in self._ask(store_id, self._select(store_id, table), (key_of_text(key),)):
            row = Row(table, values)
            if row.digest == digest:
                return row
        raise RefusedError(f"row {key} of {table} is no longer in store {store_id} as it was planned")

    def _select(self, store_id: str, table: str) -> str:
        """SQL for the rows with a key, in the contract's columns whatever the schema's age."""
        known = self._selects.get((store_id, table))
        if known is None:
            found = self._find(store_id, table)
            if not isinstance(found, Table) or KEY[table] not in found.columns:
                raise RefusedError(f"{table} of store {store_id} has no key by which a row could be found")
            known = f"SELECT {found.selected} FROM {found.source} WHERE {quoted(found.columns[KEY[table]])} = ?"
            self._selects[store_id, table] = known
        return known

    def _find(self, store_id: str, table: str) -> Table | Absent | Unmeasurable:
        with self._lock:
            connection = self._connection(store_id)
            connection.text_factory = str  # the schema is text; rows are bytes with a storage class
            try:
                return find(connection, table)
            finally:
                connection.text_factory = Text

    def _ask(self, store_id: str, sql: str, parameters: tuple[object, ...]) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._connection(store_id).execute(sql, parameters).fetchall()

    def _connection(self, store_id: str) -> sqlite3.Connection:
        connection = self._connections.get(store_id)
        if connection is None:
            address = self.stores[store_id].snapshot.path.absolute().as_uri() + "?mode=ro&immutable=1"
            connection = sqlite3.connect(address, uri=True, check_same_thread=False)
            connection.text_factory = Text
            self._connections[store_id] = connection
        return connection

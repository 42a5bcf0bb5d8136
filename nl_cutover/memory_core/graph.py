"""The graph: `Nodes` and `Edges` in SQLite, in front of them the process-wide node cache of the real server."""

from __future__ import annotations

import importlib.util
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlite_utils import Database, Migrations

from ..contract.rows import ACTIONS, ARCHIVES
from ..errors import RefusedError
from ..resources import resource
from .jsontext import parse, stringify

SCHEMA_VERSIONS = {"graph": 1, "memory-session": 1}
BUSY_TIMEOUT_MS = 5_000

_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"

Node = dict[str, Any]  # {id, label, properties: {name, description, updatedAt, ..., userId?, visibility?}}


def open_graph(path: Path, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> Graph:
    """Open or create a graph; parent folders are made.

    Raises RefusedError for a file that cannot be opened or is no graph of schema version 1.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(_connect(path, busy_timeout_ms)) as connection:
            _refuse_other_version(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            graph_migrations().apply(Database(connection, recursive_triggers=False))
        return Graph(_connect(path, busy_timeout_ms))
    except (OSError, sqlite3.Error) as failure:
        raise RefusedError(f"{path} cannot be served as a graph: {failure}", "point --db at another file") from None


def _connect(path: Path, busy_timeout_ms: int) -> sqlite3.Connection:
    # Autocommit: an answered row must survive kill -9, and the real server commits each upsert by itself.
    connection = sqlite3.connect(path, timeout=busy_timeout_ms / 1000, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    return connection


def migrate_graph(path: Path) -> list[str]:
    """Bring a graph's schema up to date; the file is made if absent. Returns the names of the migrations applied.

    Raises RefusedError as `open_graph` does, and for a Neural Link's host store, which nothing here may write to.
    """
    with _as_refusal(path):
        if path.exists():
            with closing(_reader(path)) as connection:
                _refuse_host_store(connection, path)
                _refuse_other_version(connection, path)
        with closing(_connect(path, BUSY_TIMEOUT_MS)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            database = Database(connection, recursive_triggers=False)
            before = {migration.name for migration in graph_migrations().applied(database)}
            graph_migrations().apply(database)
            return [m.name for m in graph_migrations().applied(database) if m.name not in before]


@contextmanager
def open_migrated(path: Path, *, read_only: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection to a graph that stands and whose schema is up to date. Raises RefusedError."""
    with _as_refusal(path):
        with closing(_reader(path)) as connection:
            _refuse_host_store(connection, path)
            _refuse_other_version(connection, path)
            pending = graph_migrations().pending(Database(connection, recursive_triggers=False))
        if pending:
            raise RefusedError(f"{path} lacks {pending[0].name}", f"nl-cutover graph migrate --db {path}")
        connection = _reader(path) if read_only else _connect(path, BUSY_TIMEOUT_MS)
    with closing(connection):
        yield connection


@contextmanager
def _as_refusal(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as failure:
        raise RefusedError(f"{path} cannot be used as a graph: {failure}", "point --db at another file") from None


def _reader(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_MS / 1000)


def _refuse_host_store(connection: sqlite3.Connection, path: Path) -> None:
    for table in (ARCHIVES, ACTIONS):
        if connection.execute(_TABLE, (table,)).fetchone() is not None:
            raise RefusedError(
                f"{path} holds {table}: it is a Neural Link's host store, not a Memory Core's graph",
                "name the graph of the Memory Core: --db PATH",
            )


def _refuse_other_version(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute(_TABLE, ("SchemaVersion",)).fetchone() is None:
        return
    for row in connection.execute("SELECT id, version FROM SchemaVersion"):
        known = SCHEMA_VERSIONS.get(row[0])
        if known is not None and row[1] != known:
            part = "" if row[0] == "graph" else f" of {row[0]}"
            raise RefusedError(
                f"{path} is a graph of schema version {row[1]}{part}; this Memory Core knows version {known}",
                "serve it with the Memory Core that wrote it, or point --db at another file",
            )


def graph_migrations() -> Migrations:
    spec = importlib.util.spec_from_file_location("nl_cutover_graph_migrations", resource("migrations", "graph.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    migrations = module.migrations
    assert isinstance(migrations, Migrations)
    return migrations


def _visible(node: Node, user: str | None) -> bool:
    properties = node["properties"]
    owner = properties.get("userId")
    return user is None or owner is None or owner == user or properties.get("visibility") == "team"


class Graph:
    """Nodes by id. Hold `lock` around a read and the write that depends on it.

    Writes raise sqlite3.Error; the cache has changed by then, as in the real server.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.lock = threading.RLock()
        self._connection = connection
        self._cache: dict[str, str] = {}

    def close(self) -> None:
        with self.lock:
            self._connection.close()

    def node(self, node_id: str, user: str | None) -> Node | None:
        """The node if `user` may see it. Another user's node and no node look the same (row-level ownership)."""
        with self.lock:
            node = self._load(node_id)
        return node if node is not None and _visible(node, user) else None

    def upsert(
        self,
        node_id: str,
        label: str,
        name: str,
        updated_at: int,
        properties: Mapping[str, Any],
        *,
        user: str | None,
        cached: bool = True,
    ) -> None:
        """Insert or merge a node: old properties, then name and time, then `properties` (GraphService.upsertNode).

        `updated_at`: ms since epoch. Raises sqlite3.Error; RecursionError for a value nested too deep to be written.
        """
        with self.lock:
            existing = self._load(node_id) if cached else None
            merged = {
                **(existing["properties"] if existing else {}),
                "name": name,
                "description": "",
                "updatedAt": updated_at,
                **properties,
            }
            if user is not None:
                merged.setdefault("userId", user)
            text = stringify({"id": node_id, "label": label, "properties": merged})
            # Before the write, on purpose: after a failed one the real server goes on with what it has in memory.
            if cached:
                self._cache[node_id] = text
            self._connection.execute(
                "INSERT INTO Nodes (id, user_id, data) VALUES (?, ?, ?) "
                "ON CONFLICT(id) DO UPDATE SET user_id = excluded.user_id, data = excluded.data",
                (node_id, merged.get("userId"), text),
            )

    def prune(self, label: str, older_than: float, limit: int) -> int:
        """Delete at most `limit` nodes whose `timestamp` is a number below `older_than`, oldest first.

        Nodes of a label have ids `<label>:...`; one that is not JSON stays. Returns how many were deleted; all of them
        or, on sqlite3.Error, none.
        """
        at = "json_extract(data, '$.properties.timestamp')"
        with self.lock:
            found = self._connection.execute(
                f"SELECT id FROM Nodes WHERE id > ? AND id < ? AND CASE WHEN json_valid(data) THEN {at} < ? "
                "AND json_extract(data, '$.label') = ? "
                f"AND json_type(data, '$.properties.timestamp') IN ('integer', 'real') END ORDER BY {at} LIMIT ?",
                (f"{label}:", f"{label};", older_than, label, limit),
            ).fetchall()
            if not found:
                return 0
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany("DELETE FROM Nodes WHERE id = ?", found)
                self._connection.execute("COMMIT")
            except sqlite3.Error:
                self._connection.execute("ROLLBACK")
                raise
            for (node_id,) in found:
                self._cache.pop(node_id, None)
        return len(found)

    def _load(self, node_id: str) -> Node | None:
        text = self._cache.get(node_id)
        if text is None:
            try:
                row = self._connection.execute("SELECT data FROM Nodes WHERE id = ?", (node_id,)).fetchone()
            except UnicodeEncodeError:  # a lone surrogate cannot be bound as TEXT, so no stored id has one
                return None
            if row is None:
                return None
            text = self._cache[node_id] = row[0]
        node: Node = parse(text)
        return node

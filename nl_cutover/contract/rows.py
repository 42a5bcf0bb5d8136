"""Source rows as they stand in a host store: SQLite's storage class and bytes, nothing decoded.

Columns and types: the recorder's own DDL (neo#16202; RecorderService of Neo 13).
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import msgspec

ACTIONS = "nl_action_log"
ARCHIVES = "nl_transaction_archive"
TABLES = (ACTIONS, ARCHIVES)

COLUMNS: dict[str, tuple[str, ...]] = {
    ACTIONS: (
        "id",
        "agent_id",
        "session_id",
        "sequence_id",
        "timestamp",
        "tool",
        "args",
        "result",
        "success",
        "duration_ms",
        "app_name",
        "reward",
    ),
    ARCHIVES: (
        "archive_id",
        "name",
        "source_tx_id",
        "source_agent_id",
        "source_agent_session_id",
        "app_session_id",
        "origin_writer",
        "committed_at",
        "archived_at",
        "ops",
        "replay_count",
        "last_replayed_at",
    ),
}
KEY: dict[str, str] = {ACTIONS: "id", ARCHIVES: "archive_id"}

DDL: dict[str, str] = {
    ACTIONS: (
        "CREATE TABLE nl_action_log (id TEXT PRIMARY KEY, agent_id TEXT NOT NULL, session_id TEXT, "
        "sequence_id TEXT NOT NULL, timestamp INTEGER NOT NULL, tool TEXT NOT NULL, args TEXT NOT NULL, result TEXT, "
        "success INTEGER DEFAULT 0, duration_ms INTEGER, app_name TEXT, reward REAL DEFAULT NULL)"
    ),
    ARCHIVES: (
        "CREATE TABLE nl_transaction_archive (archive_id TEXT PRIMARY KEY, name TEXT, source_tx_id TEXT NOT NULL, "
        "source_agent_id TEXT, source_agent_session_id TEXT, app_session_id TEXT, origin_writer TEXT NOT NULL, "
        "committed_at INTEGER, archived_at INTEGER NOT NULL, ops TEXT NOT NULL, replay_count INTEGER DEFAULT 0, "
        "last_replayed_at INTEGER)"
    ),
}


class Text(bytes):
    """A TEXT value: the UTF-8 bytes that SQLite hands out, NUL bytes included. A BLOB is plain `bytes`."""

    __slots__ = ()


Value = None | int | float | Text | bytes


@lru_cache(maxsize=16)
def _names(columns: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(_HEAD(b"t", len(name)) + name for name in (column.encode() for column in columns))


_HEAD = struct.Struct(">cQ").pack
_REAL = struct.Struct(">cQd").pack
_NULL = _HEAD(b"n", 0)


def row_digest(columns: Sequence[str], values: Sequence[Value]) -> str:
    """SHA-256 (hex) over names, storage classes and bytes, each length-prefixed: no value can pass for another."""
    parts: list[bytes] = []
    for name, value in zip(_names(tuple(columns)), values, strict=True):
        kind = type(value)
        if value is None:
            parts += name, _NULL
        elif kind is Text:
            parts += name, _HEAD(b"t", len(value)), value  # type: ignore[arg-type]
        elif kind is int:
            digits = str(value).encode("ascii")
            parts += name, _HEAD(b"i", len(digits)), digits
        elif kind is float:
            parts += name, _REAL(b"r", 8, value)
        else:
            parts += name, _HEAD(b"b", len(value)), value  # type: ignore[arg-type]
    return hashlib.sha256(b"".join(parts)).hexdigest()


class Row(msgspec.Struct, frozen=True):
    """One source row. `values` follow `COLUMNS[table]`."""

    table: str
    values: tuple[Value, ...]

    def __getitem__(self, column: str) -> Value:
        return self.values[COLUMNS[self.table].index(column)]

    @property
    def key(self) -> Value:
        """The value of the primary key; None and non-text keys are possible in SQLite and are refused later."""
        return self[KEY[self.table]]

    @property
    def digest(self) -> str:
        return row_digest(COLUMNS[self.table], self.values)

    @property
    def content_digest(self) -> str:
        """The digest without the columns that a replay changes: the same archive before and after a replay."""
        kept = [i for i, name in enumerate(COLUMNS[self.table]) if name not in ("replay_count", "last_replayed_at")]
        return row_digest([COLUMNS[self.table][i] for i in kept], [self.values[i] for i in kept])


class Twins:
    """Tells rows of one table apart that have no key and equal contents, so that each is accounted for by itself."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def tell(self, key: Value, digest: str) -> str:
        """The digest; for the nth row without a key that has it, `DIGEST#n`. Which of equals is which does not matter."""
        if key is not None:
            return digest
        self._seen[digest] += 1
        return f"{digest}#{self._seen[digest]}" if self._seen[digest] > 1 else digest


def key_text(value: Value, digest: str) -> str:
    """A key in words, injective: text as it is, anything else marked with `~` (SQLite allows NULL and blob keys)."""
    match value:
        case None:
            return f"~null:{digest}"
        case Text():
            try:
                text = value.decode("utf-8")
            except UnicodeDecodeError:
                return f"~text:{value.hex()}"
            return f"~text:{value.hex()}" if text.startswith("~") else text
        case bytes():
            return f"~blob:{value.hex()}"
        case _:
            return f"~{type(value).__name__}:{value!r}"


def key_of_text(text: str) -> str:
    """The text key that `key_text` put into words. Raises ValueError for keys that are not text."""
    if text.startswith("~text:"):
        return bytes.fromhex(text.removeprefix("~text:")).decode("utf-8")
    if text.startswith("~"):
        raise ValueError("not a text key")
    return text

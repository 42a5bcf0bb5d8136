"""The seal as data: names and SQL of the triggers, and what stands of them in a store. Reads only."""

from __future__ import annotations

import sqlite3
from enum import StrEnum

import msgspec

from ..contract.rows import ARCHIVES, TABLES
from .paths import shown

PREFIX = "nl_cutover_seal_"
MARK = "sealed by nl-cutover"


class Updates(StrEnum):
    """Whether an UPDATE of an archive (a replay counts itself there) goes on working under the seal."""

    ALLOW = "allow"
    REFUSE = "refuse"


class SealState(msgspec.Struct, frozen=True):
    """Tables whose inserts are refused, whether archive updates are, and triggers of ours that are not as planted."""

    sealed: tuple[str, ...] = ()
    updates_refused: bool = False
    foreign: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return self.sealed == TABLES and not self.foreign


def sentence(url: str) -> str:
    """What a recorder gets to read when it tries to write."""
    return f"{MARK}: this store has moved to the Memory Core, use {url}"


def triggers(tables: tuple[str, ...], updates: Updates, url: str) -> dict[str, tuple[str, str]]:
    """Trigger name to (table, SQL as `sqlite_schema` keeps it)."""
    made = {f"{PREFIX}insert_{table}": (table, _sql("insert", "INSERT", table, url)) for table in tables}
    if updates is Updates.REFUSE and ARCHIVES in tables:
        made[f"{PREFIX}update_{ARCHIVES}"] = (ARCHIVES, _sql("update", "UPDATE", ARCHIVES, url))
    return made


def _sql(word: str, event: str, table: str, url: str) -> str:
    text = sentence(url).replace("'", "''")
    return f"CREATE TRIGGER {PREFIX}{word}_{table} BEFORE {event} ON {table} BEGIN SELECT RAISE(ABORT, '{text}'); END"


def seal_state(connection: sqlite3.Connection) -> SealState:
    """What of the seal stands in the store behind `connection`."""
    found = connection.execute(
        "SELECT name, tbl_name, sql FROM main.sqlite_master WHERE type = 'trigger' AND substr(name, 1, ?) = ?",
        (len(PREFIX), PREFIX),
    ).fetchall()
    sealed: set[str] = set()
    foreign: list[str] = []
    updates = False
    for name, table, sql in found:
        lower = str(table).lower()
        if name == f"{PREFIX}insert_{lower}" and lower in TABLES and _is_ours(sql, "insert", "INSERT", lower):
            sealed.add(lower)
        elif name == f"{PREFIX}update_{ARCHIVES}" and _is_ours(sql, "update", "UPDATE", ARCHIVES):
            updates = True
        else:
            foreign.append(shown(name))
    return SealState(tuple(t for t in TABLES if t in sealed), updates, tuple(sorted(foreign)))


def _is_ours(sql: str, word: str, event: str, table: str) -> bool:
    start, _, rest = _sql(word, event, table, "\0").partition("\0")
    return sql.startswith(start) and sql.endswith(rest) and "'" not in sql[len(start) : -len(rest)].replace("''", "")

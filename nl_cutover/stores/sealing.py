"""The seal as data: names and SQL of the triggers, and what stands of them in a store. Reads only."""

from __future__ import annotations

import re
import sqlite3
from enum import StrEnum

import msgspec

from ..contract.rows import ARCHIVES, TABLES
from .paths import shown

PREFIX = "nl_cutover_seal_"
MARK = "sealed by nl-cutover"
_BY = re.compile(r" /\* cut ([0-9TZ:.-]+) \*/(?= END\Z)")


class Updates(StrEnum):
    """Whether an UPDATE of an archive (a replay counts itself there) goes on working under the seal."""

    ALLOW = "allow"
    REFUSE = "refuse"


class SealState(msgspec.Struct, frozen=True):
    """Tables whose inserts are refused, whether archive updates are, and triggers of ours that are not as planted.

    `by`: when the newest cut that planted one of them began (RFC 3339); empty where no cut did.
    """

    sealed: tuple[str, ...] = ()
    updates_refused: bool = False
    foreign: tuple[str, ...] = ()
    by: str = ""

    @property
    def complete(self) -> bool:
        return self.sealed == TABLES and not self.foreign


def sentence(url: str) -> str:
    """What a recorder gets to read when it tries to write."""
    return f"{MARK}: this store has moved to the Memory Core, use {url}"


def triggers(tables: tuple[str, ...], updates: Updates, url: str, by: str = "") -> dict[str, tuple[str, str]]:
    """Trigger name to (table, SQL as `sqlite_schema` keeps it). `by` is the cut that plants them, see SealState."""
    made = {f"{PREFIX}insert_{table}": (table, _sql("insert", "INSERT", table, url, by)) for table in tables}
    if updates is Updates.REFUSE and ARCHIVES in tables:
        made[f"{PREFIX}update_{ARCHIVES}"] = (ARCHIVES, _sql("update", "UPDATE", ARCHIVES, url, by))
    return made


def unmarked(sql: str) -> str:
    """A trigger's SQL without the cut that planted it."""
    return _BY.sub("", sql)


def _sql(word: str, event: str, table: str, url: str, by: str = "") -> str:
    text, mark = sentence(url).replace("'", "''"), f" /* cut {by} */" if by else ""
    return (
        f"CREATE TRIGGER {PREFIX}{word}_{table} BEFORE {event} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{text}');{mark} END"
    )


def seal_state(connection: sqlite3.Connection) -> SealState:
    """What of the seal stands in the store behind `connection`."""
    found = connection.execute(
        "SELECT name, tbl_name, sql FROM main.sqlite_master WHERE type = 'trigger' AND substr(name, 1, ?) = ?",
        (len(PREFIX), PREFIX),
    ).fetchall()
    sealed: set[str] = set()
    foreign: list[str] = []
    cuts = [""]
    updates = False
    for name, table, sql in found:
        lower = str(table).lower()
        if name == f"{PREFIX}insert_{lower}" and lower in TABLES and _is_ours(sql, "insert", "INSERT", lower):
            sealed.add(lower)
            cuts += _BY.findall(sql)
        elif name == f"{PREFIX}update_{ARCHIVES}" and _is_ours(sql, "update", "UPDATE", ARCHIVES):
            updates = True
        else:
            foreign.append(shown(name))
    return SealState(tuple(t for t in TABLES if t in sealed), updates, tuple(sorted(foreign)), max(cuts))


def _is_ours(sql: str, word: str, event: str, table: str) -> bool:
    start, _, rest = _sql(word, event, table, "\0").partition("\0")
    sql = unmarked(sql)
    return sql.startswith(start) and sql.endswith(rest) and "'" not in sql[len(start) : -len(rest)].replace("''", "")

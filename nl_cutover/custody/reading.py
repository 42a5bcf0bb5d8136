"""The ledger as others read it: never written, never locked, no more than what is asked."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ..contract.rows import ARCHIVES, Value, key_text
from ..errors import CustodyError
from ..wording import counted
from . import directory as custody

_MAPPED = (
    "SELECT key, archive_id, digest, content_digest, nullif(call_digest, ''), identity, custodian, "
    "coalesce(bytes_equal, 0), marks_wanted, marks_made, host_facts, state = 'confirmed', "
    "(SELECT group_concat(store, ' ') FROM origins WHERE row_table = 'archives' AND row_id = archives.id) "
    "FROM archives WHERE archive_id IS NOT NULL"
)


Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Counts(msgspec.Struct, frozen=True):
    """Rows by state. The states of a table are disjoint and add up to `rows`."""

    archives: dict[str, int]
    marks_wanted: int
    marks_made: int
    marks_unknown: int
    actions: dict[str, int]


class Mapped(msgspec.Struct, frozen=True):
    """One archive's way: `old` id in the host stores, `new` id in MC. `host` keeps what MC cannot carry.

    Three digests, SHA-256 in hex: `digest` is of the source row, column by column (`contract.rows.row_digest`);
    `content_digest` of the row without `replay_count` and `last_replayed_at`; `carried_digest` of what MC was given and
    gives back (`contract.archives.carried_digest`). `bytes_equal`: `ops` and `originWriter` came back to the byte.
    """

    old: str
    new: str
    digest: Digest
    content_digest: Digest
    identity: str  # the credential slot that saved it; "" is the default one
    custodian: str | None
    bytes_equal: bool
    marks_wanted: int
    marks_made: int
    host: dict[str, Any]
    confirmed: bool  # read back, and equal
    stores: list[str]
    carried_digest: Digest | None = None


class Odd(msgspec.Struct, frozen=True):
    """A row that is not where it should be, with the reason. `kind`: archive | action | batch | mark."""

    kind: str
    key: str
    state: str
    reason: str


class LedgerReader:
    """Reads a custody directory's ledger. Raises CustodyError where there is none or it cannot be read."""

    def __init__(self, directory: Path) -> None:
        path = directory / custody.LEDGER
        if not custody.exists(directory):
            raise CustodyError(
                f"there is no run in custody {directory}", "begin one with: nl-cutover migrate, or name its --custody"
            )
        try:
            self._connection = sqlite3.connect(path.absolute().as_uri() + "?mode=ro", uri=True, isolation_level=None)
            self._connection.execute("PRAGMA query_only = 1")
            self._connection.execute("SELECT one FROM run").fetchall()
        except sqlite3.DatabaseError as error:
            raise CustodyError(
                f"the ledger {path} cannot be read: {error}", "bring it back from a backup; it never starts over"
            ) from error
        self.directory = directory

    def __enter__(self) -> LedgerReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def run(self) -> dict[str, Any] | None:
        cursor = self._connection.execute("SELECT * FROM run")
        row = cursor.fetchone()
        return dict(zip((c[0] for c in cursor.description), row, strict=True)) if row else None

    def counts(self) -> Counts:
        ask = self._connection.execute
        wanted, made, unknown = ask(
            "SELECT coalesce(sum(marks_wanted), 0), coalesce(sum(marks_made), 0), "
            "coalesce(sum(marks_state = 'unknown'), 0) FROM archives WHERE state NOT IN ('refused', 'excluded')"
        ).fetchone()
        return Counts(
            dict(ask("SELECT state, count(*) FROM archives GROUP BY state").fetchall()),
            wanted,
            made,
            unknown,
            dict(ask("SELECT state, count(*) FROM actions GROUP BY state").fetchall()),
        )

    def custodians(self) -> list[str]:
        """Whose the archives are, as MC itself says; empty where it does not say."""
        asked = "SELECT DISTINCT custodian FROM archives WHERE custodian IS NOT NULL ORDER BY custodian"
        return [name for (name,) in self._connection.execute(asked)]

    def id_map(self) -> Iterator[Mapped]:
        """Every archive that MC is known to hold, by old id."""
        return map(_mapped, self._connection.execute(f"{_MAPPED} ORDER BY key, content_digest"))

    def mapped(self, key: str, content_digest: str, *, confirmed: bool = False) -> Mapped | None:
        """The way of this archive; else of another content that was saved under its key. `confirmed`: only those."""
        found = self._connection.execute(
            f"{_MAPPED} AND key = ? AND (state = 'confirmed' OR NOT ?) "
            "ORDER BY content_digest = ? DESC, content_digest DESC LIMIT 1",
            (key, confirmed, content_digest),
        ).fetchall()
        return _mapped(found[0]) if found else None

    def excluded(self) -> set[tuple[str, str]]:
        """(key, content digest) of archives that stay on the host by the operator's word."""
        return set(self._connection.execute("SELECT key, content_digest FROM archives WHERE state = 'excluded'"))

    def settled(self) -> list[dict[str, Any]]:
        """Every decision about an unknown outcome, in order, for the receipts."""
        cursor = self._connection.execute(
            "SELECT at, row_table AS what, key, decision, by, detail FROM settlements ORDER BY id"
        )
        return [dict(zip((c[0] for c in cursor.description), row, strict=True)) for row in cursor]

    def odd(self) -> list[Odd]:
        """Rows refused, unknown or different, by key: the short list that an operator must see."""
        ask = self._connection.execute
        found = [
            Odd("archive", *row)
            for row in ask(
                "SELECT key, state, reason FROM archives WHERE state IN ('refused', 'unknown', 'differs') "
                "OR (state = 'delivered' AND reason <> '') ORDER BY key"
            )
        ]
        found += [
            Odd("mark", *row)
            for row in ask(
                "SELECT key, iif(marks_state = 'unknown', 'unknown', 'pending'), reason FROM archives "
                "WHERE marks_state = 'unknown' OR (state = 'confirmed' AND marks_made < marks_wanted AND reason <> '') "
                "ORDER BY key"
            )
        ]
        found += [
            Odd("action", *row)
            for row in ask(
                "SELECT key, state, reason FROM actions WHERE state = 'refused' AND batch IS NULL ORDER BY key"
            )
        ]
        found += [
            Odd("batch", str(number), state, f"{counted(size, 'action|s')}, {admitted} admitted: {reason}")
            for number, state, size, admitted, reason in ask(
                "SELECT id, state, size, admitted, reason FROM batches WHERE state IN ('mixed', 'unknown') OR "
                "(state = 'refused' AND id IN (SELECT batch FROM actions WHERE state = 'refused')) ORDER BY id"
            )
        ]
        return found

    def carried_replays(self, key: str, content_digest: str) -> int | None:
        """The host's replay count of an archive when its row was last entered; None when MC is not known to hold it."""
        found = self._connection.execute(
            "SELECT json_extract(host_facts, '$.replay_count') FROM archives "
            "WHERE key = ? AND content_digest = ? AND state = 'confirmed'",
            (key, content_digest),
        ).fetchone()
        return found[0] or 0 if found else None

    def carried(self, table: str, key: str, digest: str) -> bool:
        """Whether this run sent the row, or may have: by its key in words, and an archive by its content digest."""
        rows = "archives WHERE content_digest" if table == ARCHIVES else "actions WHERE digest"
        kept = "('pending', 'refused', 'excluded', 'discarded')"
        asked = f"SELECT 1 FROM {rows} = ? AND key = ? AND state NOT IN {kept} LIMIT 1"
        return self._connection.execute(asked, (digest, key)).fetchone() is not None

    def accounts(self, table: str, key: Value, digest: str) -> bool:
        """Whether this very row, with this digest, is where it should be: the `Accounts` of a measurement."""
        carried = "state = 'confirmed' AND marks_made >= marks_wanted AND marks_state = 'idle'"
        placed = (
            f"state = 'excluded' OR {carried}"
            if table == ARCHIVES
            else "state IN ('admitted', 'discarded', 'excluded')"
        )
        return self._stands(table, key, digest, placed)

    def refused(self, table: str, key: Value, digest: str) -> bool:
        """Whether this very row was refused when it was last to be brought over."""
        return self._stands(table, key, digest, "state = 'refused'")

    def _stands(self, table: str, key: Value, digest: str, where: str) -> bool:
        held, of_row = "actions", "digest"
        if table == ARCHIVES:
            held, of_row = "archives a JOIN origins o ON o.row_table = 'archives' AND o.row_id = a.id", "o.digest"
        sql = f"SELECT 1 FROM {held} WHERE key = ? AND {of_row} = ? AND ({where})"
        return self._connection.execute(sql, (key_text(key, digest), digest)).fetchone() is not None


def _mapped(row: tuple[Any, ...]) -> Mapped:
    old, new, digest, content, carried, slot, custodian, equal, wanted, made, host, sure, stores = row
    facts, where = json.loads(host), sorted((stores or "").split())
    equal, sure = bool(equal), bool(sure)
    return Mapped(old, new, digest, content, slot, custodian, equal, wanted, made, facts, sure, where, carried)

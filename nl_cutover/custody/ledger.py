"""The ledger: which rows there are, what was intended, what became of it. Its own SQLite file, durable at each step.

`journal_mode=TRUNCATE`, `synchronous=FULL`: at rest the ledger is one file, so a copy of it cannot be an older truth.
"""

from __future__ import annotations

import runpy
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from .. import __version__
from ..errors import CustodyError, RefusedError
from ..resources import resource
from . import directory as custody
from .journal import Change, Journal
from .states import ACTION_MOVES, ARCHIVE_MOVES

APPLICATION_ID = 0x4E4C4355  # "NLCU"
_PAGE = 500


class RunFacts(msgspec.Struct, frozen=True):
    """What a run is bound to. Another URL or plane would split its rows between two graphs."""

    id: str
    created_at: int  # ms since epoch
    url: str
    plane_id: str | None
    data_root: str | None
    owner: str | None
    plan_digest: str | None = None
    clock_offset_ms: int = 0  # MC's clock minus ours, as its Date header said


class ArchiveEntry(msgspec.Struct, frozen=True):
    """An archive row as it enters the ledger; `refusal` is the plan's reason not to send it."""

    key: str
    content_digest: str
    digest: str
    store: str
    source_tx_id: str = ""
    call_digest: str = ""
    writer: str = ""
    identity: str = ""
    named: bool = True
    marks_wanted: int = 0
    refusal: str = ""


class ActionEntry(msgspec.Struct, frozen=True):
    key: str
    digest: str
    store: str
    refusal: str = ""


class ArchiveWork(msgspec.Struct, frozen=True):
    """An archive that still has something to be done; `store` is one of the stores that hold it."""

    id: int
    key: str
    digest: str
    store: str
    state: str
    named: int
    identity: str
    archive_id: str | None
    marks_wanted: int
    marks_made: int
    marks_state: str


class ActionWork(msgspec.Struct, frozen=True):
    id: int
    key: str
    digest: str
    store: str


class Ledger:
    """One custody directory's journal, locked for this process. `clock` answers ms since epoch."""

    def __init__(self, directory: Path, clock: Callable[[], int]) -> None:
        begun = custody.exists(directory)
        custody.create(directory)
        self.directory = directory
        self._clock = clock
        self._lock = custody.Lock(directory)
        try:
            connection = _connect(directory / custody.LEDGER, fresh=not begun)
        except BaseException:
            self._lock.close()
            raise
        self._journal = Journal(connection)
        if not begun:
            custody.mark_begun(directory)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()
        self._lock.close()

    # the run ---------------------------------------------------------------------------------------------------------

    @property
    def run(self) -> RunFacts | None:
        rows = self.read(
            "SELECT id, created_at, url, plane_id, data_root, owner, plan_digest, clock_offset_ms FROM run"
        )
        return RunFacts(*rows[0]) if rows else None

    def begin(self, facts: RunFacts) -> RunFacts:
        """Bind the ledger to a run, or check that it is bound to the same plane and owner. Raises RefusedError."""
        known = self.run
        if known is None:
            self.commit(
                Change(
                    "INSERT INTO run (one, id, created_at, tool_version, url, plane_id, data_root, owner, plan_digest, "
                    "clock_offset_ms) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (facts.id, facts.created_at, __version__, *msgspec.structs.astuple(facts)[2:]),
                )
            )
            return facts
        for name, was, now in (
            ("plane", known.plane_id, facts.plane_id),
            ("data root", known.data_root, facts.data_root),
            ("owner", known.owner, facts.owner),
        ):
            if was != now and not (name == "owner" and was is None):
                raise RefusedError(
                    f"run {known.id} in {self.directory} is bound to {name} {was or '(unnamed)'}, "
                    f"not to {now or '(unnamed)'}",
                    "use the same --url and --owner as before, or another --custody for another plane",
                )
        self.commit(
            Change(
                "UPDATE run SET plan_digest = ?, owner = coalesce(owner, ?), clock_offset_ms = ?",
                (facts.plan_digest, facts.owner, facts.clock_offset_ms),
            )
        )
        return msgspec.structs.replace(
            facts, id=known.id, created_at=known.created_at, owner=known.owner or facts.owner
        )

    # rows come in ----------------------------------------------------------------------------------------------------

    def forget_unsent(self, stores: Iterable[str]) -> None:
        """Before these stores are entered anew: rows never sent stand there only if they are entered again."""
        for store in stores:
            self.commit(
                *(
                    Change(
                        f"DELETE FROM origins WHERE row_table = '{table}' AND store = ? AND row_id IN "
                        f"(SELECT id FROM {table} WHERE state IN ('pending', 'left', 'refused'))",
                        (store,),
                        None,
                    )
                    for table in ("archives", "actions")
                )
            )

    def drop_vanished(self) -> None:
        """Rows never sent that no store holds any more: the host took them back."""
        self.commit(
            *(
                Change(
                    f"DELETE FROM {table} WHERE state IN ('pending', 'left', 'refused') AND NOT EXISTS "
                    f"(SELECT 1 FROM origins WHERE row_table = '{table}' AND row_id = {table}.id)",
                    (),
                    None,
                )
                for table in ("archives", "actions")
            )
        )

    def add_archives(self, entries: Iterable[ArchiveEntry]) -> None:
        """Enter rows not known yet. A known archive that was replayed since wants more marks, not another save."""
        for page in _pages(entries):
            self.commit(*(change for entry in page for change in _archive_changes(entry)))

    def add_actions(self, entries: Iterable[ActionEntry]) -> None:
        for page in _pages(entries):
            self.commit(*(change for entry in page for change in _action_changes(entry)))

    def conflicts(self) -> list[tuple[str, list[str]]]:
        """Keys under which different contents stand, each with its content digests."""
        rows = self.read(
            "SELECT key, group_concat(content_digest, ' ') FROM (SELECT key, content_digest FROM archives "
            "ORDER BY key, content_digest) GROUP BY key HAVING count(*) > 1"
        )
        return [(key, digests.split(" ")) for key, digests in rows]

    def recover(self) -> int:
        """Rows that a dead process left in flight become unknown. Returns how many there are."""
        reason = "the process ended between the intent and the outcome"
        in_flight = self.read("SELECT count(*) FROM archives WHERE state = 'intended'")[0][0]
        in_flight += self.read("SELECT count(*) FROM actions WHERE state = 'intended'")[0][0]
        self.commit(
            Change("UPDATE archives SET state = 'unknown', reason = ? WHERE state = 'intended'", (reason,), None),
            Change("UPDATE actions SET state = 'unknown', reason = ? WHERE state = 'intended'", (reason,), None),
            Change("UPDATE batches SET state = 'unknown', reason = ? WHERE state = 'intended'", (reason,), None),
        )
        return int(in_flight)

    def reopen_refused(self) -> None:
        """Rows that the server refused may be asked again: a refusal proves that nothing was stored."""
        again = "SET state = 'pending', reason = '' WHERE state = 'refused' AND "
        self.commit(
            Change(f"UPDATE archives {again} refused_by = 'server'", (), None),
            Change(f"UPDATE actions {again} batch IS NOT NULL", (), None),
        )

    # rows go out -----------------------------------------------------------------------------------------------------

    def archive_work(self) -> Iterator[ArchiveWork]:
        """Archives that want a save, a read-back or marks, in the order in which they came in."""
        after = 0
        while page := self.read(
            "SELECT a.id, a.key, a.digest, (SELECT min(store) FROM origins o WHERE o.row_table = 'archives' "
            "AND o.row_id = a.id), a.state, a.named, a.identity, a.archive_id, a.marks_wanted, a.marks_made, "
            "a.marks_state FROM archives a WHERE a.id > ? AND (a.state IN ('pending', 'delivered') OR (a.state = 'confirmed' "
            "AND (a.marks_made < a.marks_wanted OR a.marks_state = 'intended') AND a.marks_state <> 'unknown')) "
            "ORDER BY a.id LIMIT ?",
            (after, _PAGE),
        ):
            after = page[-1][0]
            yield from (ArchiveWork(*row) for row in page)

    def action_work(self) -> Iterator[ActionWork]:
        after = 0
        while page := self.read(
            "SELECT a.id, a.key, a.digest, (SELECT min(store) FROM origins o WHERE o.row_table = 'actions' "
            "AND o.row_id = a.id) FROM actions a WHERE a.state = 'pending' AND a.id > ? ORDER BY a.id LIMIT ?",
            (after, _PAGE),
        ):
            after = page[-1][0]
            yield from (ActionWork(*row) for row in page)

    def read(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self._journal.read(sql, parameters)

    def commit(self, *changes: Change) -> None:
        """Make changes durable, together, before returning. Raises CustodyError."""
        self._journal.commit(*changes)

    def now(self) -> int:
        return self._clock()


def move_archive(row_id: int, to: str, **columns: Any) -> Change:
    """A step of the state machine of `custody.states`."""
    return _move("archives", row_id, to, ARCHIVE_MOVES[to], columns)


def set_archive(row_id: int, **columns: Any) -> Change:
    """Facts about an archive that change no state."""
    assignments = ", ".join(f"{name} = ?" for name in columns)
    return Change(f"UPDATE archives SET {assignments} WHERE id = ?", (*columns.values(), row_id))


def move_action(row_id: int, to: str, **columns: Any) -> Change:
    return _move("actions", row_id, to, ACTION_MOVES[to], columns)


def _move(table: str, row_id: int, to: str, sources: frozenset[str], columns: dict[str, Any]) -> Change:
    assignments = "".join(f", {name} = ?" for name in columns)
    allowed = ", ".join(f"'{state}'" for state in sorted(sources))
    return Change(
        f"UPDATE {table} SET state = ?{assignments} WHERE id = ? AND state IN ({allowed})",
        (to, *columns.values(), row_id),
    )


# What an earlier plan refused, or nobody has sent yet, stands as the newest plan says.
_REPLANNED = ", ".join(
    f"{name} = CASE WHEN state = 'pending' OR refused_by = 'plan' AND state = 'refused' THEN excluded.{name} ELSE {name} END"
    for name in ("reason", "source_tx_id", "call_digest", "writer", "identity", "named", "refused_by", "state")
)


def _archive_changes(entry: ArchiveEntry) -> list[Change]:
    return [
        Change(
            "INSERT INTO archives (key, content_digest, digest, state, reason, refused_by, source_tx_id, call_digest, "
            "writer, identity, named, marks_wanted) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (key, content_digest) DO UPDATE SET digest = excluded.digest, "
            f"marks_wanted = max(marks_wanted, excluded.marks_wanted), {_REPLANNED}",
            (
                entry.key,
                entry.content_digest,
                entry.digest,
                "refused" if entry.refusal else "pending",
                entry.refusal,
                "plan" if entry.refusal else "",
                entry.source_tx_id,
                entry.call_digest,
                entry.writer,
                entry.identity,
                int(entry.named),
                entry.marks_wanted,
            ),
        ),
        Change(
            "INSERT OR IGNORE INTO origins (row_table, row_id, store) SELECT 'archives', id, ? FROM archives "
            "WHERE key = ? AND content_digest = ?",
            (entry.store, entry.key, entry.content_digest),
            None,
        ),
    ]


def _action_changes(entry: ActionEntry) -> list[Change]:
    return [
        Change(
            "INSERT INTO actions (key, digest, state, reason) VALUES (?, ?, ?, ?) ON CONFLICT (key, digest) DO UPDATE "
            "SET state = excluded.state, reason = excluded.reason WHERE state = 'refused' AND batch IS NULL",
            (entry.key, entry.digest, "refused" if entry.refusal else "pending", entry.refusal),
            None,
        ),
        Change(
            "INSERT OR IGNORE INTO origins (row_table, row_id, store) SELECT 'actions', id, ? FROM actions "
            "WHERE key = ? AND digest = ?",
            (entry.store, entry.key, entry.digest),
            None,
        ),
    ]


def _pages(entries: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(entries)
    while page := list(islice(iterator, _PAGE)):
        yield page


def _connect(path: Path, *, fresh: bool) -> sqlite3.Connection:
    from sqlite_utils import Database

    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
        connection.execute("PRAGMA journal_mode = TRUNCATE")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")  # the erased token map must not linger in free pages
        found = connection.execute("PRAGMA application_id").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if fresh and not tables:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        elif found != APPLICATION_ID:
            raise CustodyError(f"{path} is not a ledger of this tool", "choose another --custody")
        else:
            check = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if check != "ok":
                raise CustodyError(
                    f"the ledger {path} is damaged: {check}", "bring it back from a backup; it never starts over"
                )
        path.chmod(0o600)
        known = runpy.run_path(str(resource("migrations", "ledger.py")))["migrations"]
        database = Database(connection)
        newer = {m.name for m in known.applied(database)} - {m.name for m in known._migrations}
        if newer:
            raise CustodyError(
                f"the ledger {path} was written by a newer nl-cutover ({', '.join(sorted(newer))})",
                "use that version; an older one could misread it",
            )
        known.apply(database)
    except sqlite3.DatabaseError as error:
        raise CustodyError(
            f"the ledger {path} cannot be opened: {error}", "bring it back from a backup; it never starts over"
        ) from error
    return connection

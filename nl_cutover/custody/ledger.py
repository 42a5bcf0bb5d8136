"""The ledger: which rows there are, what was intended, what became of it. Its own SQLite file, durable at each step.

`journal_mode=WAL`, `synchronous=FULL`. At rest the ledger is one file; a sign beside it says whether a run ended without
folding the log in, so that a ledger without its log is never taken for the whole truth.
"""

from __future__ import annotations

import json
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
from .entries import ActionEntry, ActionWork, ArchiveEntry, ArchiveWork, action_changes, archive_changes
from .journal import Change, Journal, custody_error
from .states import MOVES

OPEN_ARCHIVES = (
    "(a.state IN ('pending', 'delivered') OR "
    "(a.state = 'confirmed' AND a.marks_made < a.marks_wanted AND a.marks_state = 'idle'))"
)
_HELD = (
    "JOIN origins o ON o.row_table = '{0}' AND o.row_id = a.id AND o.store = (SELECT min(store) FROM origins WHERE "
    "row_table = '{0}' AND row_id = a.id AND store IN (SELECT value FROM json_each(?)))"
)
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


class Ledger:
    """One custody directory's journal, locked for this process. `clock` answers ms since epoch."""

    def __init__(self, directory: Path, clock: Callable[[], int]) -> None:
        begun = custody.exists(directory)
        custody.create(directory)
        self.directory = directory
        self._clock = clock
        self._lock = custody.Lock(directory)
        try:
            custody.check_log(directory)
            connection = _connect(directory / custody.LEDGER, fresh=not begun)
        except BaseException:
            self._lock.close()
            raise
        self._journal = Journal(connection)
        try:
            self.commit(Change("UPDATE run SET id = id", (), None))  # from here on there is a log
            custody.mark(directory, custody.OPEN)
        except BaseException:
            self._journal.close()
            self._lock.close()
            raise

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        if self._journal.fold():
            custody.mark(self.directory, custody.CLOSED)
        self._journal.close()
        self._lock.close()

    # the run ---------------------------------------------------------------------------------------------------------

    @property
    def run(self) -> RunFacts | None:
        rows = self.read("SELECT id, created_at, url, plane_id, data_root, owner, plan_digest FROM run")
        return RunFacts(*rows[0]) if rows else None

    def begin(self, facts: RunFacts) -> RunFacts:
        """Bind the ledger to a run, or check that it is bound to the same plane and owner. Raises RefusedError."""
        known = self.run
        if known is None:
            self.commit(
                Change(
                    "INSERT INTO run (one, id, created_at, tool_version, url, plane_id, data_root, owner, plan_digest) "
                    "VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (facts.id, facts.created_at, __version__, *msgspec.structs.astuple(facts)[2:]),
                )
            )
            return facts
        for name, was, now in (
            ("plane", known.plane_id, facts.plane_id),
            ("data root", known.data_root, facts.data_root),
            ("owner", known.owner, facts.owner),
            ("URL", *(("", "") if known.plane_id else (known.url, facts.url))),
        ):
            if was != now and not (name == "owner" and (was is None or now is None)):
                raise RefusedError(
                    f"run {known.id} in {self.directory} is bound to {name} {was or '(unnamed)'}, "
                    f"not to {now or '(unnamed)'}",
                    "use the same --url and --owner as before, or another --custody for another plane",
                )
        self.commit(
            Change(
                "UPDATE run SET plan_digest = ?, owner = coalesce(owner, ?)",
                (facts.plan_digest, facts.owner),
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
            self.commit(*(change for entry in page for change in archive_changes(entry)))

    def add_actions(self, entries: Iterable[ActionEntry]) -> None:
        for page in _pages(entries):
            self.commit(*(change for entry in page for change in action_changes(entry)))

    def refuse_changed(self) -> None:
        """Rows whose key was sent with another content: refused, each naming the content that was sent."""
        for table, digest, extra in (
            ("archives", "content_digest", ", refused_by = 'plan'"),
            ("actions", "digest", ""),
        ):
            sent = (
                f"SELECT s.{digest} FROM {table} s WHERE s.key = {table}.key AND s.id <> {table}.id "
                "AND s.state NOT IN ('pending', 'left', 'refused', 'excluded')"
            )
            self.commit(
                move_rows(
                    table,
                    "refused",
                    f"state IN ('pending', 'left') AND EXISTS ({sent})",
                    also=f"reason = 'changed on the host after it was sent: ' || substr({digest}, 1, 12) "
                    f"|| ' now, ' || substr(({sent}), 1, 12) || ' was sent'{extra}",
                )
            )

    def refuse_absent(self, stores: Iterable[str]) -> None:
        """Rows that are not done with and stand in none of these stores: this run cannot carry them, and says so."""
        held = (json.dumps(list(stores)),)
        for table, extra in (("archives", ", refused_by = 'plan'"), ("actions", "")):
            origins = f"FROM origins WHERE row_table = '{table}' AND row_id = {table}.id"
            absent = f"NOT EXISTS (SELECT 1 {origins} AND store IN (SELECT value FROM json_each(?)))"
            named = f"'its store ' || (SELECT min(store) {origins}) || ' is not among the stores of this run'"
            self.commit(
                move_rows(
                    table,
                    "refused",
                    f"state IN ('pending', 'left') AND {absent}",
                    held,
                    also=f"reason = {named} || ': name its checkout again; if it is gone, exclude the row'{extra}",
                )
            )
            if table == "archives":
                self.commit(
                    Change(
                        f"UPDATE archives SET reason = {named} || CASE WHEN state = 'delivered' THEN "
                        "': it was saved and cannot be compared' ELSE ': its marks cannot be made' END WHERE (state = "
                        "'delivered' OR state = 'confirmed' AND marks_made < marks_wanted AND marks_state = 'idle') "
                        f"AND {absent}",
                        held,
                        None,
                    )
                )

    def recover(self) -> int:
        """Rows that a dead process left in flight become unknown. Returns how many there are."""
        reason = "the process ended between the intent and the outcome"
        in_flight = self.read("SELECT count(*) FROM archives WHERE state = 'intended'")[0][0]
        in_flight += self.read("SELECT count(*) FROM actions WHERE state = 'intended'")[0][0]
        given_up = (reason, self._clock())
        self.commit(
            *(
                move_rows(table, "unknown", "1", given_up, also="reason = ?, given_up_at = ?")
                for table in ("archives", "batches")
            ),
            move_rows("actions", "unknown", "1", (reason,), also="reason = ?"),
            # MC's memory may count a mark that its file does not hold: only evidence tells.
            Change(
                "UPDATE archives SET marks_state = 'unknown', reason = ?, given_up_at = ? WHERE marks_state = 'intended'",
                given_up,
                None,
            ),
        )
        return int(in_flight)

    def reopen_refused(self) -> None:
        """Rows whose refusal proves that nothing was stored are asked again by this run."""
        for table, proven in (
            ("archives", "refused_by = 'server'"),
            ("actions", "batch IN (SELECT id FROM batches WHERE proven)"),
        ):
            self.commit(move_rows(table, "pending", f"state = 'refused' AND {proven}", also="reason = ''"))

    # rows go out -----------------------------------------------------------------------------------------------------

    def archive_work(self, stores: Iterable[str]) -> Iterator[ArchiveWork]:
        """Archives of these stores that want a save, a read-back or marks, in the order in which they came in."""
        held, after = json.dumps(list(stores)), 0
        while page := self.read(
            "SELECT a.id, a.key, o.digest, o.store, a.state, a.identity, a.archive_id, a.marks_wanted, a.marks_made, "
            f"a.marks_state FROM archives a {_HELD.format('archives')} WHERE a.id > ? AND {OPEN_ARCHIVES} ORDER BY a.id LIMIT ?",
            (held, after, _PAGE),
        ):
            after = page[-1][0]
            yield from (ArchiveWork(*row) for row in page)

    def action_work(self, stores: Iterable[str]) -> Iterator[ActionWork]:
        """Actions of these stores that are still to be sent."""
        held, after = json.dumps(list(stores)), 0
        while page := self.read(
            f"SELECT a.id, a.key, o.digest, o.store FROM actions a {_HELD.format('actions')} "
            "WHERE a.state = 'pending' AND a.id > ? ORDER BY a.id LIMIT ?",
            (held, after, _PAGE),
        ):
            after = page[-1][0]
            yield from (ActionWork(*row) for row in page)

    def knows(self, archive_id: str) -> bool:
        """Whether this archive of MC is in the ledger: an older copy of it would not know the newest."""
        return bool(self.read("SELECT 1 FROM archives WHERE archive_id = ?", (archive_id,)))

    def read(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self._journal.read(sql, parameters)

    def commit(self, *changes: Change) -> None:
        """Make changes durable, together, before returning. Raises CustodyError."""
        self._journal.commit(*changes)

    def now(self) -> int:
        return self._clock()


def move_archive(row_id: int, to: str, **columns: Any) -> Change:
    """A step of the state machine of `custody.states`."""
    return _move("archives", row_id, to, columns)


def set_archive(row_id: int, **columns: Any) -> Change:
    """Facts about an archive that change no state."""
    assignments = ", ".join(f"{name} = ?" for name in columns)
    return Change(f"UPDATE archives SET {assignments} WHERE id = ?", (*columns.values(), row_id))


def move_action(row_id: int, to: str, **columns: Any) -> Change:
    return _move("actions", row_id, to, columns)


def move_rows(
    table: str, to: str, where: str, parameters: tuple[Any, ...] = (), *, also: str = "", rows: int | None = None
) -> Change:
    """The same step for all rows `where` (SQL) that may take it; `also` (SQL) assigns more, its parameters first."""
    allowed = ", ".join(f"'{state}'" for state in sorted(MOVES[table][to]))
    more = f", {also}" if also else ""
    return Change(f"UPDATE {table} SET state = '{to}'{more} WHERE state IN ({allowed}) AND ({where})", parameters, rows)


def _move(table: str, row_id: int, to: str, columns: dict[str, Any]) -> Change:
    also = ", ".join(f"{name} = ?" for name in columns)
    return move_rows(table, to, "id = ?", (*columns.values(), row_id), also=also, rows=1)


def _pages(entries: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(entries)
    while page := list(islice(iterator, _PAGE)):
        yield page


def _connect(path: Path, *, fresh: bool) -> sqlite3.Connection:
    from sqlite_utils import Database

    if not fresh and path.stat().st_size < 512:  # SQLite would take an emptied file for a new one
        raise CustodyError(f"the ledger {path} was emptied", "bring it back from a backup; it never starts over")
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
        connection.execute("PRAGMA journal_mode = WAL")
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
        if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
            raise custody_error(error) from error
        raise CustodyError(
            f"the ledger {path} cannot be opened: {error}", "bring it back from a backup; it never starts over"
        ) from error
    return connection

"""The guarded read-only open: the whole truth of a store, and a folder that is as it was.

How a store is opened depends on what lies beside it (verified with SQLite 3.40):

    rollback mode                   `mode=ro`
    WAL, `-wal` and `-shm` there    `mode=ro&readonly_shm=1`: no byte and no mtime changes, with the writer up or dead
    WAL, `-wal` without `-shm`      a copy of both files in a private folder: SQLite would have to create the `-shm`
    WAL, no `-wal`                  `immutable=1`, under a guard: every row is in the main file

`immutable=1` ignores a `-wal` and every lock, so it is never a way out of an error.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec

from ..errors import UnmeasurableError
from . import header as headers
from .failures import explain, name_of
from .header import Header
from .holders import Holders
from .identity import SIDECARS, Identity, Located, identity_of
from .logs import foreign_wal
from .paths import shown, uri
from .private import private_folder

T = TypeVar("T")


class OpenMode(StrEnum):
    READ_ONLY = "read-only"
    SHARED = "read-only, shared memory untouched"
    SHARED_WRITTEN = "read-only, shared memory written"
    IMMUTABLE = "immutable"
    COPY = "private copy"


class Limits(msgspec.Struct, frozen=True):
    """How long a reading may wait for a lock (ms) and take as a whole (s)."""

    busy_timeout_ms: int = 2_000
    max_seconds: float = 600.0


class FileFacts(msgspec.Struct, frozen=True):
    """`mtime_ns` and `size` (bytes) of one file at one moment."""

    identity: Identity
    size: int
    mtime_ns: int


class Facts(msgspec.Struct, frozen=True):
    """A store and its sidecars at one moment; None for a sidecar that is not there."""

    main: FileFacts
    wal: FileFacts | None
    shm: FileFacts | None
    journal: FileFacts | None

    @property
    def version(self) -> str:
        """Changes with every commit and every checkpoint; comparable between processes."""
        wal = f"{self.wal.size}:{self.wal.mtime_ns}" if self.wal else "-"
        return f"{self.main.size}:{self.main.mtime_ns}:{wal}"


class Opened:
    """A connection inside its read transaction. `changed` is set afterwards: somebody committed meanwhile."""

    def __init__(self, connection: sqlite3.Connection, mode: OpenMode, header: Header, facts: Facts) -> None:
        self.connection = connection
        self.mode = mode
        self.header = header
        self.facts = facts
        self.changed = False

    @property
    def journal_mode(self) -> str:
        return "wal" if self.header.wal else "rollback"


class _ChangedError(Exception):
    """The store moved under a reading that nothing protected."""


def read_store(
    store: Located,
    holders: Holders,
    work: Callable[[Opened], T],
    *,
    limits: Limits | None = None,
    look_again: Callable[[], Holders] | None = None,
) -> tuple[T, Opened]:
    """Run `work` in one read transaction on the store. The connection is closed when this returns.

    `work` may run twice: a store that changed where no lock protected the reading is read once more, after
    `look_again` has told who holds it by then.
    Raises UnmeasurableError; never writes to the store's folder.
    """
    limits = limits or Limits()
    reason = ""
    for _ in range(2):
        try:
            return _attempt(store, holders, work, limits)
        except _ChangedError as changed:
            reason = str(changed)
            holders = look_again() if look_again else holders
    raise UnmeasurableError(
        f"{shown(store.path)}: {reason}, twice in a row ({holders.sentence()})",
        "stop what writes or replaces it, then measure again",
    )


def look(store: Located) -> Facts:
    """The store and its sidecars now. Raises UnmeasurableError for a sidecar that is not a plain file of its own."""
    main = _facts(store.path)
    if main is None or main.identity != store.identity:
        raise _ChangedError("the file under this name was replaced or removed")
    return Facts(main, *(_facts(Path(f"{store.path}{suffix}"), sidecar=True) for suffix in SIDECARS))


def _facts(path: Path, sidecar: bool = False) -> FileFacts | None:
    try:
        facts = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnmeasurableError(
            f"{shown(path)} cannot be looked at ({error.strerror})", "run as the store's owner"
        ) from error
    if sidecar and (not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1):
        raise UnmeasurableError(
            f"{shown(path)} is a link or not a regular file, so it may not be this store's",
            "stop every writer and find out who put it there",
        )
    return FileFacts(identity_of(facts), facts.st_size, facts.st_mtime_ns)


def _attempt(store: Located, holders: Holders, work: Callable[[Opened], T], limits: Limits) -> tuple[T, Opened]:
    before = look(store)
    header = _header(store, before)
    mode = _choose(store, header, before, holders)
    deadline = time.monotonic() + limits.max_seconds
    try:
        with _connections(store, mode, limits, holders, deadline) as (connection, mode):
            opened = Opened(connection, mode, header, before)
            version = _data_version(connection)
            result = work(opened)
            connection.execute("ROLLBACK")  # COMMIT fails once a page was found damaged
            opened.changed = _data_version(connection) != version
    except sqlite3.DatabaseError as error:
        if name_of(error) == "SQLITE_INTERRUPT" and time.monotonic() < deadline:
            # An exception in SQLite's progress callback does not travel further than SQLite: it was Ctrl-C.
            raise KeyboardInterrupt from error
        # A torn reading and a damaged store raise the same error: only the files tell which it was.
        if mode in (OpenMode.IMMUTABLE, OpenMode.COPY) and look(store) != before:
            raise _ChangedError("it changed while it was read") from error
        raise explain(error, store.path, holders, limits.max_seconds) from error
    after = look(store)
    unprotected = mode in (OpenMode.IMMUTABLE, OpenMode.COPY) or (mode is OpenMode.SHARED and holders.nobody)
    if unprotected and after != before:
        raise _ChangedError("it changed while it was read")
    return result, opened


def _header(store: Located, facts: Facts) -> Header:
    where = shown(store.path)
    if facts.main.size < 100:
        size = "zero-byte store" if facts.main.size == 0 else f"{facts.main.size} bytes, less than a header"
        beside = " while rows may lie in the -wal beside it" if facts.wal and facts.wal.size else ""
        raise UnmeasurableError(
            f"{where}: {size}{beside}; SQLite would call it an empty database",
            "a copy failed or a disk was full: restore the store, or remove the file if it never held rows",
        )
    try:
        header = headers.parse(headers.first_page(store.path, store.identity))
    except PermissionError as error:
        raise UnmeasurableError(
            f"{where}: door closed, uid {os.geteuid()} may not read it (owner: uid {store.owner})",
            "run as the store's owner",
        ) from error
    except (OSError, ValueError) as error:
        raise UnmeasurableError(f"{where} cannot be read ({error})", "check the disk") from error
    if isinstance(header, str):
        raise UnmeasurableError(f"{where} is not a readable SQLite store: {header}", "restore it from a backup")
    if header.page_count is not None and not (facts.wal and facts.wal.size):
        claimed = header.page_count * header.page_size
        if facts.main.size < claimed:
            if look(store) != facts:
                raise _ChangedError("it changed while its header was read")
            raise UnmeasurableError(
                f"{where} is shorter than its header claims: {facts.main.size} of {claimed} bytes",
                "it was cut off while being written or copied: restore it",
            )
    return header


def _choose(store: Located, header: Header, facts: Facts, holders: Holders) -> OpenMode:
    where = shown(store.path)
    if holders.deleted:
        first = holders.deleted[0]
        raise UnmeasurableError(
            f"{where}: pid {first.pid} ({first.command}) still holds its deleted {first.file}: "
            "that process and everybody else see different rows",
            f"stop pid {first.pid} in an orderly way, then measure again",
        )
    has_log = facts.wal is not None and facts.wal.size > 0
    if not header.wal:
        if has_log:
            raise UnmeasurableError(
                f"{where}: a -wal lies beside a store that is not in WAL mode; it is another store's, "
                "and SQLite would read its rows instead",
                "find out where the -wal came from and move it away",
            )
        return OpenMode.READ_ONLY
    if facts.journal is not None and _is_hot(store.path):
        raise UnmeasurableError(
            f"{where}: a rollback journal that was never played back lies beside a WAL store",
            "let the recorder open the store once, then measure again",
        )
    if facts.wal is not None and facts.shm is not None:
        if has_log:
            _own_log(store, header, facts, holders)
        return OpenMode.SHARED
    if has_log:
        _own_log(store, header, facts, holders)
        if holders.processes or headers.opened_here(store.identity):
            raise UnmeasurableError(
                f"{where}: its -shm is missing although the store is open, {holders.sentence()}",
                "stop the writer in an orderly way, then measure again",
            )
        return OpenMode.COPY
    if facts.wal is None and facts.shm is not None and not holders.nobody:
        raise UnmeasurableError(
            f"{where}: a -shm without its -wal, {holders.sentence()}: a writer may be holding a deleted -wal",
            "stop every writer in an orderly way, or run as their owner so that holders can be seen",
        )
    return OpenMode.IMMUTABLE


def _own_log(store: Located, header: Header, facts: Facts, holders: Holders) -> None:
    if any(holder.file == "-wal" for holder in holders.processes):
        return  # its writer vouches for it, and may reset it while it is being looked at
    why = foreign_wal(header, Path(f"{store.path}-wal"))
    if why is None:
        return
    if look(store) != facts:
        raise _ChangedError("its -wal changed while it was looked at")
    raise UnmeasurableError(
        f"{shown(store.path)}: the -wal beside it is not its own, {why}; SQLite would read the wrong rows",
        "find the -wal that belongs to this store, or move this one away if the store was cleanly closed",
    )


def _is_hot(path: Path) -> bool:
    try:
        with open(f"{path}-journal", "rb") as file:
            return file.read(8) == headers.JOURNAL_MAGIC
    except OSError:
        return False


@contextmanager
def _connections(
    store: Located, mode: OpenMode, limits: Limits, holders: Holders, deadline: float
) -> Iterator[tuple[sqlite3.Connection, OpenMode]]:
    match mode:
        case OpenMode.READ_ONLY | OpenMode.SHARED_WRITTEN:
            address = uri(store.path, mode="ro")
        case OpenMode.IMMUTABLE:
            address = uri(store.path, mode="ro", immutable=1)
        case _:
            address = uri(store.path, mode="ro", readonly_shm=1)
    connection = None
    try:
        connection = _begin(address, limits, deadline)
    except sqlite3.DatabaseError as error:
        if mode is OpenMode.SHARED and name_of(error) in _NO_SHARED_MEMORY and not holders.nobody:
            mode, address = OpenMode.SHARED_WRITTEN, uri(store.path, mode="ro")
        elif mode is not OpenMode.COPY or name_of(error) != "SQLITE_CANTOPEN":
            # COPY: anything but CANTOPEN is an answer, above all BUSY from a writer in exclusive locking mode.
            raise
    if connection is None and mode is OpenMode.COPY:
        with _private_copy(store.path) as copy, closing(_begin(uri(copy, mode="ro"), limits, deadline)) as connection:
            yield connection, mode
        return
    if mode is OpenMode.COPY:
        mode = OpenMode.SHARED  # a writer came and made the -shm
    with closing(connection or _begin(address, limits, deadline)) as connection:
        yield connection, mode


_NO_SHARED_MEMORY = frozenset({"SQLITE_READONLY_CANTINIT", "SQLITE_READONLY_RECOVERY"})


def _begin(address: str, limits: Limits, deadline: float) -> sqlite3.Connection:
    """A connection inside a read transaction that has really begun: a deferred one begins at the first reading."""
    connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=limits.busy_timeout_ms / 1000)
    try:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, 200_000)
        connection.execute("PRAGMA query_only=1")
        connection.execute("PRAGMA trusted_schema=0")
        connection.execute("PRAGMA mmap_size=0")  # a mapped file that is truncated kills the process
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM main.sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _data_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


@contextmanager
def _private_copy(path: Path) -> Iterator[Path]:
    with private_folder() as folder:
        copy = folder / "store.sqlite"
        try:
            for suffix in ("", "-wal"):
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise UnmeasurableError(
                f"{shown(path)} has a -wal and no -shm, and its private copy in {folder} failed ({error.strerror})",
                "point TMPDIR at a disk with room for it" if full else "run as the store's owner",
            ) from error
        yield copy

"""SQLite's errors in sentences. The messages themselves are not shown: some carry values of rows."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from ..errors import UnmeasurableError
from .holders import Holders
from .paths import shown


def name_of(error: sqlite3.Error) -> str:
    """The extended code, e.g. `SQLITE_BUSY_RECOVERY`; the class when SQLite gave none."""
    return getattr(error, "sqlite_errorname", None) or type(error).__name__


def explain(error: sqlite3.Error, path: Path, holders: Holders, max_seconds: float) -> UnmeasurableError:
    """What went wrong with the store at `path`, why, and what to do."""
    why, hint = _words(error, holders, max_seconds)
    return UnmeasurableError(f"{shown(path)} {why} ({name_of(error)})", hint)


def _words(error: sqlite3.Error, holders: Holders, max_seconds: float) -> tuple[str, str]:
    name = name_of(error)
    match name.removeprefix("SQLITE_").split("_")[0]:
        case "BUSY" | "LOCKED":
            return f"stayed locked, {holders.sentence()}", "wait for the writer or stop it, then measure again"
        case "NOTADB":
            return "is not a database, or it is encrypted", "restore it from a backup"
        case "CORRUPT":
            return f"is damaged{_schema(error)}", "restore it from a backup; nothing counted from it can be trusted"
        case "INTERRUPT":
            return f"could not be read within {max_seconds:g} s", "allow more time, or measure when the disk is idle"
        case "FULL" | "NOMEM" | "TOOBIG":
            return "could not be read: no room to work in", "point SQLITE_TMPDIR at a disk with room"
        case "PERM" | "AUTH":
            return f"may not be read by uid {os.geteuid()}", "run as the store's owner"
    match name:
        case "SQLITE_READONLY_ROLLBACK":
            return (
                "was left in the middle of a transaction: its -journal must be played back by a writer first",
                "let the recorder open the store once, then measure again",
            )
        case "SQLITE_READONLY_DIRECTORY" | "SQLITE_READONLY_CANTINIT" | "SQLITE_READONLY_RECOVERY":
            return (
                f"is a WAL store whose shared memory uid {os.geteuid()} can neither use nor make in its directory",
                "run as the store's owner",
            )
        case "SQLITE_IOERR_SHORT_READ":
            return (
                "ended before its last page: a -wal was deleted under a writer, or the file was cut off",
                "stop every writer in an orderly way, then measure again",
            )
    if name.startswith("SQLITE_CANTOPEN"):
        return f"cannot be opened by uid {os.geteuid()}", "run as the store's owner; check the directory's mode"
    return f"could not be read{_schema(error)}", "open a copy of it with the sqlite3 shell to see more"


def _schema(error: sqlite3.Error) -> str:
    text = str(error)
    return f": {shown(text)}" if text.startswith("malformed database schema") else ""

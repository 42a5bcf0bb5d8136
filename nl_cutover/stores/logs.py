"""Whether a `-wal` belongs to the store it lies beside. SQLite replays any valid log of the same page size.

Layout: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import msgspec

from ..contract.rows import KEY, TABLES
from .header import WAL_MAGIC, Header
from .paths import uri
from .tables import Table, find, quoted

_WAL_HEADER, _FRAME_HEADER = 32, 24


class _Frame(msgspec.Struct, frozen=True):
    """One version of page 1. Kept as a digest: a log may hold thousands of versions."""

    counter: int
    cookie: int
    encoding: int
    digest: bytes


def foreign_wal(header: Header, path: Path) -> str | None:
    """Why the `-wal` at `path` provably is not this store's; None when it may be.

    In WAL mode page 1 of the main file changes by checkpoint alone, and neither its change counter nor its schema
    cookie ever falls. So they are at most those of the log's last page 1, and a page 1 that is newer than the log's
    first is one of the log's.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(_WAL_HEADER)
            if len(head) < _WAL_HEADER:
                return None if not head else "its header is cut off"
            magic, _, page_size, _, *salt = struct.unpack(">6I", head[:24])
            if magic not in WAL_MAGIC:
                return "it does not begin like a -wal"
            if page_size != header.page_size:
                return f"its pages have {page_size} bytes, the store's {header.page_size}"
            frames, pages = _committed(file, page_size, salt)
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    if not pages:
        return None
    if not frames:
        if header.page_count is not None and pages != header.page_count:
            return f"it knows a store of {pages} pages, this one has {header.page_count}"
        return None
    newest = frames[-1]
    if header.encoding and newest.encoding != header.encoding:
        return "it holds another text encoding"
    if header.change_counter > newest.counter or header.cookie > newest.cookie:
        return "it is older than the store"
    if header.change_counter > frames[0].counter and _digest(header.first_page) not in {
        frame.digest for frame in frames
    }:
        return "the store's first page came from elsewhere"
    return None


def _committed(file: BinaryIO, page_size: int, salt: list[int]) -> tuple[list[_Frame], int]:
    """Page 1 in each of its committed versions, and the store's size in pages after the last commit (0: no commit)."""
    frames: list[_Frame] = []
    pending: list[_Frame] = []
    pages = 0
    for _ in range((os.fstat(file.fileno()).st_size - _WAL_HEADER) // (_FRAME_HEADER + page_size)):
        number, commit, *salts = struct.unpack(">4I", file.read(_FRAME_HEADER)[:16])
        if salts != salt:
            break  # left over from before the log was reset
        if number == 1:
            page = file.read(page_size)
            counter, cookie, encoding = (int.from_bytes(page[at : at + 4], "big") for at in (24, 40, 56))
            pending.append(_Frame(counter, cookie, encoding, _digest(page)))
        else:
            file.seek(page_size, os.SEEK_CUR)
        if commit:
            frames.extend(pending)
            pending.clear()
            pages = commit
    return frames, pages


def _digest(page: bytes) -> bytes:
    return hashlib.blake2b(page, digest_size=16).digest()


def takes_every_row_away(connection: sqlite3.Connection, path: Path) -> str | None:
    """The table of which the main file alone holds rows, and the store behind `connection`, log included, none of them.

    Keys are random, so one shared key proves that the log continues this store. Nothing is written at `path`.
    """
    with closing(sqlite3.connect(uri(path, mode="ro", immutable=1), uri=True)) as alone:
        alone.execute("PRAGMA trusted_schema=0")
        for name in TABLES:
            try:
                before = find(alone, name)
                keys = _keys(alone, before) if isinstance(before, Table) else iter(())
                first = next(keys, None)
                if first is not None and not _shares(connection, name, chain([first], keys)):
                    return name
            except sqlite3.DatabaseError:
                continue  # a checkpoint that was cut short leaves the main file alone unreadable: no evidence
    return None


def _keys(connection: sqlite3.Connection, table: Table) -> Iterator[object]:
    for key in (quoted(table.columns[name]) for name in (KEY[table.name],) if name in table.columns):
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        for (value,) in connection.execute(f"SELECT {key} FROM {table.source} WHERE {key} IS NOT NULL"):
            yield value


def _shares(connection: sqlite3.Connection, name: str, keys: Iterator[object]) -> bool:
    after = find(connection, name)
    if not isinstance(after, Table) or KEY[name] not in after.columns:
        return False
    sought = f"SELECT 1 FROM {after.source} WHERE {quoted(after.columns[KEY[name]])} = ?"
    return any(connection.execute(sought, (key,)).fetchone() for key in keys)

"""The first bytes of a store and of its `-wal`, read without SQLite: what it is, and whether the two belong together.

Layouts: https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from .identity import Identity, identity_of

MAGIC = b"SQLite format 3\0"
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_WAL_MAGIC = (0x377F0682, 0x377F0683)
_WAL_HEADER, _FRAME_HEADER = 32, 24
_LARGEST_PAGE = 65_536
_CHILD = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read(int(sys.argv[2])))"


class Header(msgspec.Struct, frozen=True):
    """`page_count` is None when the header does not vouch for it (written by SQLite before 3.7)."""

    wal: bool
    page_size: int
    page_count: int | None
    change_counter: int
    encoding: int
    first_page: bytes


def first_page(path: Path, identity: Identity) -> bytes:
    """At most 65,536 bytes from the start of the store.

    Closing any descriptor drops every POSIX lock that this process holds on the file, and with it the protection of
    an open SQLite connection: while this process has the file open, a child reads.
    """
    if opened_here(identity):
        command = [sys.executable, "-I", "-S", "-c", _CHILD, os.fspath(path), str(_LARGEST_PAGE)]
        return subprocess.run(command, capture_output=True, check=True, timeout=30).stdout
    with open(path, "rb", buffering=0) as file:
        return file.read(_LARGEST_PAGE)


def opened_here(identity: Identity) -> bool:
    """Whether this process has a descriptor on that file; True when it cannot be told."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            numbers = [int(name) for name in os.listdir(folder)]
        except OSError:
            continue
        return any(_identity_of_descriptor(number) == identity for number in numbers)
    return True


def _identity_of_descriptor(number: int) -> Identity | None:
    try:
        return identity_of(os.fstat(number))
    except OSError:
        return None


def parse(data: bytes) -> Header | str:
    """The header, or what the bytes look like instead."""
    if not data.startswith(MAGIC):
        return _guess(data)
    size = int.from_bytes(data[16:18], "big")
    size = _LARGEST_PAGE if size == 1 else size
    if size < 512 or size & (size - 1):
        return f"it begins like an SQLite store, but its page size of {size} bytes is impossible"
    if data[19] not in (1, 2):
        return f"it is written in format {data[19]}, which needs a newer SQLite"
    counter, count, valid_for = (int.from_bytes(data[at : at + 4], "big") for at in (24, 28, 92))
    return Header(
        wal=data[19] == 2,
        page_size=size,
        page_count=count if count and counter == valid_for else None,
        change_counter=counter,
        encoding=int.from_bytes(data[56:60], "big"),
        first_page=data[:size],
    )


def _guess(data: bytes) -> str:
    start = data[:16]
    if not start.strip(b"\0"):
        return "its first bytes are all zero: a hole, or a copy that never finished"
    if start.startswith(JOURNAL_MAGIC):
        return "it is a rollback journal, not the store it belongs to"
    if int.from_bytes(start[:4], "big") in _WAL_MAGIC:
        return "it is a -wal, not the store it belongs to"
    if len(set(data[:4096])) > 200:
        return "its bytes look random: encrypted (SQLCipher?) or overwritten"
    return "its first bytes are not SQLite's"


class _Frame(msgspec.Struct, frozen=True):
    """One version of page 1. Kept as a digest: a log may hold thousands of versions."""

    counter: int
    encoding: int
    digest: bytes


def foreign_wal(header: Header, path: Path) -> str | None:
    """Why the `-wal` at `path` provably is not this store's; None when it may be.

    In WAL mode page 1 of the main file changes by checkpoint alone, and its change counter never falls. So it is at
    most the counter of the log's last page 1, and a page 1 that is newer than the log's first is one of the log's.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(_WAL_HEADER)
            if len(head) < _WAL_HEADER:
                return None if not head else "its header is cut off"
            magic, _, page_size, _, *salt = struct.unpack(">6I", head[:24])
            if magic not in _WAL_MAGIC:
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
    if header.change_counter > newest.counter:
        return f"it is older than the store (change {newest.counter} against {header.change_counter})"
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
            pending.append(
                _Frame(int.from_bytes(page[24:28], "big"), int.from_bytes(page[56:60], "big"), _digest(page))
            )
        else:
            file.seek(page_size, os.SEEK_CUR)
        if commit:
            frames.extend(pending)
            pending.clear()
            pages = commit
    return frames, pages


def _digest(page: bytes) -> bytes:
    return hashlib.blake2b(page, digest_size=16).digest()

"""The first bytes of a store, read without SQLite and without harm to its locks.

Layout: https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from .identity import Identity, identity_of

MAGIC = b"SQLite format 3\0"
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
WAL_MAGIC = (0x377F0682, 0x377F0683)
_LARGEST_PAGE = 65_536
_CHILD = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read(int(sys.argv[2])))"


class Header(msgspec.Struct, frozen=True):
    """`page_count` is None when the header does not vouch for it (written by SQLite before 3.7)."""

    wal: bool
    page_size: int
    page_count: int | None
    change_counter: int
    cookie: int
    encoding: int
    first_page: bytes


def first_page(path: Path, identity: Identity) -> bytes:
    """At most 65,536 bytes from the start of the store.

    Closing any descriptor drops every POSIX lock that this process holds on the file, and with it the protection of
    an open SQLite connection: while this process has the file open, a child reads.
    """
    if opened_here(identity):
        import subprocess

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
        cookie=int.from_bytes(data[40:44], "big"),
        encoding=int.from_bytes(data[56:60], "big"),
        first_page=data[:size],
    )


def _guess(data: bytes) -> str:
    start = data[:16]
    if not start.strip(b"\0"):
        return "its first bytes are all zero: a hole, or a copy that never finished"
    if start.startswith(JOURNAL_MAGIC):
        return "it is a rollback journal, not the store it belongs to"
    if int.from_bytes(start[:4], "big") in WAL_MAGIC:
        return "it is a -wal, not the store it belongs to"
    if len(set(data[:4096])) > 200:
        return "its bytes look random: encrypted (SQLCipher?) or overwritten"
    return "its first bytes are not SQLite's"

"""A consistent copy of the graph, made inside the container, brought out, and restored to scratch before it counts.

It comes over the stream of an exec, not as an archive: there are no names and links to trust, and a folder in memory
works like any other.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ..durability import make_durable
from ..errors import CustodyError, DifferenceError, UnreachableError
from .engine import Engine
from .evidence import run_reader
from .inside import COUNTS
from .locate import Pin

_HEADER = 100  # bytes of an SQLite file's header


class Backup(msgspec.Struct, frozen=True):
    """`counts`: nodes by label, counted inside in the snapshot that was copied and again in the restored copy."""

    path: str
    sha256: str
    bytes: int
    counts: dict[str, int]
    reader: str


class _Trailer(msgspec.Struct, frozen=True):
    reader: str
    counts: dict[str, int]
    sha256: str
    bytes: int


def backup(engine: Engine, pin: Pin, folder: Path, *, clock: Callable[[], float]) -> Backup:
    """Copy the graph to `folder` (made 0700), file mode 0600. Only a copy that was restored and counted gets its name.

    Raises UnreachableError when the container cannot give it, DifferenceError when it is not what was counted inside,
    CustodyError when it cannot be written.
    """
    target = folder / f"{pin.name}-{_stamp(clock())}-{_graph(pin)}.sqlite"
    partial = Path(f"{target}.partial")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            digest, head, came = hashlib.sha256(), b"", 0

            def keep(chunk: bytes) -> None:
                nonlocal head, came
                if len(head) < _HEADER:
                    head += chunk[: _HEADER - len(head)]
                    if (told := _told(head)) > (free := shutil.disk_usage(folder).free):
                        raise CustodyError(
                            f"{folder} has {free} bytes free for a copy of {told}", "make room, then again"
                        )
                came += len(chunk)
                if came > (told := _told(head)):
                    raise UnreachableError(
                        f"the copy of the graph does not end: its header tells {told} bytes, more came out of {pin.words}",
                        "look at what runs in the container; nothing was kept",
                    )
                digest.update(chunk)
                try:
                    file.write(chunk)
                except OSError as error:
                    raise _unwritten(target, error) from None

            ran = run_reader(engine, pin, {"op": "backup"}, keep)
            file.flush()
            os.fsync(file.fileno())
        try:
            trailer = msgspec.json.decode(ran.err.splitlines()[-1], type=_Trailer)
        except (IndexError, msgspec.DecodeError, msgspec.ValidationError):
            raise UnreachableError(f"the copy of the graph inside {pin.words} was cut short", "take it again") from None
        if (digest.hexdigest(), partial.stat().st_size) != (trailer.sha256, trailer.bytes):
            raise DifferenceError(
                f"the copy of the graph came out of {pin.words} with other bytes than it was made with", "take it again"
            )
        counts = restored_counts(partial)
        if counts != trailer.counts:
            raise DifferenceError(
                f"the copy of the graph of {pin.words} restores to {counts}, inside {trailer.counts} were counted",
                "do not go on without a backup that restores; look at the container's disk",
            )
        os.rename(partial, target)
        make_durable(folder)
    except OSError as error:
        raise _unwritten(target, error) from None
    finally:
        partial.unlink(missing_ok=True)
    return Backup(str(target), trailer.sha256, trailer.bytes, counts, trailer.reader)


def known_backup(folder: Path, pin: Pin, *, before_ms: float) -> Backup | None:
    """The newest backup of `pin`'s graph that is no younger than that, restored and counted anew; None without one.

    Whatever container it was taken from: made anew, it has another name. Raises DifferenceError.
    """
    named = re.compile(rf".+-(\d{{8}}T\d{{9}}Z)-{_graph(pin)}\.sqlite")
    taken = [(found[1], path) for path in folder.glob("*.sqlite") if (found := named.fullmatch(path.name))]
    stamp, newest = max(((at, path) for at, path in taken if at <= _stamp(before_ms)), default=("", None))
    if newest is None:
        return None
    with open(newest, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    reader = f"an earlier call, {stamp}: the newest of this graph before the run's first row"
    return Backup(str(newest), digest, newest.stat().st_size, restored_counts(newest), reader)


def _told(head: bytes) -> int:
    """The size of an SQLite file by its header, bytes; that of the header until all of it is there."""
    if len(head) < _HEADER:
        return _HEADER
    size = int.from_bytes(head[16:18], "big")
    return (65_536 if size == 1 else size) * int.from_bytes(head[28:32], "big") * head.startswith(b"SQLite format 3\0")


def _stamp(ms: float) -> str:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{at:%Y%m%dT%H%M%S}{at.microsecond // 1000:03}Z"


def _graph(pin: Pin) -> str:
    """Tells one graph from another in a file's name: the plane, and where it lives."""
    home = pin.home
    return hashlib.sha256(repr((pin.plane_id, home.kind, home.source, home.path)).encode()).hexdigest()[:8]


def restored_counts(copy: Path) -> dict[str, int]:
    """Restore `copy` to scratch, open it as Memory Core would, check it and count. Raises DifferenceError."""
    with tempfile.TemporaryDirectory(prefix="nl-cutover-") as scratch:
        restored = Path(scratch) / "graph.sqlite"
        shutil.copyfile(copy, restored)
        try:
            with closing(sqlite3.connect(restored, isolation_level=None)) as graph:
                found = [str(row[0]) for row in graph.execute("PRAGMA integrity_check(5)")]
                if found == ["ok"]:
                    return {label or "": rows for label, rows in graph.execute(COUNTS)}
        except sqlite3.DatabaseError as error:
            found = [str(error)]
    raise DifferenceError(
        f"the backup {copy.name} does not restore: {'; '.join(found)}", "move it away, then take it again"
    )


def _unwritten(target: Path, error: OSError) -> CustodyError:
    return CustodyError(f"the backup {target} cannot be written: {error.strerror or error}", "make room, then again")

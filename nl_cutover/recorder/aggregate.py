"""Counts by tool in a file of the host's own, for a genesis probe: no table, no remote read (neo#16202).

The file is disposable: it counts one process life, starts at zero with the next, and goes with its folder.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

NAME = "nl-action-aggregate.json"
TOOLS = 1_000  # names that are told apart; what comes after them is counted as OTHER
OTHER = "(other)"


class Counted(msgspec.Struct, frozen=True, rename="camel"):
    """One tool. `duration_ms` is the sum over its calls, in ms."""

    tool: str
    count: int
    success_count: int
    duration_ms: float


class Aggregate:
    """`folder` has to be there, and is never made: a probe that has gone leaves nothing behind."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._counts: dict[str, tuple[int, int, float]] = {}
        self._counting, self._writing = threading.RLock(), threading.RLock()
        self._changed = False

    def add(self, tool: str, success: bool, duration_ms: float | None) -> None:
        tool = tool.encode(errors="replace").decode()  # half a surrogate pair cannot stand in a file
        with self._counting:
            key = tool if tool in self._counts or len(self._counts) < TOOLS else OTHER
            count, successes, took = self._counts.get(key, (0, 0, 0))
            self._counts[key] = (count + 1, successes + success, took + (duration_ms or 0))
            self._changed = True

    def write(self) -> bool:
        """Replace the file as a whole. False where that cannot be done, which costs nobody anything."""
        with self._writing:
            with self._counting:
                if not self._changed:
                    return True
                counted = [Counted(tool, *numbers) for tool, numbers in sorted(self._counts.items())]
                self._changed = False
            partial = self.path.with_suffix(f".{os.getpid()}.partial")
            try:
                partial.write_bytes(msgspec.json.encode(counted))
                os.replace(partial, self.path)
            except OSError:
                self._changed = True
                return False
            return True


def read_aggregate(path: Path) -> list[Counted]:
    """The counts, by tool. Raises OSError or msgspec.DecodeError where there is no such file."""
    return msgspec.json.decode(path.read_bytes(), type=list[Counted])


@contextmanager
def disposable_aggregate() -> Iterator[Aggregate]:
    """An aggregate in a root of its own, which is gone afterwards whatever happened."""
    with tempfile.TemporaryDirectory(prefix="nl-genesis-") as root:
        yield Aggregate(Path(root))

"""Progress on stderr: a bar on a terminal, a heartbeat line at least every 10 s elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from ..migration.progress import Progress, Silent

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

_HEARTBEAT = 10.0  # seconds


class Heartbeat:
    """Plain lines: at the start of a stage, then at most every 10 s, and at its end."""

    def __init__(self, stream: TextIO, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._monotonic = stream, monotonic
        self._lock = threading.Lock()
        self._name, self._total, self._done = "", 0, 0
        self._began = self._last = monotonic()

    def stage(self, name: str, total: int) -> None:
        with self._lock:
            self._name, self._total, self._done = name, total, 0
            self._began = self._last = self._monotonic()
            if total:
                self._line(f"{name}: {total} {'row' if total == 1 else 'rows'}")

    def advance(self, rows: int = 1) -> None:
        with self._lock:
            self._done += rows
            now = self._monotonic()
            if self._done >= self._total > 0:
                self._line(f"{self._name}: {self._done} of {self._total} done in {now - self._began:.1f} s")
            elif now - self._last >= _HEARTBEAT:
                self._last = now
                rate = self._done / max(now - self._began, 1e-9)
                left = (self._total - self._done) / max(rate, 1e-9)
                self._line(f"{self._name}: {self._done} of {self._total}, {rate:.0f}/s, about {left:.0f} s left")

    def note(self, sentence: str) -> None:
        with self._lock:
            self._line(sentence)

    def _line(self, text: str) -> None:
        try:
            print(text, file=self._stream, flush=True)
        except (OSError, ValueError, AttributeError):
            pass  # a run does not end because nobody can read how far it is


class Bar:
    """A bar with rate and time left, drawn by rich."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task: object = None

    def stage(self, name: str, total: int) -> None:
        self._task = self._bars.add_task(name, total=total) if total else None

    def advance(self, rows: int = 1) -> None:
        if self._task is not None:
            self._bars.advance(self._task, rows)  # type: ignore[arg-type]

    def note(self, sentence: str) -> None:
        self._bars.console.print(sentence, markup=False, highlight=False)


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Progress]:
    """The progress that fits stderr."""
    if quiet:
        yield Silent()
    elif sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bars(*columns, console=Console(stderr=True)) as bars:
            yield Bar(bars)
    else:
        yield Heartbeat(sys.stderr)

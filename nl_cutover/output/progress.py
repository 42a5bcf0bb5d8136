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
    """Plain lines: at the start of a stage and at its end, and every 10 s between them, even when nothing advances.

    A stage of 0 rows is one of unknown length. `every` is in seconds.
    """

    def __init__(
        self, stream: TextIO, monotonic: Callable[[], float] = time.monotonic, every: float = _HEARTBEAT
    ) -> None:
        self._stream, self._monotonic, self._every = stream, monotonic, every
        self._lock = threading.Lock()
        self._name, self._total, self._done = "", 0, 0
        self._began = self._last = monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="nl-cutover-heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def stage(self, name: str, total: int) -> None:
        with self._lock:
            self._name, self._total, self._done = name, total, 0
            self._began = self._last = self._monotonic()
            if total:
                self._line(f"{name}: {total} {'row' if total == 1 else 'rows'}")

    def advance(self, rows: int = 1) -> None:
        with self._lock:
            self._done += rows
            if self._done >= self._total > 0:
                self._line(f"{self._name}: {self._done} of {self._total} done in {self._elapsed():.1f} s")

    def note(self, sentence: str) -> None:
        with self._lock:
            self._line(sentence)

    def _beat(self) -> None:
        wait = self._every
        while not self._over.wait(wait):
            with self._lock:
                wait = self._last + self._every - self._monotonic()
                if wait <= 0:
                    wait = self._every
                    self._line(self._state())

    def _state(self) -> str:
        rate = self._done / max(self._elapsed(), 1e-9)
        if not 0 < self._done < self._total:
            far = f" {self._done} of {self._total}," if self._total else ""
            return f"{self._name or 'working'}:{far} {self._elapsed():.0f} s so far"
        left = (self._total - self._done) / rate
        return f"{self._name}: {self._done} of {self._total}, {rate:.0f}/s, about {left:.0f} s left"

    def _elapsed(self) -> float:
        return self._monotonic() - self._began

    def _line(self, text: str) -> None:
        self._last = self._monotonic()
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
        self._task = self._bars.add_task(name, total=total or None)

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
        from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars
        from rich.text import Text

        class Rate(ProgressColumn):
            def render(self, task: Task) -> Text:
                speed = task.finished_speed or task.speed
                return Text("" if speed is None else f"{speed:.0f}/s")

        columns = (
            TextColumn("{task.description:<10}"),
            BarColumn(),
            MofNCompleteColumn(),
            Rate(),
            TimeRemainingColumn(),
        )
        with Bars(*columns, console=Console(stderr=True)) as bars:
            yield Bar(bars)
    else:
        with Heartbeat(sys.stderr) as beat:
            yield beat

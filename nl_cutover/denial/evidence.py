"""What guarded processes say of themselves, taken through a pipe: a program cannot unsay what was taken."""

from __future__ import annotations

import contextlib
import json
import os
import select
import stat
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

PIPE, TAKEN = "evidence", "taken"
_PAUSE = 0.05  # seconds between two looks whether the run is over
_LAST = 2.0  # seconds for what was said before the end


class Armed(msgspec.Struct, frozen=True):
    """A process or worker that wrote the nonce down. `thread` 0 is the process itself."""

    pid: int
    thread: int
    node: str
    exec: str
    argv: tuple[str, ...] = ()


class Denied(msgspec.Struct, frozen=True):
    """One refusal, also where the program swallowed the error."""

    pid: int
    thread: int
    what: str
    how: str


class Evidence:
    """Takes each line of the preloads into memory, and answers it by a file of the line's random id.

    The preload goes on only once it is answered, and says the line again until then: who reads the pipe in place of the
    checker delays a line and does not lose it. Nothing in the folder may change meanwhile: `altered` tells.
    """

    def __init__(self, folder: Path, nonce: str) -> None:
        self.armed: list[Armed] = []
        self.refused: list[Denied] = []
        self.strange = ""
        self._folder, self._nonce = folder, nonce
        self._answered: set[str] = set()
        (folder / TAKEN).mkdir()
        os.mkfifo(folder / PIPE, 0o600)
        if os.geteuid() == 0:  # a program that gives its rights away, and its children, are heard all the same
            folder.chmod(0o711)
            (folder / PIPE).chmod(0o622)
        self._reader = os.open(folder / PIPE, os.O_RDONLY | os.O_NONBLOCK)
        self._writer = os.open(folder / PIPE, os.O_WRONLY)  # without a writer a pipe is at its end
        self._until = float("inf")
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()
        self._marks = self._seen()

    def altered(self) -> str:
        """What was done to the folder meanwhile: a sentence, or nothing."""
        now = self._seen()
        changed = sorted(name for name in {*self._marks, *now} if self._marks.get(name) != now.get(name))
        return f"the evidence was changed while the command ran: {', '.join(changed)}" if changed else ""

    def close(self) -> None:
        self._until = time.monotonic() + _LAST
        self._thread.join()
        os.close(self._reader)
        os.close(self._writer)

    def _seen(self) -> dict[str, tuple[int, ...]]:
        """By name what nobody can put back: the time of the last change. What is written to a pipe changes its own."""
        found: dict[str, tuple[int, ...]] = {}
        for path in (self._folder, *self._folder.glob("*"), *self._folder.glob("bin/*")):
            try:
                facts = path.lstat()
            except OSError:
                continue
            name = path.name if path != self._folder else "its folder"
            own = stat.S_ISFIFO(facts.st_mode) or name == TAKEN
            found[name] = (facts.st_dev, facts.st_ino, facts.st_mode, 0 if own else facts.st_ctime_ns)
        return found

    def _take(self) -> None:
        rest = b""
        while (ready := select.select([self._reader], [], [], _PAUSE)[0]) or self._until == float("inf"):
            if time.monotonic() > self._until:
                self.strange = "the lines of evidence did not cease at the end of the run"
                return
            try:
                *lines, rest = (rest + (os.read(self._reader, 1 << 16) if ready else b"")).split(b"\n")
            except BlockingIOError:  # another reader was faster
                continue
            for line in filter(None, lines):
                try:
                    self._line(json.loads(line))
                except Exception as error:  # whatever a program writes there, the others are heard
                    self.strange = f"the evidence holds a line that the guard did not write ({type(error).__name__})"

    def _line(self, said: dict[str, Any]) -> None:
        if said["nonce"] != self._nonce or not said["id"].isalnum():
            raise ValueError(said)
        if said["id"] not in self._answered:
            if said["kind"] == "armed":
                self.armed.append(msgspec.convert(said, Armed))
            else:
                self.refused.append(msgspec.convert(said, Denied))
            self._answered.add(said["id"])
        with contextlib.suppress(OSError):  # a folder that is gone is told by `altered`
            (self._folder / TAKEN / said["id"]).touch()

"""Private folders for copies of a store. A process that is killed cannot remove its own: the next run does."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_PREFIX = "nl-cutover-"
_OWNER = "owner"


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder of mode 0700, gone afterwards; before it is made, those that killed processes left are removed.

    `owner` in it holds the pid, under a lock that the kernel lets go when the process ends, however it ends: a pid
    alone may be another process by now, or one of another container. Raises OSError when it cannot be made.
    """
    _sweep(tempfile.gettempdir())
    folder = tempfile.TemporaryDirectory(prefix=_PREFIX)
    path = Path(folder.name)
    with ExitStack() as held:
        made = os.open(path / "new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        held.callback(os.close, made)
        held.enter_context(folder)
        os.write(made, f"{os.getpid()}\n".encode())
        with suppress(OSError):  # where there are no locks the folder is never taken for a dead one's
            fcntl.flock(made, fcntl.LOCK_EX)
            os.rename(path / "new", path / _OWNER)  # nobody sees it without its lock
        yield path


def _sweep(where: str) -> None:
    with suppress(OSError), os.scandir(where) as entries:
        for entry in [entry for entry in entries if entry.name.startswith(_PREFIX)]:
            with suppress(OSError):
                _remove_if_dead(entry)


def _remove_if_dead(entry: os.DirEntry[str]) -> None:
    facts = entry.stat(follow_symlinks=False)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) != 0o700:
        return
    owner = os.open(os.path.join(entry.path, _OWNER), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry.path)
    finally:
        os.close(owner)

"""The custody directory: 0700, one run, one ledger, its receipts, one lock."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import platformdirs

from ..durability import make_durable
from ..errors import CustodyError, RefusedError

LEDGER = "ledger.sqlite"
MARKER = "custody"
RECEIPTS = "receipts"
OPEN, CLOSED = b"open\n", b"closed\n"


def default_custody() -> Path:
    """Where custody is kept when `--custody` does not say: the user's state directory."""
    return Path(platformdirs.user_state_path("nl-cutover")) / "custody"


def exists(directory: Path) -> bool:
    """Whether a run has begun here. Raises CustodyError when its ledger is gone: nothing ever starts over."""
    begun = (directory / MARKER).exists()
    if begun and not (directory / LEDGER).exists():
        raise CustodyError(
            f"the ledger {directory / LEDGER} is missing, but a run was begun here",
            "bring the ledger back from a backup; without it nobody can say which rows were sent",
        )
    return begun


def create(directory: Path) -> None:
    """Make the directory private. Raises CustodyError where it cannot be made, RefusedError where others may enter."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not any(directory.iterdir()):
            directory.chmod(0o700)
        check_private(directory)
        (directory / RECEIPTS).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CustodyError(
            f"custody {directory} cannot be made: {error.strerror}", "choose another --custody"
        ) from None


def check_private(directory: Path) -> None:
    """Raises RefusedError when others may enter: the ledger holds the token map of the telemetry."""
    mode = stat.S_IMODE(os.stat(directory).st_mode)
    if mode & 0o077:
        raise RefusedError(
            f"custody {directory} can be entered by others (mode {mode:04o})",
            f"chmod 700 {directory}, or choose another --custody",
        )


def mark(directory: Path, sign: bytes) -> None:
    """Leave the durable sign that a ledger must exist here from now on, and whether its log must be beside it."""
    descriptor = os.open(directory / MARKER, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(descriptor, sign, 0)
        os.ftruncate(descriptor, len(sign))
        os.fsync(descriptor)
    except OSError as error:
        raise CustodyError(
            f"custody {directory} cannot be written: {error.strerror}",
            "make room, or mend the permissions, then give the same command again",
        ) from None
    finally:
        os.close(descriptor)
    make_durable(directory)


def check_log(directory: Path) -> None:
    """Raises CustodyError when a run ended without closing the ledger and the ledger's log is gone since."""
    log = directory / f"{LEDGER}-wal"
    if (directory / MARKER).exists() and (directory / MARKER).read_bytes() == OPEN and not log.exists():
        raise CustodyError(
            f"the ledger's log {log} is missing: a run ended before it could be folded into the ledger",
            "bring it back; without it nobody can say which rows were sent last",
        )


@contextmanager
def store_locks(stores: Iterable[str]) -> Iterator[None]:
    """One run a store on this host, whatever its custody: two at once would each send the same rows.

    Raises RefusedError naming the store that another run holds.
    """
    folder = Path(tempfile.gettempdir()) / f"nl-cutover-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as held:
        for store in sorted(stores):
            held.callback(Lock(folder, f"{store}.lock", f"store {store}").close)
        yield


class Lock:
    """An exclusive lock on a custody directory, or on what `of` names, held until closed or until the process dies."""

    def __init__(self, directory: Path, name: str = "lock", of: str = "") -> None:
        path = directory / name
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise CustodyError(f"{path} cannot be locked: {error.strerror}") from None
            raise RefusedError(
                f"another nl-cutover{f' (pid {owner})' if owner else ''} works with {of or f'custody {directory}'}",
                "wait for it to end, then give the same command again",
            ) from None
        with suppress(OSError):  # a full disk: the lock holds without the number too
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def close(self) -> None:
        os.close(self._descriptor)

"""Which physical file a path names: links hop by hop, every errno told apart, and (device, inode) as the identity.

A name proves nothing: five checkouts reach one store through links, a bind mount gives one file two names that no
`realpath` joins, and a dangling link looks like an absent file to `exists()`.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import msgspec

from ..errors import UnmeasurableError
from ..verdicts import Absent, Unmeasurable
from .paths import shown

MAX_HOPS = 40  # the kernel's own limit for one path
SIDECARS = ("-wal", "-shm", "-journal")

StoreId = str


class Identity(msgspec.Struct, frozen=True, order=True):
    """A physical file: `st_dev` and `st_ino`."""

    device: int
    inode: int

    @property
    def id(self) -> StoreId:
        return f"{self.device:x}-{self.inode:x}"


class Located(msgspec.Struct, frozen=True):
    """A regular file with one name. `path` is canonical; `hops` are the links passed on the way, as (link, target)."""

    path: Path
    identity: Identity
    hops: tuple[tuple[str, str], ...]
    owner: int  # uid
    folder: Identity  # of the directory that also holds the sidecars


Resolution = Located | Absent | Unmeasurable


def identity_of(facts: os.stat_result) -> Identity:
    return Identity(facts.st_dev, facts.st_ino)


def resolve(path: Path) -> Resolution:
    """Follow `path` to the file that holds the rows, by `lstat` alone: nothing is opened and nothing is created."""
    spelled = shown(path)
    hops: list[tuple[str, str]] = []
    start = path.absolute()
    at = Path(start.anchor)
    # (component, depth of the link that brought it in): a missing component of a link's target is a dangling link,
    # a missing component that the caller spelled is an absent file.
    rest: list[tuple[str, int]] = [(part, 0) for part in reversed(start.parts[1:])]
    facts = os.lstat(at)
    while rest:
        part, depth = rest.pop()
        if part == "..":
            at = at.parent
            continue
        step = at / part
        try:
            facts = os.lstat(step)
        except OSError as error:
            return _refused(error, spelled, step, hops, depth)
        if not stat.S_ISLNK(facts.st_mode):
            at = step
            continue
        if len(hops) == MAX_HOPS:
            return Unmeasurable(
                f"{spelled} runs through more than {MAX_HOPS} links, last {hops[-1][0]}: a link loop",
                "point the link at the store's folder",
            )
        try:
            target = os.readlink(step)
        except OSError as error:
            return _refused(error, spelled, step, hops, depth)
        hops.append((shown(step), shown(target)))
        if os.path.isabs(target):
            at = Path(start.anchor)
        rest.extend((piece, len(hops)) for piece in reversed(Path(target).parts) if piece != start.anchor)
    try:
        facts, folder = os.lstat(at), os.stat(at.parent)
    except OSError as error:
        return _refused(error, spelled, at, hops, 0)
    return _file(at, facts, folder, spelled, tuple(hops))


def _file(
    path: Path, facts: os.stat_result, folder: os.stat_result, spelled: str, hops: tuple[tuple[str, str], ...]
) -> Resolution:
    if not stat.S_ISREG(facts.st_mode):
        return Unmeasurable(
            f"{spelled} is {_kind(facts.st_mode)}, not a regular file", "name the SQLite file or its checkout"
        )
    if facts.st_ino == 0:
        return Unmeasurable(
            f"{spelled}: this file system gives no inode numbers, so the store cannot be told from another",
            "measure on the machine whose disk holds the store",
        )
    if facts.st_nlink > 1:
        return Unmeasurable(
            f"{spelled} has {facts.st_nlink} hard links: SQLite keeps one -wal per name, so no name shows every row",
            f"find the other names (find DIR -inum {facts.st_ino}), stop every writer and leave one name",
        )
    return Located(path, identity_of(facts), hops, facts.st_uid, identity_of(folder))


def _refused(error: OSError, spelled: str, step: Path, hops: list[tuple[str, str]], depth: int) -> Resolution:
    through = f" (through {hops[-1][0]})" if hops else ""
    match error.errno:
        case errno.ENOENT if depth:
            link, target = hops[depth - 1]
            return Unmeasurable(
                f"{spelled}: dangling link {link} -> {target}, and {shown(step)} does not exist",
                "its store went elsewhere: find it, or remove the link",
            )
        case errno.ENOENT:
            return Absent(f"no file {spelled}{through}: {shown(step)} does not exist")
        case errno.ENOTDIR:
            return Unmeasurable(
                f"{spelled}{through}: {shown(step.parent)} is not a directory", "name the checkout's directory"
            )
        case errno.EACCES | errno.EPERM:
            return Unmeasurable(
                f"{spelled}{through}: door closed, uid {os.geteuid()} may not enter {shown(step.parent)}",
                "run as the owner of that directory",
            )
        case errno.ELOOP:
            return Unmeasurable(f"{spelled}: a link loop at {shown(step)}", "point the link at the store's folder")
        case errno.ENAMETOOLONG:
            return Unmeasurable(f"{spelled[:80]}...: the name is too long for the file system", "shorten the path")
        case code:
            name = errno.errorcode.get(code or 0, str(code))
            return Unmeasurable(f"{spelled}{through}: {shown(step)} cannot be looked at ({name})", "check the disk")


def _kind(mode: int) -> str:
    tests = {
        stat.S_ISDIR: "a directory",
        stat.S_ISFIFO: "a pipe",
        stat.S_ISSOCK: "a socket",
        stat.S_ISCHR: "a device",
        stat.S_ISBLK: "a device",
    }
    return next((words for test, words in tests.items() if test(mode)), "a special file")


def relocate(path: Path, identity: Identity) -> Located:
    """The store that was measured as `identity`, found again at its canonical path. Raises UnmeasurableError."""
    found = resolve(path)
    if isinstance(found, Located) and found.identity == identity:
        return found
    why = "the file under this name is another one now" if isinstance(found, Located) else found.reason
    raise UnmeasurableError(f"{shown(path)} is no longer store {identity.id}: {why}", "measure again")

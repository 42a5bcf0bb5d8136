"""What kind of file system a store lies on: SQLite's locks and shared memory mean nothing on some of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

from .paths import shown

# fmt: off
_LOCAL = frozenset({
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs", "overlay", "tmpfs", "ramfs",
    "apfs", "hfs", "ufs", "vfat", "exfat", "ntfs", "ntfs3", "squashfs", "erofs", "iso9660", "rootfs",
})
_NETWORK = frozenset({
    "nfs", "nfs3", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afpfs", "webdav", "davfs", "ncp", "ncpfs", "afs",
    "coda", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "ocfs2", "gfs", "gfs2", "orangefs",
})
_VIRTUAL = frozenset({
    "virtiofs", "9p", "v9fs", "drvfs", "vboxsf", "vmhgfs", "prl_fs", "osxfs", "grpcfuse", "fakeowner", "lifs", "aufs",
    "ecryptfs",
})
# fmt: on


class Kind(StrEnum):
    LOCAL = "local"
    NETWORK = "network"
    VIRTUAL = "virtual"  # a share across a machine boundary, or a user-space file system
    UNKNOWN = "unknown"


class Filesystem(msgspec.Struct, frozen=True):
    """`options` are the mount's and the file system's own, as the kernel writes them."""

    type: str
    kind: Kind
    mount_point: str = ""
    options: str = ""

    @property
    def shown(self) -> Filesystem:
        """The same with every part as it may be printed: a mount point is a path."""
        return Filesystem(shown(self.type), self.kind, shown(self.mount_point), shown(self.options))


UNTOLD = Filesystem("could not tell", Kind.UNKNOWN)


def kind_of(type_: str) -> Kind:
    """A type as mountinfo spells it, e.g. `ext4`, `nfs4`, `fuse.sshfs`."""
    if type_ in _LOCAL:
        return Kind.LOCAL
    if type_ in _NETWORK:
        return Kind.NETWORK
    if type_ in _VIRTUAL or type_.startswith("fuse"):
        return Kind.VIRTUAL
    return Kind.UNKNOWN


class Mount(msgspec.Struct, frozen=True):
    """One line of mountinfo: the folder `root` of a file system is seen at `point`. See proc(5)."""

    id: str
    root: str
    point: str
    type: str
    options: str

    def place(self, path: str) -> str | None:
        """Where in its file system a path under `point` lies; None for any other."""
        below = self.point.rstrip("/") + "/"
        # What was bound and then deleted is told as its old name with this behind it.
        root = self.root.removesuffix("//deleted")
        if path == self.point:
            return root
        return os.path.join(root, path[len(below) :]) if path.startswith(below) else None


def mounts(mountinfo_text: str) -> Iterator[Mount]:
    """The mounts of `/proc/PID/mountinfo`, in its order; a line that is none is passed over."""
    for line in mountinfo_text.splitlines():
        left, dash, right = line.partition(" - ")
        fields, tail = left.split(" "), right.split(" ")
        if dash and len(fields) >= 6 and len(tail) >= 2:
            options = dict.fromkeys([*fields[5].split(","), *(tail[2].split(",") if len(tail) > 2 else [])])
            yield Mount(fields[0], _unescaped(fields[3]), _unescaped(fields[4]), tail[0], ",".join(options))


def mount_for(path: str | os.PathLike[str], mountinfo_text: str) -> Mount | None:
    """The mount of a canonical path: the longest mount point that holds it; a later mount covers an earlier."""
    best: Mount | None = None
    for mount in mounts(mountinfo_text):
        if mount.place(os.fspath(path)) is not None and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def filesystem_for(path: str | os.PathLike[str], mountinfo_text: str) -> Filesystem:
    """The file system of a canonical path; `mountinfo_text` is `/proc/self/mountinfo`."""
    found = mount_for(path, mountinfo_text)
    return Filesystem(found.type, kind_of(found.type), found.point, found.options) if found else UNTOLD


def filesystem_of(path: Path) -> Filesystem:
    """The file system of a canonical path on this machine; `could not tell` where there is no /proc."""
    try:
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return UNTOLD
    return filesystem_for(path, text)


def _unescaped(field: str) -> str:
    raw = re.sub(
        rb"\\([0-7]{3})",
        lambda found: bytes([int(found[1], 8) & 0xFF]),
        field.encode("utf-8", "surrogateescape"),
    )
    return os.fsdecode(raw)

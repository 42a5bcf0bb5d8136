"""What kind of file system a store lies on: SQLite's locks and shared memory mean nothing on some of them."""

from __future__ import annotations

import os
import re
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


def filesystem_for(path: str | os.PathLike[str], mountinfo_text: str) -> Filesystem:
    """The file system of a canonical path, by the longest mount point that holds it; a later mount covers an earlier.

    `mountinfo_text` is `/proc/self/mountinfo`, see proc(5).
    """
    where = os.fspath(path)
    best: Filesystem | None = None
    for line in mountinfo_text.splitlines():
        left, dash, right = line.partition(" - ")
        fields, tail = left.split(" "), right.split(" ")
        if not dash or len(fields) < 6 or len(tail) < 2:
            continue
        mount_point = _unescaped(fields[4])
        inside = where == mount_point or where.startswith(mount_point.rstrip("/") + "/")
        if inside and (best is None or len(mount_point) >= len(best.mount_point)):
            options = ",".join(dict.fromkeys([*fields[5].split(","), *(tail[2].split(",") if len(tail) > 2 else [])]))
            best = Filesystem(tail[0], kind_of(tail[0]), mount_point, options)
    return best or UNTOLD


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

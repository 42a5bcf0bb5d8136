"""Who has a store open, found by (device, inode): names lie, and a writer may hold a `-wal` that is already deleted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from ..wording import counted
from .filesystems import mount_for, mounts
from .identity import SIDECARS, Identity, Located, StoreId, identity_of
from .paths import shown

_DELETED = " (deleted)"  # behind the name of an open file that has none any more
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of proc(5)
_INITIAL_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO; in any other, and with `hidepid`, /proc is not the whole


class Looked(StrEnum):
    """How far the look went. Only `everywhere` makes an empty list mean nobody."""

    EVERYWHERE = "everywhere"
    PARTLY = "partly"  # some processes belong to other users, or live outside this container
    NOWHERE = "nowhere"  # the platform does not tell, or the look was skipped


class Holder(msgspec.Struct, frozen=True):
    """One open file of one process. `access`: `read`, `write` or `unknown`; `file`: `main`, `-wal` or `-shm`."""

    pid: int
    command: str
    access: str
    file: str
    deleted: bool = False


class Holders(msgspec.Struct, frozen=True):
    """`unreadable` counts the processes whose open files could not be listed."""

    looked: Looked
    processes: tuple[Holder, ...] = ()
    unreadable: int = 0

    @property
    def nobody(self) -> bool:
        return self.looked is Looked.EVERYWHERE and not self.processes

    @property
    def deleted(self) -> tuple[Holder, ...]:
        return tuple(holder for holder in self.processes if holder.deleted)

    def sentence(self) -> str:
        """`held by …`, `nobody holds it`, or that it is not known."""
        if self.processes:
            names = dict.fromkeys(f"pid {holder.pid} ({holder.command})" for holder in self.processes)
            return "held by " + ", ".join([*names][:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        if self.looked is Looked.EVERYWHERE:
            return "nobody holds it"
        if self.unreadable:
            return f"holders unknown: {counted(self.unreadable, 'process|processes')} of other users could not be looked into"
        if self.looked is Looked.PARTLY:
            return "holders unknown: processes outside this container or of other users cannot be seen"
        return "holders unknown: could not look"


UNKNOWN = Holders(Looked.NOWHERE)


def holders_of(stores: Sequence[Located], *, proc: Path = Path("/proc")) -> dict[StoreId, Holders]:
    """The holders of each store, in one sweep over all processes. Never raises."""
    if not stores:
        return {}
    targets = _Targets(stores)
    if (proc / "self" / "fd").is_dir():
        return _from_proc(targets, proc)
    return _from_psutil(targets)


class _Targets:
    def __init__(self, stores: Sequence[Located]) -> None:
        self.found: dict[StoreId, list[Holder]] = {store.identity.id: [] for store in stores}
        self.files: dict[Identity, tuple[StoreId, str]] = {}
        self.deleted: dict[str, tuple[StoreId, str]] = {}  # what the kernel calls a file without a name
        self.places: dict[tuple[int, str], tuple[StoreId, str]] = {}  # the same by device and path in its file system
        self.names: dict[tuple[int, str], list[tuple[StoreId, str]]] = {}  # by device and last component
        own_mounts = _text("/proc/self/mountinfo")
        for store in stores:
            key, device = store.identity.id, store.identity.device
            self.files[store.identity] = (key, "main")
            mount = mount_for(store.path, own_mounts)
            for suffix in ("", *SIDECARS):
                path = f"{store.path}{suffix}"
                self.deleted[f"{path}{_DELETED}"] = (key, suffix or "main")
                if mount and (place := mount.place(path)):
                    self.places[device, place] = (key, suffix or "main")
                self.names.setdefault((device, os.path.basename(path)), []).append((key, suffix or "main"))
                try:
                    self.files.setdefault(identity_of(os.lstat(path)), (key, suffix))
                except OSError:
                    continue
        self.devices = {identity.device for identity in self.files}

    def add(self, where: tuple[StoreId, str], pid: int, command: str, access: str, deleted: bool) -> None:
        holder = Holder(pid, command, access, where[1], deleted)
        if holder not in self.found[where[0]]:
            self.found[where[0]].append(holder)

    def result(self, looked: Looked, unreadable: int) -> dict[StoreId, Holders]:
        return {key: Holders(looked, tuple(found), unreadable) for key, found in self.found.items()}


def _from_proc(targets: _Targets, proc: Path) -> dict[StoreId, Holders]:
    unreadable = 0
    own_namespace = _link(f"{proc}/self/ns/mnt")
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        folder = f"{proc}/{name}/fd"
        try:
            numbers = os.listdir(folder)
        except FileNotFoundError:
            continue  # it ended
        except OSError:
            unreadable += not _is_kernel_thread(f"{proc}/{name}/stat")
            continue
        for number in numbers:
            _match(targets, f"{proc}/{name}", number, own_namespace)
    blind = unreadable or _link(f"{proc}/self/ns/pid") != _INITIAL_NAMESPACE or not os.path.exists(f"{proc}/1")
    return targets.result(Looked.PARTLY if blind else Looked.EVERYWHERE, unreadable)


def _match(targets: _Targets, process: str, number: str, own_namespace: str) -> None:
    link = f"{process}/fd/{number}"
    try:
        facts = os.stat(link)
    except OSError:
        return
    if facts.st_dev not in targets.devices:
        return
    where = targets.files.get(identity_of(facts))
    found = [] if where is None else [where]
    deleted = where is None and facts.st_nlink == 0
    if deleted:
        name = _link(link)
        if (where := targets.deleted.get(name)) is not None:
            found = [where]
        elif _link(f"{process}/ns/mnt") != own_namespace:
            found = _elsewhere(targets, process, number, facts.st_dev, name.removesuffix(_DELETED))
    for one in found:
        targets.add(one, int(os.path.basename(process)), _command(process), _access(process, number), deleted)


def _elsewhere(targets: _Targets, process: str, number: str, device: int, name: str) -> list[tuple[StoreId, str]]:
    """Which targets a deleted file may have been that a container calls `name`: it spells the folder in its own way."""
    named = targets.names.get((device, os.path.basename(name)), [])
    mount_id = _fact(process, number, "mnt_id")
    # A process with a root of its own within its mounts is told them from there, and its files from above.
    for mount in mounts(_text(f"{process}/mountinfo")) if _link(f"{process}/root") == "/" else ():
        if mount.id == mount_id and (place := mount.place(name)):
            known = targets.places.get((device, place))
            placed = {store for store, _ in targets.places.values()}
            return [known] if known else [one for one in named if one[0] not in placed]
    # Its mount is not told: whatever had the name of a target may have been that target.
    return named


def _access(process: str, number: str) -> str:
    flags = _fact(process, number, "flags")
    return "unknown" if flags is None else "read" if int(flags, 8) & os.O_ACCMODE == os.O_RDONLY else "write"


def _fact(process: str, number: str, name: str) -> str | None:
    """A field of fdinfo, see proc(5)."""
    for line in _text(f"{process}/fdinfo/{number}").splitlines():
        if line.startswith(f"{name}:"):
            return line.split()[1]
    return None


def _command(process: str) -> str:
    return shown(_text(f"{process}/comm").rstrip("\n")) or "?"


def _is_kernel_thread(path: str) -> bool:
    fields = _text(path).rpartition(")")[2].split()
    return len(fields) > 6 and bool(int(fields[6]) & _KERNEL_THREAD)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _from_psutil(targets: _Targets) -> dict[StoreId, Holders]:
    import psutil

    unreadable, seen = 0, 0
    for process in psutil.process_iter():
        try:
            files = process.open_files()
            command = shown(process.name())
        except psutil.NoSuchProcess:
            continue
        except (psutil.Error, OSError):
            unreadable += 1
            continue
        seen += 1
        for file in files:
            try:
                where = targets.files.get(identity_of(os.stat(file.path)))
            except OSError:
                continue
            if where is not None:
                targets.add(where, process.pid, command, "unknown", deleted=False)
    looked = Looked.NOWHERE if not seen else Looked.PARTLY if unreadable else Looked.EVERYWHERE
    return targets.result(looked, unreadable)

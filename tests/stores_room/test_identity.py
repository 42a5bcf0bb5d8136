"""Which file a name means: links, doors, mounts, replaced files, and names that are no text."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
from pathlib import Path

import msgspec
import pytest

from nl_cutover.stores import measurement
from nl_cutover.stores.filesystems import UNTOLD, Kind, filesystem_for, filesystem_of
from nl_cutover.stores.identity import Located, resolve
from nl_cutover.stores.measurement import Options
from nl_cutover.stores.mounts import ContainerMount
from nl_cutover.stores.paths import from_report, in_base64, shown
from nl_cutover.stores.verdict import verdict_of
from nl_cutover.verdicts import Absent, ExitCode, Unmeasurable

from .zoo import STORE, as_nobody, counts, folder, plant, reason, report, store

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def _why(path: Path) -> str:
    found = resolve(path)
    assert isinstance(found, Unmeasurable), found
    assert found.hint
    return found.reason


def test_five_checkouts_one_store(tmp_path: Path) -> None:
    """F10, F38: links to a child, to a file, to a folder above; counted once, every name listed."""
    real = tmp_path / "real"
    plant(real / STORE, archives=3)
    for seat in ("a", "b", "c"):
        (tmp_path / seat / ".neo-ai-data").mkdir(parents=True)
        (tmp_path / seat / ".neo-ai-data/sqlite").symlink_to(real / ".neo-ai-data/sqlite")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/.neo-ai-data").symlink_to("../real/.neo-ai-data")
    other = tmp_path / "e"
    plant(other / STORE, archives=3)  # as many rows, another file
    before = folder(tmp_path)
    found = report(real, *(tmp_path / seat for seat in "abcde"))
    assert [checkout.store for checkout in found.checkouts[:5]] == [found.stores[0].id] * 5
    assert [len(one.aliases) for one in found.stores] == [5, 1]
    assert found.stores[0].seats == ("real", "a", "b", "c", "d")
    assert [counts(one) for one in found.stores] == [(3, 0), (3, 0)]
    assert found.stores[0].path == str(real / STORE)
    assert folder(tmp_path) == before


def test_hops_are_named(tmp_path: Path) -> None:
    plant(tmp_path / "x/a.sqlite")
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to(tmp_path / "x/../x")
    found = resolve(tmp_path / "one/a.sqlite")
    assert isinstance(found, Located)
    assert found.path == (tmp_path / "x/a.sqlite").resolve()
    assert found.hops == ((str(tmp_path / "one"), "two"), (str(tmp_path / "two"), str(tmp_path / "x/../x")))


def test_dangling_is_not_absent(tmp_path: Path) -> None:
    """F39: nothing is created; the checkout blocks the cut."""
    (tmp_path / "s/.neo-ai-data").mkdir(parents=True)
    (tmp_path / "s/.neo-ai-data/sqlite").symlink_to("../../gone/sqlite")
    good = tmp_path / "good"
    plant(good / STORE, archives=1)
    before = folder(tmp_path)
    found = report(tmp_path / "s", good)
    assert found.checkouts[0].state == "unmeasurable"
    assert "dangling link" in found.checkouts[0].reason
    assert "../../gone/sqlite" in found.checkouts[0].reason
    assert found.checkouts[0].store is None
    assert counts(found.stores[0]) == (1, 0)
    assert verdict_of(found, allow_absent=True) is ExitCode.UNMEASURABLE
    assert folder(tmp_path) == before


def test_an_absent_file_behind_a_link_is_absent(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    assert isinstance(resolve(tmp_path / "link/a.sqlite"), Absent)
    assert isinstance(resolve(tmp_path / "nothing/here"), Absent)


def test_loops_and_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "loop" in _why(tmp_path / "a")
    assert "loop" in _why(tmp_path / "a/x.sqlite")
    (tmp_path / "file").touch()
    assert "is not a directory" in _why(tmp_path / "file/x.sqlite")
    assert "a directory, not a regular file" in _why(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "a pipe" in _why(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(tmp_path)
        made.bind("socket")
        assert "a socket" in _why(tmp_path / "socket")
    assert "a device" in _why(Path("/dev/null"))
    assert "too long" in _why(tmp_path / ("x" * 300))


def test_a_named_pipe_is_never_opened(tmp_path: Path) -> None:
    """Opening one would wait for ever."""
    (tmp_path / "s" / STORE).parent.mkdir(parents=True)
    os.mkfifo(tmp_path / "s" / STORE)
    assert report(tmp_path / "s").checkouts[0].state == "unmeasurable"


@root_only
def test_a_closed_door(public: Path) -> None:
    plant(public / "s" / STORE, archives=1)
    plant(public / "open" / STORE, archives=2)
    (public / "s/.neo-ai-data").chmod(0o700)
    found = as_nobody(lambda: report(public / "s", public / "open"))
    assert "door closed, uid 65534" in found.checkouts[0].reason
    assert counts(found.stores[0]) == (2, 0)


def test_hard_links_are_refused(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=1)
    os.link(path, tmp_path / "b.sqlite")
    found = report(path, closed=True)
    assert "2 hard links" in found.checkouts[0].reason
    assert not found.stores


def test_inode_zero_is_no_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F38."""
    path = plant(tmp_path / "a.sqlite")
    real = os.lstat

    def without_inode(name: Path) -> os.stat_result:
        facts = list(real(name))
        facts[1] = 0
        return os.stat_result(facts)

    monkeypatch.setattr(os, "lstat", without_inode)
    assert "no inode numbers" in _why(path)


def _mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True).returncode == 0


@root_only
def test_a_bind_mount_is_the_same_store(public: Path) -> None:
    """F38: `realpath` does not reveal it."""
    plant(public / "a" / STORE, archives=3)
    (public / "b").mkdir()
    if not _mount("--bind", str(public / "a"), str(public / "b")):
        pytest.skip("no bind mounts here")
    try:
        (found,) = report(public / "a", public / "b").stores
        assert counts(found) == (3, 0)
        assert found.seats == ("a", "b")
        (found,) = report(public / "a" / STORE, public / "b" / STORE, closed=True).stores
        assert counts(found) == (3, 0)
    finally:
        subprocess.run(["umount", str(public / "b")], check=True)


@root_only
def test_a_single_file_mount_has_its_log_elsewhere(public: Path) -> None:
    """F43's host side: SQLite looks for the `-wal` beside the name it was given."""
    path = plant(public / "a.sqlite", archives=3)
    other = public / "b/a.sqlite"
    other.parent.mkdir()
    other.touch()
    if not _mount("--bind", str(path), str(other)):
        pytest.skip("no bind mounts here")
    try:
        assert "mounted as a single file" in reason(store(other))
        assert "mounted as a single file" in reason(store(path, other))
    finally:
        subprocess.run(["umount", str(other)], check=True)


def test_a_store_that_is_replaced_once_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F37: the open connection goes on counting the old inode."""
    path, new = plant(tmp_path / "a.sqlite", archives=1), plant(tmp_path / "new.sqlite", archives=7)
    real, calls = measurement.walk, []

    def replacing(*arguments: object, **more: object) -> object:
        calls.append(1)
        if len(calls) == 1:
            os.replace(new, path)
        return real(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(measurement, "planted_control", lambda _: measurement.Control(True))
        patch.setattr(measurement, "walk", replacing)
        found = store(path)
    assert counts(found) == (7, 0)


def test_a_store_that_is_replaced_again_and_again_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = plant(tmp_path / "a.sqlite", archives=1)
    real = measurement.walk

    def replacing(*arguments: object, **more: object) -> object:
        shutil.copyfile(path, tmp_path / "new")
        os.replace(tmp_path / "new", path)
        return real(*arguments, **more)

    monkeypatch.setattr(measurement, "planted_control", lambda _: measurement.Control(True))
    monkeypatch.setattr(measurement, "walk", replacing)
    found = report(path, closed=True)
    assert "replaced" in reason(found.stores[0])
    assert verdict_of(found) is ExitCode.UNMEASURABLE


def test_a_link_that_turns_elsewhere_while_its_store_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = [plant(tmp_path / name / "a.sqlite", archives=1) for name in "xy"]
    link, real, turns = tmp_path / "link", measurement.walk, iter(stores * 9)
    link.symlink_to(next(turns))

    def turning(*arguments: object, **more: object) -> object:
        link.unlink()
        link.symlink_to(next(turns))
        return real(*arguments, **more)

    monkeypatch.setattr(measurement, "TABLES", measurement.TABLES[:1])
    monkeypatch.setattr(measurement, "walk", turning)
    (found,) = report(link, closed=True).stores
    assert found.reason == f"{link} was replaced while it was read"


MOUNTS = (
    "25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "36 25 0:32 / /host/data rw - virtiofs share rw\n"
    "37 36 8:1 / /host/data/ext rw - ext4 /dev/sda1 rw\n"
    "38 25 0:40 / /net\\040work ro,noexec master:2 - nfs4 host:/x rw,nolock\n"
    "39 25 0:41 / /cover rw - ext4 /dev/sdb rw\n"
    "40 25 0:42 / /cover rw - fuse.sshfs me@there rw\n"
    "41 25 0:43 / /odd rw - shinyfs none rw\n"
    "not a mount line\n"
)


@pytest.mark.parametrize(
    ("path", "type_", "kind"),
    [
        ("/host/data/x.db", "virtiofs", Kind.VIRTUAL),
        ("/host/data/ext/x.db", "ext4", Kind.LOCAL),
        ("/host/data/extra/x.db", "virtiofs", Kind.VIRTUAL),
        ("/host/database", "ext4", Kind.LOCAL),
        ("/net work/x.db", "nfs4", Kind.NETWORK),
        ("/cover/x.db", "fuse.sshfs", Kind.VIRTUAL),
        ("/odd/x.db", "shinyfs", Kind.UNKNOWN),
    ],
)
def test_the_longest_mount_point_wins(path: str, type_: str, kind: Kind) -> None:
    """F14, F15."""
    found = filesystem_for(path, MOUNTS)
    assert (found.type, found.kind) == (type_, kind)


def test_mount_options_are_told() -> None:
    assert filesystem_for("/net work/x", MOUNTS).options == "ro,noexec,rw,nolock"
    assert filesystem_for("/x", "") is UNTOLD


@pytest.mark.parametrize("type_", ["nfs4", "virtiofs", "9p", "fuse.mergerfs", "cifs"])
def test_a_shared_file_system_needs_a_word_from_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type_: str
) -> None:
    path = plant(tmp_path / "a.sqlite", archives=3)
    mounts = f"25 1 8:1 / / rw - {type_} host:/x rw,nolock\n"
    monkeypatch.setattr(measurement.filesystems, "filesystem_of", lambda p: filesystem_for(p, mounts))
    assert f"lies on {type_}" in reason(store(path))
    found = store(path, options=Options(acknowledged=frozenset({type_})))
    assert counts(found) == (3, 0)
    assert any("acknowledged" in warning and "nolock" in warning for warning in found.warnings)


def test_an_unknown_file_system_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plant(tmp_path / "a.sqlite", archives=3)
    monkeypatch.setattr(measurement.filesystems, "filesystem_of", lambda _: UNTOLD)
    found = store(path)
    assert counts(found) == (3, 0)
    assert any("could not tell" in warning for warning in found.warnings)


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="needs /proc")
def test_this_machine_tells_its_file_system(tmp_path: Path) -> None:
    assert filesystem_of(tmp_path.resolve()).mount_point


def test_what_a_container_has_mounted_is_not_opened(tmp_path: Path) -> None:
    """F14: compared by identity, through a link."""
    plant(tmp_path / "s" / STORE, archives=3)
    (tmp_path / "alias").symlink_to("s/.neo-ai-data")
    for source in (tmp_path / "alias", tmp_path / "s" / STORE, tmp_path):
        why = reason(store(tmp_path / "s", options=Options(mounts=(ContainerMount("neo-mc", source),))))
        assert "running container neo-mc" in why
    elsewhere = Options(mounts=(ContainerMount("neo-mc", tmp_path / "gone"), ContainerMount("x", Path("/proc"))))
    assert counts(store(tmp_path / "s", options=elsewhere)) == (3, 0)


@pytest.mark.parametrize(
    "name", [b"a?b", b"a#b", b"a%41b", b"a\nb", b"a\xffb", b"a b&mode=rwc", "é😀".encode(), b"a\\b"]
)
def test_names_that_are_syntax_or_no_text(tmp_path: Path, name: bytes) -> None:
    """F42: opened, counted, and shown on one line of valid Unicode."""
    checkout = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    plant(checkout / STORE, archives=3)
    before = folder(tmp_path)
    found = report(checkout)
    (one,) = found.stores
    assert counts(one) == (3, 0)
    assert one.location == (checkout / STORE)
    text = msgspec.json.encode(found).decode()
    assert "\n" not in one.path
    assert (one.path_b64 is None) == (name in (b"a?b", b"a#b", b"a%41b", b"a b&mode=rwc", "é😀".encode()))
    assert found.checkouts[0].path in msgspec.json.decode(text)["checkouts"][0]["path"]
    assert folder(tmp_path) == before


def test_shown_paths_come_back() -> None:
    for raw in ("/plain/é", "/a\nb", "/a\udcffb", "/a\\nb", "/\x7f", "/\u2028\u202e"):
        assert from_report(shown(raw), in_base64(raw)) == Path(raw)
        assert shown(raw).isprintable()
    assert in_base64("/a\udcff") == base64.b64encode(b"/a\xff").decode()

"""Who has a store open: by inode, deleted sidecars included; "could not look" is an answer of its own."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from nl_cutover.stores.holders import Holders, Looked, holders_of
from nl_cutover.stores.identity import Located, resolve
from nl_cutover.stores.measurement import Options

from .zoo import SEES_ALL, as_nobody, counts, plant, store, writer

linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")


def _holders(path: Path) -> Holders:
    found = resolve(path)
    assert isinstance(found, Located)
    return holders_of([found])[found.identity.id]


@linux
def test_a_writer_is_found_by_inode(tmp_path: Path) -> None:
    """F10: the kernel reports the resolved name, a guard that compares spellings sees nobody."""
    plant(tmp_path / "real/a.sqlite", archives=1)
    (tmp_path / "alias").symlink_to("real")
    with writer(tmp_path / "alias/a.sqlite") as w:
        w.archive("x")
        found = _holders(tmp_path / "alias/a.sqlite")
        mine = [holder for holder in found.processes if holder.pid == w.pid]
        assert {(holder.file, holder.access) for holder in mine} == {
            ("main", "write"),
            ("-wal", "write"),
            ("-shm", "write"),
        }
        assert not found.deleted
        assert found.sentence().startswith(f"held by pid {w.pid} (python")
        os.unlink(tmp_path / "real/a.sqlite-wal")
        assert [holder.file for holder in _holders(tmp_path / "real/a.sqlite").deleted] == ["-wal"]


@linux
def test_a_reader_is_told_from_a_writer(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", wal=False)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        (holder,) = _holders(path).processes
        assert (holder.pid, holder.access, holder.file) == (os.getpid(), "read", "main")


@linux
def test_a_writer_on_a_replaced_store(tmp_path: Path) -> None:
    """F37's other half: the old inode lives on without a name."""
    path, new = plant(tmp_path / "a.sqlite"), plant(tmp_path / "n.sqlite", archives=2)
    with writer(path) as w:
        w.run("SELECT 1 FROM sqlite_master")
        os.replace(new, path)
        deleted = _holders(path).deleted
        assert {holder.pid for holder in deleted} == {w.pid}
        assert "main" in {holder.file for holder in deleted}
        assert "deleted main" in store(path).reason


@pytest.mark.skipif(not SEES_ALL, reason="needs a namespace to be in")
@pytest.mark.parametrize("mount", ["bound", "taken away", "under another root", "one file"])
def test_a_deleted_file_of_a_container_is_the_store_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str
) -> None:
    """The Memory Core of another project has a graph of the same name, on the same disk: that is another file."""
    folders = [tmp_path / name for name in ("graph one", "two")]
    for folder in folders:
        folder.mkdir()
        plant(folder / "a.sqlite", archives=1)
    inside = tmp_path / "app"
    inside.mkdir()
    script = """
import subprocess, sys
folder, inside, mount = sys.argv[1:]
if mount == "one file":
    open(f"{inside}/b.sqlite", "xb").close()
    subprocess.run(["mount", "--bind", f"{folder}/a.sqlite", f"{inside}/b.sqlite"], check=True)
    held = open(f"{inside}/b.sqlite", "rb")
else:
    subprocess.run(["mount", "--bind", folder, inside], check=True)
    held = open(f"{inside}/a.sqlite", "rb")
if mount == "taken away":
    subprocess.run(["umount", "--lazy", inside], check=True)
if mount == "under another root":
    import os
    os.chroot(os.path.dirname(inside))
print("open", flush=True)
sys.stdin.read()
"""
    command = ["unshare", "--mount", sys.executable, "-c", script, str(folders[0]), str(inside), mount]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as container:
        assert container.stdout is not None
        if container.stdout.readline() != "open\n":
            _, why = container.communicate()
            assert why.startswith("unshare:"), why
            pytest.skip("no namespaces here")
        (folders[0] / "a.sqlite").unlink()
        plant(folders[0] / "a.sqlite", archives=2)
        located = [found for folder in folders if isinstance(found := resolve(folder / "a.sqlite"), Located)]
        first, second = (holders_of(located)[one.identity.id] for one in located)
        monkeypatch.setattr("nl_cutover.stores.holders.mount_for", lambda *_: None)
        blind = holders_of(located).values()
        container.communicate()
    assert {holder.pid for holder in first.deleted} == {container.pid}
    assert bool(second.deleted) is (mount in ("taken away", "under another root")), "where it was is not known"
    if mount != "one file":
        assert all(found.deleted for found in blind), "where the stores are is not known"


@pytest.mark.skipif(not SEES_ALL, reason="does not see all processes")
def test_nobody_is_known_only_after_looking_everywhere(public: Path) -> None:
    path = plant(public / "a.sqlite")
    assert _holders(path).nobody
    found = as_nobody(lambda: _holders(path))
    assert (found.looked, found.processes, found.nobody) == (Looked.PARTLY, (), False)
    assert found.unreadable > 0
    assert "could not be looked into" in found.sentence()
    assert any("holders unknown" in warning for warning in as_nobody(lambda: store(path)).warnings)


@pytest.mark.skipif(not SEES_ALL, reason="needs a namespace to be in")
def test_a_container_does_not_see_the_host(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=1)
    code = (
        "import sys; from pathlib import Path; from nl_cutover.stores.identity import resolve; "
        "from nl_cutover.stores.holders import holders_of; found = resolve(Path(sys.argv[1])); "
        "print(*[one.sentence() for one in holders_of([found]).values()])"
    )
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code, str(path)]
    made = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    if "unshare" in made.stderr:
        pytest.skip("no namespaces here")
    assert "outside this container" in made.stdout, made


def test_a_look_that_was_skipped(tmp_path: Path) -> None:
    found = store(plant(tmp_path / "a.sqlite", archives=1), options=Options(holders=False))
    assert (counts(found), found.holders.looked) == ((1, 0), Looked.NOWHERE)
    assert "could not look" in found.holders.sentence()


def test_without_proc(tmp_path: Path) -> None:
    """psutil is asked; where it knows only some processes, that is said."""
    path = plant(tmp_path / "a.sqlite")
    located = resolve(path)
    assert isinstance(located, Located)
    with writer(path) as w:
        w.run("SELECT 1 FROM sqlite_master")
        found = holders_of([located], proc=tmp_path)[located.identity.id]
    assert w.pid in {holder.pid for holder in found.processes}
    assert {holder.access for holder in found.processes} == {"unknown"}


def test_psutil_that_sees_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    located = resolve(plant(tmp_path / "a.sqlite"))
    assert isinstance(located, Located)

    def denied(_: psutil.Process) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "open_files", denied)
    assert holders_of([located], proc=tmp_path)[located.identity.id].looked is Looked.NOWHERE


@linux
def test_many_stores_are_one_quick_sweep(tmp_path: Path) -> None:
    paths = [plant(tmp_path / f"{n}.sqlite") for n in range(8)]
    located = [found for found in map(resolve, paths) if isinstance(found, Located)]
    holders_of(located)
    took = []
    for _ in range(5):
        started = time.perf_counter()
        assert len(holders_of(located)) == 8
        took.append(time.perf_counter() - started)
    assert min(took) < 0.05 + 0.0005 * len(psutil.pids())

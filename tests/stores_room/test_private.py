"""Copies of a store that a killed process left: the next run removes them, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nl_cutover.migration.preparing import source_of
from nl_cutover.stores.private import private_folder

from .zoo import STORE, as_nobody, folder, plant, report

_HOLDER = """
import sys
from nl_cutover.stores.private import private_folder
with private_folder() as folder:
    (folder / "store.sqlite").write_bytes(b"rows of a host")
    (folder / "link").symlink_to(sys.argv[1])
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "temp"
    path.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(path))
    return path


@contextmanager
def another_run(temp: Path, elsewhere: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(elsewhere)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(temp)},
    )
    try:
        assert process.stdout
        yield process, Path(process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()


def test_what_a_killed_run_left_is_removed_by_the_next_and_what_a_living_one_has_stays(
    tmp_path: Path, temp: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    with another_run(temp, elsewhere) as (process, left):
        assert (left / "owner").read_text() == f"{process.pid}\n"
        assert left.stat().st_mode & 0o777 == 0o700
        with private_folder():
            assert (left / "store.sqlite").exists()
        process.kill()
        process.communicate()
        assert (left / "store.sqlite").exists(), "nobody could remove it"
        with private_folder() as own:
            assert os.listdir(temp) == [own.name]
    assert os.listdir(temp) == []
    assert os.listdir(elsewhere) == ["kept"], "links are removed, not followed"


def test_measuring_is_a_later_run_too(tmp_path: Path, temp: Path) -> None:
    plant(tmp_path / "neo" / STORE, archives=1)
    with another_run(temp, tmp_path) as (process, left):
        process.kill()
        process.communicate()
        report(tmp_path / "neo")
        assert not left.exists()


def test_snapshots_lie_in_such_a_folder(tmp_path: Path, temp: Path) -> None:
    plant(tmp_path / "neo" / STORE, archives=1)
    with source_of(report(tmp_path / "neo")) as source:
        (store,) = source.stores.values()
        assert (store.snapshot.path.parent / "owner").read_text() == f"{os.getpid()}\n"
        with private_folder():
            assert store.snapshot.path.exists(), "not taken for a dead run's by its own process"
    assert os.listdir(temp) == []


def test_what_only_looks_like_a_dead_runs_stays(tmp_path: Path, temp: Path) -> None:
    def dead(name: str, mode: int = 0o700) -> Path:
        path = temp / name
        path.mkdir()
        (path / "owner").write_text("1\n")
        path.chmod(mode)
        return path

    dead("another-tool")
    dead("nl-cutover-open", 0o755)
    (temp / "nl-cutover-without").mkdir(0o700)
    (temp / "nl-cutover-file").touch()
    target = tmp_path / "target"
    dead("aside").rename(target)
    (temp / "nl-cutover-link").symlink_to(target)
    (temp / "nl-cutover-inner").mkdir(0o700)
    (temp / "nl-cutover-inner" / "owner").symlink_to(target / "owner")
    before = [folder(path) for path in (*temp.iterdir(), target)]
    with private_folder():
        pass
    assert [folder(path) for path in (*temp.iterdir(), target)] == before
    dead("nl-cutover-dead")
    with private_folder():
        assert not (temp / "nl-cutover-dead").exists(), "the control"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's folder")
def test_another_users_folder_stays(public: Path, temp: Path) -> None:
    public.chmod(0o777)
    path = public / "nl-cutover-theirs"

    def leave() -> None:
        path.mkdir(0o700)
        (path / "owner").touch()

    as_nobody(leave)
    path.rename(temp / path.name)
    with private_folder():
        assert (temp / path.name / "owner").exists()

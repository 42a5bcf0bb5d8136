"""`.ci/engine` empties what it made, and nothing else."""

import contextlib
import os
import subprocess

import psutil
import pytest

from .conftest import ROOT


@pytest.mark.parametrize("verb", ["start", "stop"])
def test_a_folder_that_is_not_an_engines_stays_as_it_is(tmp_path, verb):
    (tmp_path / "kept").write_text("x")
    done = subprocess.run(
        [ROOT / ".ci" / "engine", verb, tmp_path], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert str(tmp_path) in done.stderr
    assert [found.name for found in tmp_path.iterdir()] == ["kept"]


def test_another_engines_bridge_is_left_alone(tmp_path):
    """The first name is taken: the next one is made, and it alone is deleted. Neither network nor daemon is touched."""
    asked = tmp_path / "asked"
    scripts = {
        "ip": f'echo "$@" >>{asked}; [ "$1 $2" != "link add" ] || [ $(grep -c "link add" {asked}) -gt 1 ]',
        "dockerd": "exit 1",
        "docker": "exit 1",
        "iptables": "",
        "debootstrap": "",
    }
    (tmp_path / "bin").mkdir()
    for name, body in scripts.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    environ = os.environ | {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def engine(verb):
        command = [ROOT / ".ci" / "engine", verb, tmp_path / "engine"]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)

    failed = engine("start")
    assert failed.returncode == 1
    assert "dockerd did not start" in failed.stderr
    assert engine("stop").returncode == 0
    words = asked.read_text().splitlines()
    taken, own = (line.split()[2] for line in words if line.startswith("link add"))
    assert taken != own
    assert [line.split()[2] for line in words if line.startswith("link delete")] == [own]
    assert not (tmp_path / "engine").exists()


def test_what_a_killed_engine_left_running_is_ended(tmp_path):
    """A container outlives its engine below a shim that names the engine's folder; that of another engine stays."""
    shim = tmp_path / "containerd-shim-runc-v2"
    shim.write_text("#!/bin/sh\nsleep 300 &\necho $!\nwait\n")
    shim.chmod(0o755)
    engine, other = tmp_path / "engine", tmp_path / "other"
    engine.mkdir()
    (engine / "made-by-ci-engine").touch()
    shims, inside = [], []
    try:
        for folder in (engine, other):
            command = [shim, "-address", f"{folder}/exec/containerd/containerd.sock"]
            shims.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            inside.append(psutil.Process(int(shims[-1].stdout.readline())))
        command = [ROOT / ".ci" / "engine", "stop", engine]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert shims[0].wait(10) < 0
        assert psutil.wait_procs(inside[:1], timeout=10)[0] or inside[0].status() == psutil.STATUS_ZOMBIE
        assert shims[1].poll() is None
        assert inside[1].is_running()
        assert not engine.exists()
    finally:
        for process in [*inside, *shims]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        for one in shims:
            one.wait(10)
            one.stdout.close()

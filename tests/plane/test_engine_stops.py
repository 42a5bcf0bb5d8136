"""What runs the container stops in the middle: `docker stop`, the engine ended, the engine killed.

The engine that is ended here is one of its own, with a bridge of its own, in a temporary folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.types import Mount

from ..conftest import TOKENS
from .conftest import ROOT, SECOND, SECRET, SQLITE, Running, free_port
from .scene import Scene
from .test_killed import carried_to, resumed


class OwnEngine:
    """A dockerd that a test may end; its socket is `url`."""

    def __init__(self, folder: Path, bridge: str) -> None:
        self.folder, self.url = folder, f"unix://{folder}/docker.sock"
        self._bridge = bridge
        self.daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> docker.DockerClient:
        """Start it, and wait until it answers."""
        (self.folder / "pid").unlink(missing_ok=True)  # a killed one leaves it
        command = ["dockerd", "--data-root", f"{self.folder}/data", "--exec-root", f"{self.folder}/exec"]
        command += ["--pidfile", f"{self.folder}/pid", "--host", self.url, "--bridge", self._bridge]
        command += ["--iptables=false", "--ip-masq=false", "--ip-forward=false"]
        with open(self.folder / "log", "ab") as log:
            self.daemon = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + 60
        while True:
            try:
                client = docker.DockerClient(self.url)
                client.ping()
                return client
            except docker.errors.DockerException:
                assert self.daemon.poll() is None, (self.folder / "log").read_text()[-2000:]
                assert time.monotonic() < end
                time.sleep(0.2)

    def end(self, kill: bool = False) -> None:
        assert self.daemon is not None
        self.daemon.kill() if kill else self.daemon.terminate()
        self.daemon.wait(90)
        # The containerd of a killed engine ends with it. Until its new parent has noticed, the next engine would take
        # it for one that still runs, and wait for it in vain.
        note = self.folder / "exec/containerd/containerd.pid"
        end = time.monotonic() + 10
        while note.exists() and time.monotonic() < end:
            if not Path(f"/proc/{note.read_text()}/exe").exists():  # a zombie has none
                note.unlink()
            time.sleep(0.05)


@pytest.fixture(scope="module")
def own_engine(engine, image, tmp_path_factory) -> Iterator[OwnEngine]:
    """With the image of the other engine in it."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("dockerd", "ip", "docker"))):
        pytest.skip("a second engine needs root, dockerd and ip")
    folder = tmp_path_factory.mktemp("engine")
    bridge, net = f"nlt{os.getpid() % 10_000}", f"198.19.{os.getpid() % 250}.1/24"
    subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=True)
    own = OwnEngine(folder, bridge)
    try:
        subprocess.run(["ip", "addr", "add", net, "dev", bridge], check=True)
        subprocess.run(["ip", "link", "set", bridge, "up"], check=True)
        client = own.start()
        with open(folder / "image.tar", "wb") as file:
            file.writelines(engine.images.get(image).save(named=True))
        with open(folder / "image.tar", "rb") as file:
            client.images.load(file)
        (folder / "image.tar").unlink()
        yield own
    finally:
        # As CI ends its own, with what a killed one leaves: containers that run, mounts, the bridge.
        (folder / "made-by-ci-engine").write_text(bridge)
        subprocess.run([ROOT / ".ci" / "engine", "stop", folder], check=True)
        if own.daemon is not None:
            own.daemon.wait(10)


def core_in(client: docker.DockerClient, image: str, folder: Path) -> Running:
    folder.mkdir(parents=True)
    secret = folder / "token"
    secret.write_text("".join(f"{who}={token}\n" for who, token in TOKENS.items()))
    secret.chmod(0o644)
    volume, port = f"graph-{time.time_ns()}", free_port()
    started = client.containers.run(
        image,
        detach=True,
        mounts=[Mount(SECRET, str(secret), type="bind", read_only=True), Mount(SQLITE, volume, type="volume")],
        ports={"3001/tcp": ("127.0.0.1", port)},
        healthcheck={"interval": SECOND},
    )
    running = Running(started, port, TOKENS, volume)
    running.wait()
    return running


@pytest.mark.slow
def test_docker_stop_in_the_middle(container, tmp_path):
    core = container()
    scene = Scene(tmp_path, core, archives=120, actions=0)
    running = scene.start("migrate", *scene.checkouts)
    carried_to(scene, running, 20)
    core.container.stop(timeout=30)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 7, out + err
    stopped = scene("migrate", *scene.checkouts, "--container", core.container.name)
    assert (stopped.code, "is exited (0)" in stopped.json["error"]) == (5, True), stopped.out
    assert scene("migrate", *scene.checkouts).code == 5, "the ingress is gone: nothing was sent"
    resumed(scene)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kill", [False, True], ids=["ended", "killed"])
def test_the_engine_itself_is_gone_in_the_middle(own_engine, image, tmp_path, kill):
    client = docker.DockerClient(own_engine.url)
    core = core_in(client, image, tmp_path / "core")
    scene = Scene(tmp_path / "scene", core, archives=120, actions=0, mark="killed-" if kill else "ended-")
    scene.environ["DOCKER_HOST"] = own_engine.url
    running = scene.start("migrate", *scene.checkouts)
    carried_to(scene, running, 20)
    own_engine.end(kill=kill)
    out, err = running.communicate(timeout=120)
    # A killed engine leaves its containers running, and what publishes their ports may outlive it.
    assert running.returncode in ((0, 7) if kill else (7,)), out + err
    status = scene("plane", "status")
    assert status.code == 5, status.out
    assert any("the engine is stopped" in trouble or "not there" in trouble for trouble in status.json["troubles"])
    cut = scene("cut", *scene.checkouts, "--", "touch", tmp_path / "landed")
    assert cut.code in (3, 5)
    assert not (tmp_path / "landed").exists()
    measured = scene("measure", *scene.checkouts)
    assert any("is not known" in warning for warning in measured.json["warnings"])

    client = own_engine.start()
    core.container = client.containers.get(core.container.id)
    resumed(scene)

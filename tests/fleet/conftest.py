"""Hosts of a fleet: containers that are reached over SSH, and a Memory Core beside them."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import docker
import pytest
from docker.errors import ImageNotFound
from docker.types import Mount

from tests.plane.conftest import LABEL, base, container, engine, free_port, image  # noqa: F401 - fixtures

ANSIBLE = "ansible-core==2.19.*"  # the last that runs on Python 3.11
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nl-cutover-tests"
DOCKERFILE = """
FROM {image}
USER root
COPY packages /packages
RUN set -e; if ls /packages/*.deb; then dpkg --install /packages/*.deb; fi; rm -f /etc/ssh/ssh_host_*; \
    mkdir -p /run/sshd; useradd --uid 1001 --create-home --shell /bin/sh ops
HEALTHCHECK NONE
CMD ["/usr/sbin/sshd", "-D", "-e", "-o", "PasswordAuthentication=no"]
"""


class Locked:
    """One at a time over all processes that share the cache."""

    def __init__(self, name: str) -> None:
        CACHE.mkdir(parents=True, exist_ok=True)
        self.path = CACHE / f"{name}.lock"

    def __enter__(self) -> None:
        self.file = open(self.path, "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self.file.close()


@pytest.fixture(scope="session")
def ansible_playbook() -> Path:
    """ansible-core in an environment of its own, kept between runs: it is 70 MB and nothing of the package needs it."""
    folder = CACHE / f"ansible-{hashlib.sha256(f'{ANSIBLE}{sys.version}'.encode()).hexdigest()[:12]}"
    with Locked("ansible"):
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True)
            pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", ANSIBLE]
            done = subprocess.run(pip, capture_output=True, text=True, timeout=280, check=False)
            if done.returncode != 0:
                pytest.fail(f"{ANSIBLE} could not be installed: {done.stderr[-2000:]}")
            (folder / "ready").touch()
    return folder / "bin" / "ansible-playbook"


@pytest.fixture(scope="session")
def host_image(engine: docker.DockerClient, image: str) -> str:  # noqa: F811
    """The image of this checkout with an SSH server, a user `ops` and nothing else."""
    tag = f"nl-cutover-fleet-test:{hashlib.sha256(f'{image}{DOCKERFILE}'.encode()).hexdigest()[:16]}"
    with Locked("fleet-image"):
        try:
            engine.images.get(tag)
        except ImageNotFound:
            engine.images.build(
                fileobj=_context(engine, image), custom_context=True, tag=tag, network_mode="none", rm=True
            )
    return tag


def _context(engine: docker.DockerClient, image: str) -> io.BytesIO:  # noqa: F811
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        dockerfile = DOCKERFILE.format(image=image).encode()
        info = tarfile.TarInfo("Dockerfile")
        info.size = len(dockerfile)
        tar.addfile(info, io.BytesIO(dockerfile))
        folder = tarfile.TarInfo("packages")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for package in _packages(engine, image):
            tar.add(package, f"packages/{package.name.replace(':', '_')}")
    written.seek(0)
    return written


def _packages(engine: docker.DockerClient, image: str) -> list[Path]:  # noqa: F811
    """What the image lacks of Debian's openssh-server. `.ci/engine` puts it into the base, and then that is nothing."""
    told = "cat /var/lib/dpkg/status; test -x /usr/sbin/sshd && echo has-sshd >&2"
    looking = engine.containers.run(image, ["sh", "-c", told + "; true"], user="root", detach=True, network_mode="none")
    try:
        looking.wait(timeout=60)
        status, has = looking.logs(stdout=True, stderr=False), looking.logs(stdout=False, stderr=True)
    finally:
        looking.remove(force=True, v=True)
    if b"has-sshd" in has:
        return []
    folder = CACHE / f"openssh-{hashlib.sha256(status).hexdigest()[:12]}"
    (folder / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    (folder / "status").write_bytes(status)
    options = [f"Dir::State::status={folder}/status", f"Dir::Cache::archives={folder}/archives", "Debug::NoLocking=1"]
    command = ["apt-get", "--yes", "--no-install-recommends", "--download-only", "install", "openssh-server"]
    for option in options:
        command[1:1] = ["--option", option]
    if shutil.which("apt-get") is None:
        pytest.skip("the base image has no SSH server, and without apt-get it cannot be had")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        pytest.skip(f"the base image has no SSH server, and apt-get did not bring it: {done.stderr[-500:]}")
    return sorted((folder / "archives").glob("*.deb"))


class Host:
    """One host of the fleet. `sh` runs a script on it as its user, as somebody who works there."""

    def __init__(self, name: str, container, port: int) -> None:  # noqa: F811
        self.name, self.container, self.port = name, container, port

    def sh(self, script: str) -> str:
        told = self.container.exec_run(["sh", "-ec", script], user="ops", workdir="/home/ops")
        assert told.exit_code == 0, told.output
        return told.output.decode()

    def python(self, script: str) -> str:
        told = self.container.exec_run(["/opt/nl-cutover/bin/python", "-c", script], user="ops", workdir="/home/ops")
        assert told.exit_code == 0, told.output
        return told.output.decode()

    def stop(self) -> None:
        self.container.stop(timeout=1)

    def start(self) -> None:
        self.container.start()
        _answers(self.port)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    return tmp_path / "key"


@pytest.fixture
def start_host(
    engine: docker.DockerClient,  # noqa: F811
    host_image: str,
    key: Path,
    tmp_path: Path,
) -> Iterator[Callable[..., Host]]:
    """`start_host("ada", others)` starts a container of that name, with names for `others`, that `key` lets in.

    It serves the key that `known_hosts` beside `key` names: a host that is not known is not talked to.
    """
    started = []

    def start(name: str, extra_hosts: dict[str, str]) -> Host:
        own = tmp_path / f"{name}.hostkey"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(own)], check=True)
        port = free_port()
        run = engine.containers.run(
            host_image,
            detach=True,
            name=f"nl-cutover-fleet-{name}-{uuid4().hex[:8]}",
            hostname=name,
            mounts=[Mount("/etc/ssh/ssh_host_ed25519_key", str(own), type="bind", read_only=True)],
            ports={"22/tcp": ("127.0.0.1", port)},
            extra_hosts=extra_hosts,
            labels={LABEL: name},
        )
        started.append(run)
        host = Host(name, run, port)
        host.sh(f"umask 077; mkdir .ssh; echo '{key.with_suffix('.pub').read_text().strip()}' > .ssh/authorized_keys")
        with open(key.parent / "known_hosts", "a") as known:
            known.write(f"[127.0.0.1]:{port} {own.with_suffix('.hostkey.pub').read_text()}")
        _answers(port)
        return host

    try:
        yield start
    finally:
        for run in started:
            run.remove(force=True, v=True)


def _answers(port: int) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 2) as connection:
                if connection.recv(4) == b"SSH-":
                    return
        except OSError:
            pass
        assert time.monotonic() < end, "its SSH server does not answer"
        time.sleep(0.1)

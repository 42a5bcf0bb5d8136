"""A Docker engine, the image of this checkout, and Memory Cores in containers. Each leaves nothing but the image."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import docker
import pytest
from docker.errors import DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.types import Mount

from nl_cutover.contract.leaves import DIGEST_LOOKBACK_MS

from ..conftest import TOKENS

ROOT = Path(__file__).parents[2]
BASES = ("nl-base:bookworm", "python:3.11-slim")  # the first one that the engine has; NL_CUTOVER_MC_BASE names another
LABEL = "nl-cutover.test"
SQLITE = "/app/.neo-ai-data/sqlite"
SECRET = "/run/secrets/mcp-auth-token"
DAY_MS = 24 * 60 * 60 * 1000
SECOND = 1_000_000_000  # ns, the unit of the engine's healthchecks

# What a container runs. The rest of the package lies in the image too, but nothing there calls it.
RUNS = ("__init__.py", "__main__.py", "errors.py", "resources.py", "verdicts.py")
RUNS_OF = ("cli", "contract", "ingress", "memory_core", "output")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "engine" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.docker)
            item.add_marker(pytest.mark.timeout(300))  # the first one may build the image


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    """The engine of DOCKER_HOST, of the context or the default one; a skip with the reason where none answers."""
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as failure:
        pytest.skip(f"no Docker engine answers: {failure}")
    yield client
    client.close()


@pytest.fixture(scope="session")
def base(engine: docker.DockerClient) -> str:
    """The image to build on."""
    if (named := os.environ.get("NL_CUTOVER_MC_BASE")) is not None:
        return named
    for name in BASES:
        try:
            engine.images.get(name)
        except ImageNotFound:
            continue
        return name
    return BASES[-1]


@pytest.fixture(scope="session")
def image(engine: docker.DockerClient, base: str) -> str:
    """The tag of the reference Memory Core's image; built only where what it runs has changed."""
    package = ROOT / "nl_cutover"
    files = [ROOT / "pyproject.toml", ROOT / "migrations" / "graph.py", *(package / name for name in RUNS)]
    files += [f for name in RUNS_OF for f in (package / name).rglob("*") if f.is_file() and f.suffix != ".pyc"]
    digest = hashlib.sha256(base.encode())
    for file in sorted(files):
        digest.update(b"\0%s\0" % str(file.relative_to(ROOT)).encode() + file.read_bytes())
    tag = f"nl-cutover-mc-test:{digest.hexdigest()[:16]}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nl-cutover-tests"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "image.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            engine.images.get(tag)
        except ImageNotFound:
            command = [sys.executable, "-m", "nl_cutover", "mc", "image", "--base", base, "--tag", tag]
            done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
            assert done.returncode == 0, done.stderr
    return tag


class Running:
    """A Memory Core in a container. `url` and `token` are its ingress; `volume` is None where it has none."""

    def __init__(self, container: Container, port: int, tokens: str | Mapping[str, str], volume: str | None) -> None:
        self.container = container
        self.url = f"http://127.0.0.1:{port}/mc/mcp"
        self.port = port
        self.tokens = {} if isinstance(tokens, str) else dict(tokens)
        self.token = tokens if isinstance(tokens, str) else next(iter(tokens.values()))
        self.volume = volume

    @property
    def health(self) -> str:
        self.container.reload()
        return str(self.container.attrs["State"]["Health"]["Status"])

    @property
    def probes(self) -> list[dict[str, Any]]:
        """What the last healthchecks came to: `ExitCode`, `Output`."""
        self.container.reload()
        return list(self.container.attrs["State"]["Health"]["Log"])

    def wait(self, status: str = "healthy", seconds: float = 120) -> None:
        """Until the healthcheck says so; AssertionError with the log and what the probes said."""
        end = time.monotonic() + seconds
        while self.health != status:
            told = f"{self.container.logs().decode()} {self.probes}"
            assert time.monotonic() < end, f"{self.health}, not {status}: {told}"
            time.sleep(0.1)


@pytest.fixture
def container(engine: docker.DockerClient, image: str, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """`container()` starts a Memory Core and waits until it is healthy.

    `volume`: None for a new one, False for none, or a name; `port`: published on 127.0.0.1, a free one by default;
    `tokens`: name -> token, or one for all; `environment`, `labels` and `health` (the engine's fields) add to the
    image's; `wait=False` does not wait. All that carries the factory's label is removed at the end, also what a test created with it.
    """
    mark = {LABEL: uuid4().hex}

    def start(
        *,
        volume: str | bool | None = None,
        port: int | None = None,
        tokens: str | Mapping[str, str] = TOKENS,
        environment: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        health: Mapping[str, Any] | None = None,
        wait: bool = True,
        **options: Any,
    ) -> Running:
        name = f"nl-cutover-test-{uuid4().hex[:12]}"
        secret = tmp_path / f"{name}.token"
        secret.write_text(
            tokens if isinstance(tokens, str) else "".join(f"{who}={token}\n" for who, token in tokens.items())
        )
        secret.chmod(0o644)  # the container's user is another one; pytest's folder keeps others out
        mounts = [Mount(SECRET, str(secret), type="bind", read_only=True)]
        if volume is None:
            volume = engine.volumes.create(name, labels=mark).name
        if volume is not False:
            mounts.append(Mount(SQLITE, str(volume), type="volume"))
        chosen = port or free_port()
        started = engine.containers.run(
            image,
            detach=True,
            name=name,
            mounts=mounts,
            ports={"3001/tcp": ("127.0.0.1", chosen)},
            # Planted actions are of 2025: its retention would take them at the next start.
            environment={DIGEST_LOOKBACK_MS: str(100 * 366 * DAY_MS), **(environment or {})},
            labels={**(labels or {}), **mark},
            healthcheck={"interval": SECOND, **(health or {})},
            **options,
        )
        running = Running(started, chosen, tokens, str(volume) if volume is not False else None)
        if wait:
            running.wait()
        return running

    try:
        yield start
    finally:
        ours = {"label": f"{LABEL}={mark[LABEL]}"}
        for left in engine.containers.list(all=True, filters=ours):
            try:
                left.remove(force=True, v=True)
            except NotFound:
                pass
        for left in engine.volumes.list(filters=ours):
            left.remove(force=True)


def free_port() -> int:
    """A port that stays the same when a container is started again, unlike one that the engine chooses."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])

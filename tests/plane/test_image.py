"""The image of the reference Memory Core: who runs in it, where the graph is, what it says of itself, how it ends."""

import io
import json
import os
import subprocess
import sys
import tarfile
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from docker.errors import ImageNotFound
from docker.models.images import ImageCollection

from nl_cutover import __version__
from nl_cutover.errors import RefusedError
from nl_cutover.memory_core import image as images

from .conftest import ROOT, SECOND, SECRET, SQLITE

TINY = SECOND // 1000  # a start period; 0 would mean the image's


def nl_cutover(*arguments, **environ):
    command = [sys.executable, "-m", "nl_cutover", *map(str, arguments)]
    return subprocess.run(
        command, env=os.environ | environ, capture_output=True, text=True, timeout=200, check=False, cwd=ROOT
    )


def conformance(core):
    done = nl_cutover("mc", "conformance", "--url", core.url, NEO_MCP_REMOTE_TOKEN=core.token)
    assert done.returncode == 0, done.stdout + done.stderr


def inside(core, *command):
    code, out = core.container.exec_run(list(command))
    assert code == 0, out
    return out.decode()


def archives(core):
    graph = f"{SQLITE}/memory-core-graph.sqlite"
    count = "SELECT count(*) FROM Nodes WHERE id LIKE 'nl-transaction-archive:%'"
    code = f"import sqlite3; print(*sqlite3.connect({graph!r}).execute({count!r}).fetchone())"
    return int(inside(core, "python3", "-c", code))


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_it_behaves_like_the_real_one_and_its_rows_outlive_the_container(container):
    core = container()
    conformance(core)
    kept = archives(core)
    assert kept > 0
    core.container.remove(force=True)
    again = container(volume=core.volume, port=core.port)
    assert again.container.id != core.container.id
    assert archives(again) == kept
    conformance(again)
    assert archives(again) == 2 * kept


def test_nobody_in_it_is_root_and_the_graph_is_on_the_volume(container):
    core = container()
    assert inside(core, "id", "-u").strip() == "1000"
    assert inside(core, "stat", "-c", "%U", "/proc/1", f"{SQLITE}/memory-core-graph.sqlite").split() == ["neo", "neo"]
    mount = next(m for m in core.container.attrs["Mounts"] if m["Destination"] == SQLITE)
    assert (mount["Type"], mount["Name"]) == ("volume", core.volume)
    assert not [change["Path"] for change in core.container.diff() or [] if ".sqlite" in change["Path"]]


def test_health_goes_from_starting_to_healthy(container):
    core = container(wait=False, health={"interval": 3 * SECOND})
    assert core.health == "starting"
    core.wait("healthy")
    assert core.probes[-1]["Output"] == "healthy: neo-local-canonical at /app/.neo-ai-data\n"


def test_a_container_that_is_another_plane_than_its_image_is_unhealthy(container):
    core = container(environment={"NEO_PLANE_ID": "orphan"}, health={"retries": 1, "start_period": TINY}, wait=False)
    until(lambda: core.probes and "plane orphan, expected neo-local-canonical" in core.probes[-1]["Output"])
    core.wait("unhealthy")
    assert core.probes[-1]["ExitCode"] == 1


def test_a_server_that_hangs_becomes_unhealthy(container):
    core = container(health={"retries": 1, "timeout": 5 * SECOND, "start_period": TINY})
    core.container.kill("SIGSTOP")
    core.wait("unhealthy")


def test_a_stop_is_an_end_and_not_a_kill(container, engine, image):
    """Exit code 0, and the log is folded into the graph: nothing is left beside it. A kill would be 137."""
    core = container()
    conformance(core)
    assert "memory-core-graph.sqlite-wal" in inside(core, "ls", SQLITE)
    core.container.stop(timeout=5)
    core.container.reload()
    assert core.container.attrs["State"]["ExitCode"] == 0
    left = engine.containers.run(
        image, ["ls", SQLITE], volumes={core.volume: {"bind": SQLITE, "mode": "ro"}}, remove=True
    )
    assert left.decode().split() == ["memory-core-graph.sqlite"]


def test_labels_name_version_revision_and_plane(engine, image):
    labels = engine.images.get(image).labels
    assert labels["org.opencontainers.image.version"] == __version__
    assert labels["nl-cutover.plane-id"] == "neo-local-canonical"
    revision = labels["org.opencontainers.image.revision"]
    told = engine.containers.run(image, ["cat", "/app/.neo-revision"], tmpfs={SQLITE: ""}, remove=True)
    assert told.decode().strip() == revision != ""


def test_no_token_is_seen_from_outside(container, engine, image):
    core = container()
    conformance(core)
    core.container.reload()
    seen = json.dumps(core.container.attrs) + core.container.logs().decode() + str(core.container.top())
    seen += json.dumps(engine.images.get(image).attrs) + json.dumps(engine.images.get(image).history())
    assert "healthy: neo-local-canonical" in seen
    assert "mc serve" in seen
    assert [token for token in core.tokens.values() if token in seen] == []


def test_without_its_secret_it_says_so_and_ends(container):
    core = container(environment={"NEO_MCP_HEALTHCHECK_TOKEN_FILE": "/run/secrets/absent"}, wait=False)
    assert core.container.wait(timeout=30)["StatusCode"] == 6
    assert "/run/secrets/absent cannot be read" in core.container.logs().decode()


def test_compose_yaml_asks_for_what_is_tested_here(container):
    """Compose itself is not here: each key that it would hand to the engine is one that this container has."""
    told = yaml.safe_load((images.FOLDER / "compose.yaml").read_text())
    assert told == {
        "name": "nl-cutover-mc",
        "services": {
            "mc-server": {
                "image": "nl-cutover-mc",  # the default of `mc image --tag`
                "pull_policy": "never",
                "restart": "unless-stopped",
                "stop_grace_period": "30s",
                "mem_limit": "1g",
                "ports": ["127.0.0.1:3102:3001"],
                "volumes": [f"shared-sqlite-data:{SQLITE}"],
                "secrets": [Path(SECRET).name],
            }
        },
        "volumes": {"shared-sqlite-data": None},
        "secrets": {Path(SECRET).name: {"file": f"./secrets/{Path(SECRET).name}"}},
    }
    conformance(container(tokens="0f" * 32, mem_limit="1g", restart_policy={"Name": "unless-stopped"}))


@pytest.fixture
def tag(engine):
    name = f"nl-cutover-mc-test:{uuid4().hex}"
    yield name
    with suppress(ImageNotFound):
        engine.images.remove(name, force=True)


def test_the_build_fetches_nothing(engine, base, tag, monkeypatch):
    """The engine is asked for no network, and a wheel that was not collected is missed."""
    asked = []
    build, collect = ImageCollection.build, images._pip

    def recorded(self, **options):
        asked.append(options["network_mode"])
        return build(self, **options)

    def forgetful(verb, *arguments):
        collect(verb, *arguments)
        if verb == "download":
            next(Path(arguments[arguments.index("--dest") + 1]).glob("uvicorn-*.whl")).unlink()

    monkeypatch.setattr(ImageCollection, "build", recorded)
    monkeypatch.setattr(images, "_pip", forgetful)
    with pytest.raises(RefusedError, match="No matching distribution found for uvicorn"):
        images.build(engine, base=base, tag=tag, plane_id="x", wheel=None, progress=lambda _: None)
    assert asked == ["none"]


def test_a_base_without_python_is_refused(engine, tag):
    empty = io.BytesIO()
    tarfile.open(fileobj=empty, mode="w").close()
    engine.api.import_image_from_data(empty.getvalue(), repository=tag.partition(":")[0], tag=tag.partition(":")[2])
    done = nl_cutover("mc", "image", "--base", tag, "--tag", tag)
    assert done.returncode == 3
    assert f"{tag} will not do as a base" in done.stderr

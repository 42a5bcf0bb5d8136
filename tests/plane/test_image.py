"""The image of the reference Memory Core: who runs in it, where the graph is, what it says of itself, how it ends."""

import json
import os
import subprocess
import sys

from nl_cutover import __version__

from .conftest import SECOND, SQLITE


def call(core, verb, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "nl_cutover", "mc", verb, "--url", core.url, *arguments],
        env=os.environ | {"NEO_MCP_REMOTE_TOKEN": core.token},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def inside(core, *command):
    code, out = core.container.exec_run(list(command))
    assert code == 0, out
    return out.decode()


def archives(core):
    count = "SELECT count(*) FROM Nodes WHERE id LIKE 'nl-transaction-archive:%'"
    graph = f"{SQLITE}/memory-core-graph.sqlite"
    return int(
        inside(
            core, "python3", "-c", f"import sqlite3; print(*sqlite3.connect({graph!r}).execute({count!r}).fetchone())"
        )
    )


def test_it_behaves_like_the_real_one_and_leaves_its_rows_on_the_volume(container):
    core = container()
    call(core, "conformance")
    kept = archives(core)
    assert kept > 0
    core.container.remove(force=True)
    again = container(volume=core.volume, port=core.port)
    assert again.container.id != core.container.id
    assert archives(again) == kept
    call(again, "conformance")
    assert archives(again) == 2 * kept


def test_nobody_in_it_is_root_and_the_graph_is_on_the_volume(container):
    core = container()
    assert inside(core, "id", "-u").strip() == "1000"
    assert inside(core, "stat", "-c", "%U", "/proc/1", f"{SQLITE}/memory-core-graph.sqlite").split() == ["neo", "neo"]
    mount = next(m for m in core.container.attrs["Mounts"] if m["Destination"] == SQLITE)
    assert (mount["Type"], mount["Name"]) == ("volume", core.volume)
    changed = {c["Path"] for c in core.container.diff() or []}
    assert not [path for path in changed if "sqlite" in path]


def test_health_goes_from_starting_to_healthy(container):
    core = container(wait=False)
    assert core.health == "starting"
    core.wait("healthy")


def test_a_container_that_is_another_plane_than_its_image_is_unhealthy(container):
    core = container(
        environment={"NEO_PLANE_ID": "orphan"}, health={"retries": 1, "start_period": SECOND // 1000}, wait=False
    )
    core.wait("unhealthy")
    said = core.container.attrs["State"]["Health"]["Log"][-1]
    assert said["ExitCode"] == 1
    assert "answers for plane orphan, expected neo-local-canonical" in said["Output"]


def test_a_server_that_hangs_becomes_unhealthy(container):
    core = container(health={"retries": 1, "timeout": SECOND, "start_period": SECOND // 1000})
    core.container.kill("SIGSTOP")
    core.wait("unhealthy")


def test_a_stop_is_an_end_and_not_a_kill(container, engine, image):
    """Exit code 0, and the log is folded into the graph: nothing is left beside it (a kill would be 137)."""
    core = container()
    call(core, "conformance")
    assert f"{SQLITE}/memory-core-graph.sqlite-wal" in inside(core, "find", SQLITE)
    core.container.stop(timeout=5)
    core.container.reload()
    assert core.container.attrs["State"]["ExitCode"] == 0
    left = engine.containers.run(
        image, ["ls", SQLITE], volumes={core.volume: {"bind": SQLITE, "mode": "ro"}}, network_mode="none", remove=True
    )
    assert left.decode().split() == ["memory-core-graph.sqlite"]


def test_labels_name_version_revision_and_plane(engine, image):
    labels = engine.images.get(image).labels
    assert labels["org.opencontainers.image.version"] == __version__
    assert labels["nl-cutover.plane-id"] == "neo-local-canonical"
    revision = labels["org.opencontainers.image.revision"]
    assert revision
    told = engine.containers.run(image, ["cat", "/app/.neo-revision"], network_mode="none", remove=True)
    assert told.decode().strip() == revision


def test_no_token_is_seen_from_outside(container, engine, image):
    core = container()
    call(core, "conformance")
    core.container.reload()
    seen = json.dumps(core.container.attrs) + core.container.logs().decode()
    seen += json.dumps(engine.images.get(image).attrs) + json.dumps(engine.images.get(image).history())
    seen += inside(core, "ps", "-ef") if core.container.exec_run(["which", "ps"])[0] == 0 else ""
    assert "healthy: neo-local-canonical" in seen
    assert [token for token in core.tokens.values() if token in seen] == []


def test_without_its_secret_it_says_so_and_ends(container):
    core = container(environment={"NEO_MCP_HEALTHCHECK_TOKEN_FILE": "/run/secrets/absent"}, wait=False)
    assert core.container.wait(timeout=30)["StatusCode"] == 6
    assert "/run/secrets/absent cannot be read" in core.container.logs().decode()

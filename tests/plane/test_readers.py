"""Both readers, of images with Python and of images with Node and better-sqlite3, on one live graph of the real layout."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from nl_cutover.contract.wire import PLANE_ID
from nl_cutover.migration.containers import ContainerEvidence
from nl_cutover.migration.evidence import GraphFile
from nl_cutover.plane.backup import backup
from nl_cutover.plane.engine import Engine
from nl_cutover.plane.evidence import graph_facts
from nl_cutover.plane.locate import inspected
from nl_cutover.testing import embedded_memory_core

from ..node import BETTER_SQLITE3, node, node_modules
from .conftest import SQLITE
from .scene import STORE, Scene

# Beside what is looked for: a Memory, and a node that is no JSON.
REAL = """
INSERT INTO Nodes (id, user_id, data) VALUES
  ('m-1', NULL, '{"id":"m-1","label":"Memory","properties":{"name":"m-1","thought":"𝒳 \\ud800"}}'),
  ('broken', NULL, '{"id":');
"""
HOLD = "import sqlite3, time; c = sqlite3.connect({0!r}); c.execute('PRAGMA journal_mode=WAL'); c.execute('UPDATE Nodes SET id = id'); c.commit(); open('/tmp/ready', 'w'); time.sleep(600)"
HOLD_NODE = (
    "const c = new (require('better-sqlite3'))({0!r}); c.pragma('journal_mode = WAL'); c.exec('UPDATE Nodes SET id = id');"
    "require('fs').writeFileSync('/tmp/ready', ''); setTimeout(() => {{}}, 600000)"
)
TRAP = "/tmp/trapped"


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Path:
    """A graph that a Memory Core wrote, with what the real one has beside it."""
    folder = tmp_path_factory.mktemp("graph")
    with embedded_memory_core(folder / "core", tokens={"neo-operator": "t"}) as core:
        scene = Scene(folder / "scene", core, archives=30, actions=50)
        assert scene("migrate", *scene.checkouts, "--engine", "none").code == 0
    path = folder / "data" / STORE.name
    path.parent.mkdir()
    with closing(sqlite3.connect(core.db)) as held, closing(sqlite3.connect(path)) as copy:
        held.backup(copy)
        copy.executescript(REAL)
    return path


@pytest.fixture(scope="module")
def node_image(engine, base, tmp_path_factory) -> str:
    """The machine's Node and a built better-sqlite3, on the base, without Python."""
    executable = Path(node()).resolve()
    context = tmp_path_factory.mktemp("node-image")
    shutil.copy(executable, context / "node")
    (context / "lib").mkdir()
    linked = subprocess.run(["ldd", str(executable)], capture_output=True, text=True, check=True).stdout
    for name, path in re.findall(r"(libstdc\+\+\S*|libgcc_s\S*) => (\S+)", linked):
        shutil.copy(path, context / "lib" / name)
    modules = node_modules(BETTER_SQLITE3) / "node_modules"
    for name in ("better-sqlite3", "bindings", "file-uri-to-path"):
        kept = shutil.ignore_patterns("deps", "src", "obj", "*.o", "*.a", "test_extension.node")
        shutil.copytree(modules / name, context / "node_modules" / name, ignore=kept)
    (context / "trap.cjs").write_text(
        f"if (process.pid > 1) require('fs').writeFileSync({TRAP!r}, '')"  # not in the container's own program
    )
    (context / "Dockerfile").write_text(
        f"FROM {base}\nRUN rm -f /usr/bin/python3*\nCOPY lib /usr/lib\nCOPY node /usr/bin/node\n"
        "COPY node_modules /app/node_modules\nCOPY trap.cjs /app/trap.cjs\nWORKDIR /app\n"
    )
    return str(engine.images.build(path=str(context), tag="nl-cutover-node-test", rm=True)[0].id)


@pytest.fixture
def running(request, engine, image, graph, tmp_path):
    """A container that holds a copy of the graph open for writing; with a preload that must not run in an exec."""
    folder = tmp_path / "sqlite"
    shutil.copytree(graph.parent, folder)
    inside = f"{SQLITE}/{STORE.name}"
    if request.param == "node":
        name = request.getfixturevalue("node_image")
        command = ["node", "-e", HOLD_NODE.format(inside)]
        environ = {"NODE_OPTIONS": "--require /app/trap.cjs"}
    else:
        name, environ = image, {"PYTHONPATH": "/traps"}
        command = ["python3", "-S", "-c", HOLD.format(inside)]
        (tmp_path / "traps").mkdir()
        (tmp_path / "traps" / "base64.py").write_text(f"import os\nif os.getpid() > 1: open({TRAP!r}, 'w')")
    volumes = {str(folder): {"bind": SQLITE}}
    if (tmp_path / "traps").exists():
        volumes[str(tmp_path / "traps")] = {"bind": "/traps", "mode": "ro"}
    environ |= {"NEO_MEMORY_DB_PATH": inside, "NEO_PLANE_ID": PLANE_ID}
    started = engine.containers.run(
        name,
        command,
        detach=True,
        user="0",
        network_mode="none",
        volumes=volumes,
        environment=environ,
        healthcheck={"test": ["NONE"]},
    )
    try:
        end = time.monotonic() + 30
        while started.exec_run(["test", "-e", "/tmp/ready"])[0] != 0:
            assert time.monotonic() < end, started.logs()
            time.sleep(0.1)
        yield started
    finally:
        started.remove(force=True)


def now() -> float:
    return time.time() * 1000


@pytest.mark.parametrize("running", ["python", pytest.param("node", marks=pytest.mark.node)], indirect=True)
def test_what_is_read_inside_is_what_the_file_holds(running, engine, graph, tmp_path):
    container = running
    api = Engine(None, engine.api)  # type: ignore[arg-type]
    pin = inspected(api, container.id)
    inside, outside = ContainerEvidence(api, pin, now, "http://127.0.0.1:9"), GraphFile(graph)
    began = now()
    by_id = lambda archive: archive.archive_id  # noqa: E731
    archives = inside.archives()
    assert sorted(archives, key=by_id) == sorted(outside.archives(), key=by_id)
    assert len(archives) == 30
    with closing(sqlite3.connect(graph)) as held:
        asked = "SELECT json_extract(data, '$.properties.sequenceId') FROM Nodes WHERE id LIKE 'nl-action%'"
        of_rows = [token for (token,) in held.execute(asked)]
    tokens = set(of_rows)
    assert len(of_rows) == 50
    assert inside.actions(tokens) == outside.actions(tokens)
    some = set(list(tokens)[:7])
    assert inside.actions(some) == outside.actions(some)
    assert sum(inside.actions(some).values()) == sum(token in some for token in of_rows) < 50
    assert inside.actions({"nobody's"}) == {}
    assert inside.archives(since=now() + 60_000) == []
    assert began <= inside.as_of <= now()
    assert inside.answer.reader.startswith(("python 3", "node 20"))

    held, _ = graph_facts(api, pin, now)
    assert held.counts == {"nl-transaction-archive": 30, "nl-action-telemetry": 50, "Memory": 1, "": 1}
    made = backup(api, pin, tmp_path / "backups", clock=now)
    assert made.counts == held.counts
    assert sorted(GraphFile(Path(made.path)).archives(), key=by_id) == sorted(archives, key=by_id)
    assert container.exec_run(["test", "-e", TRAP])[0] == 1, "nothing of the image was loaded"
    assert container.exec_run(["sh", "-c", f"ls -A /tmp {SQLITE} | grep nl-cutover-"])[0] == 1

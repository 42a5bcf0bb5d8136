"""The smoke: five symlinked checkouts, Memory Core in a container on a named volume, and the container taken away."""

import hashlib
import json
import sqlite3
import stat
from pathlib import Path

from nl_cutover.testing import plant_store

from .conftest import SECOND, SQLITE
from .scene import STORE, Scene

PROJECT, SERVICE = "com.docker.compose.project", "com.docker.compose.service"


def compose(project: str, service: str = "mc-server") -> dict[str, str]:
    return {PROJECT: project, SERVICE: service}


def test_the_whole_road_and_the_container_gone_and_made_again(container, tmp_path):
    core = container(labels=compose("road"))
    scene = Scene(tmp_path, core)
    measured = scene("measure", *scene.checkouts)
    assert measured.code == 3, measured.err
    assert "mounts of running containers" in measured.json["containers"]
    assert len(measured.json["stores"]) == 1
    status = scene("plane", "status")
    assert status.code == 0, status.out
    assert (
        status.json["container"]["home"] | {"source": core.volume, "kind": "volume"} == status.json["container"]["home"]
    )
    assert (len(status.json["tied"]), status.json["not_proved"]) == (3, [])

    migrated = scene("migrate", *scene.checkouts)
    assert migrated.code == 0, migrated.out + migrated.err
    beside = scene.receipt("migrate")["container"]
    backup = beside["backup"]
    assert beside["pin"]["id"] == core.container.id
    assert beside["not_proved"] == ["durability: not proved until `nl-cutover plane prove`"]
    file = Path(backup["path"])
    assert hashlib.sha256(file.read_bytes()).hexdigest() == backup["sha256"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert backup["counts"] == {}, "the graph as it was before the first row"
    assert scene.held() == scene.source()

    before = core.container.id
    run = migrated.json["run"]
    restarted = scene("plane", "prove", run, *scene.checkouts)
    assert restarted.code == 0, restarted.out + restarted.err
    assert restarted.json["returned"]["how"] == "restarted"
    assert restarted.json["returned"]["after"]["id"] == before
    assert restarted.json["verified"]["equal"] == 40
    proved = scene("plane", "prove", run, *scene.checkouts, "--recreate")
    assert proved.code == 0, proved.out + proved.err
    returned = proved.json["returned"]
    assert (returned["how"], returned["exit_code"]) == ("recreated", 0)
    assert returned["after"]["id"] != before
    assert returned["after"]["home"] == returned["before"]["home"]
    assert returned["after"]["image_id"] == returned["before"]["image_id"]
    assert proved.json["verified"]["equal"] == proved.json["verified"]["expected"] == 40
    core.container = core.container.client.containers.get(returned["after"]["id"])
    assert core.container.name == returned["before"]["name"]
    assert core.container.labels[PROJECT] == "road"
    assert [c.id for c in core.container.client.containers.list(all=True, filters={"name": core.container.name})] == [
        core.container.id
    ]
    assert scene.held() == scene.source()

    cut = scene("cut", *scene.checkouts, "--", "touch", tmp_path / "landed")
    assert cut.code == 0, cut.out + cut.err
    assert (tmp_path / "landed").exists()
    assert scene("receipt", "show").code == 0


def test_the_cut_is_refused_when_the_container_is_not_the_proved_one(container, tmp_path):
    core = container()
    scene = Scene(tmp_path, core, archives=3, actions=0)
    assert scene("migrate", *scene.checkouts).code == 0
    core.container.restart(timeout=30)
    core.wait()
    refused = scene("cut", *scene.checkouts, "--", "touch", tmp_path / "landed")
    assert refused.code == 3
    assert "started_at" in refused.json["error"]
    assert not (tmp_path / "landed").exists()
    assert scene("verify", *scene.checkouts).code == 0
    core.container.remove(force=True)
    assert "is gone" in scene("cut", *scene.checkouts, "--", "touch", tmp_path / "landed").json["error"]
    again = container(volume=core.volume, port=core.port)
    assert scene("verify", *scene.checkouts).code == 0
    landed = scene("cut", *scene.checkouts, "--", "touch", tmp_path / "landed")
    assert landed.code == 0, landed.err
    assert again.container.id == scene.receipt("verify")["container"]["pin"]["id"]


def test_two_memory_cores_of_two_projects_are_refused_with_both_listed(container, tmp_path):
    one, two = container(labels=compose("one")), container(labels=compose("two"))
    scene = Scene(tmp_path, one, archives=2, actions=0)
    for words in (("plane", "status"), ("plane", "backup"), ("plane", "evidence"), ("migrate", *scene.checkouts)):
        refused = scene(*words, "--service", "mc-server")
        assert refused.code == 3, refused.out
        assert one.container.name in refused.json["error"]
        assert two.container.name in refused.json["error"]
    assert scene("plane", "status", "--project", "one").code == 0
    other = scene("migrate", *scene.checkouts, "--project", "two")
    assert other.code == 3
    assert f"leads to {one.container.name}" in other.json["error"]
    assert scene.held() == ([], 0, 0), "nothing was sent"
    assert scene("migrate", *scene.checkouts).code == 0, "the port tells which one it is"


def test_a_graph_that_goes_with_the_container_is_refused_before_anything_is_sent(container, engine, tmp_path):
    file = tmp_path / "graph" / "memory-core-graph.sqlite"
    file.parent.mkdir()
    sqlite3.connect(file).close()
    file.touch()
    places = {
        "anonymous volume": {"volume": False},
        "own layer": {"volume": False, "environment": {"NEO_MEMORY_DB_PATH": "/tmp/graph.sqlite"}},
        "tmpfs": {
            "volume": False,
            "environment": {"NEO_MEMORY_DB_PATH": "/fast/graph.sqlite"},
            "tmpfs": {"/fast": "mode=1777"},
        },
    }
    for number, (word, options) in enumerate(places.items()):
        core = container(health={"test": ["NONE"]}, wait=False, **options)
        scene = Scene(tmp_path / str(number), core, archives=2, actions=0)
        until_it_answers(scene, core)
        refused = scene("migrate", *scene.checkouts)
        assert refused.code == 3, refused.out + refused.err
        assert word in refused.json["error"]
        assert "nothing was sent" in refused.json["next_steps"][0]
        assert not scene.custody.exists()
        declined = scene("migrate", *scene.checkouts, "--engine", "none")
        assert declined.code == 0, declined.err
        assert [w.partition(":")[0] for w in scene.receipt("migrate")["container"]["not_proved"]] == [
            "durability",
            "backup",
            "evidence",
        ]
        proved = scene("plane", "prove", declined.json["run"], *scene.checkouts, "--recreate")
        assert proved.code == 3
        core.container.reload()
        assert core.container.status == "running", "what would lose it is not even stopped"


def until_it_answers(scene, core):
    import time

    end = time.monotonic() + 30
    while scene("plane", "status").json["ingress"] is None:
        assert time.monotonic() < end, core.container.logs()
        time.sleep(0.2)


def test_one_that_does_not_come_up_again_is_undone(container, tmp_path):
    """The health of the new one is never told in time; the old one is there again, by its name, and alone."""
    core = container(health={"interval": 600 * SECOND, "start_period": 900 * SECOND}, wait=False)
    scene = Scene(tmp_path, core, archives=3, actions=0)
    until_it_answers(scene, core)
    run = scene("migrate", *scene.checkouts).json["run"]
    failed = scene("plane", "prove", run, *scene.checkouts, "--recreate", "--deadline", "1")
    assert failed.code == 5
    assert "is starting after 1 s" in failed.json["error"]
    client, name = core.container.client, core.container.name
    assert [(c.id, c.name) for c in client.containers.list(all=True, filters={"name": name})] == [
        (core.container.id, name)
    ]
    until_it_answers(scene, core)
    assert scene.held() == scene.source()


def test_a_bound_folder_that_the_host_holds_open_is_refused(container, tmp_path):
    folder = tmp_path / "graph"
    folder.mkdir()
    folder.chmod(0o777)
    core = container(volume=False, volumes={str(folder): {"bind": SQLITE}})
    scene = Scene(tmp_path / "scene", core, archives=2, actions=0)
    (folder / STORE.name).chmod(0o666)
    holder = sqlite3.connect(f"file:{folder / STORE.name}?mode=ro", uri=True)
    try:
        holder.execute("SELECT count(*) FROM Nodes").fetchone()
        refused = scene("migrate", *scene.checkouts)
        assert refused.code == 3
        assert "holds it open too" in refused.json["error"]
    finally:
        holder.close()
    assert scene("migrate", *scene.checkouts).code == 0


def test_a_store_that_a_running_container_has_mounted_is_not_opened(engine, image, tmp_path):
    """A real bind mount of the folder of a planted store."""
    planted = tmp_path / "clio"
    plant_store(planted / STORE, archives=4)
    link = tmp_path / "codex"
    link.mkdir()
    (link / ".neo-ai-data").symlink_to(planted / ".neo-ai-data", target_is_directory=True)

    class Nowhere:
        url, token = "http://127.0.0.1:9/mc/mcp", "t"

    scene = Scene(tmp_path / "other", Nowhere)
    assert scene("measure", planted).json["totals"]["archives"] == 4
    holding = engine.containers.run(
        image,
        ["sleep", "600"],
        detach=True,
        network_mode="none",
        volumes={str((planted / STORE).parent): {"bind": "/data"}},
    )
    try:
        for name in (planted, link):
            found = scene("measure", name)
            assert found.code == 4
            store = found.json["stores"][0]
            assert store["open_mode"] is None
            assert holding.name in store["reason"]
            assert scene("plan", name).code == 4
            assert scene("seal", name).code == 4
            assert scene("migrate", name).code == 4
        assert scene("measure", planted, "--engine", "none").json["totals"]["archives"] == 4
        holding.stop(timeout=1)
        assert scene("measure", planted).json["totals"]["archives"] == 4
    finally:
        holding.remove(force=True)


def test_evidence_is_not_available_from_a_container_that_does_not_run(container, tmp_path):
    core = container()
    scene = Scene(tmp_path, core, archives=3, actions=4)
    assert scene("migrate", *scene.checkouts).code == 0
    whole = scene("plane", "evidence").json
    assert len(whole["archives"]) == 3
    assert "SECRET" not in json.dumps(whole)
    assert scene("plane", "evidence", "--since", "2100-01-01").json["archives"] == []
    core.container.pause()
    paused = scene("plane", "evidence", "--container", core.container.name)
    assert (paused.code, "is paused" in paused.json["error"]) == (5, True)
    core.container.unpause()
    core.container.kill()
    for words in (("plane", "evidence"), ("plane", "backup"), ("settle", "--evidence", "container")):
        gone = scene(*words, "--container", core.container.name)
        assert gone.code == 5, gone.out
        assert "cannot be looked up" in gone.json["error"]
    status = scene("plane", "status", "--container", core.container.name)
    assert (status.code, status.json["health"]["kind"]) == (5, "stopped")
    assert "exited (137)" in status.json["container"]["state"]


def test_a_backup_is_the_graph_at_one_moment_and_is_counted_again(container, tmp_path):
    core = container()
    scene = Scene(tmp_path, core, archives=20, actions=30)
    assert scene("migrate", *scene.checkouts, "--no-backup").code == 0
    beside = scene.receipt("migrate")["container"]
    assert beside["backup"] is None
    assert "backup: declined (--no-backup)" in beside["not_proved"]
    made = scene("plane", "backup").json["backup"]
    assert made["counts"] == {"nl-transaction-archive": 20, "nl-action-telemetry": 30}
    with sqlite3.connect(f"file:{made['path']}?mode=ro", uri=True) as copy:
        assert copy.execute("SELECT count(*) FROM Nodes").fetchone() == (50,)
    assert core.container.exec_run(["sh", "-c", f"ls -A /tmp {SQLITE} | grep nl-cutover-"])[0] == 1, (
        "nothing is left inside"
    )
    assert [p.suffix for p in (scene.custody / "backups").iterdir()] == [".sqlite"]

"""Which backup is the run's own."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nl_cutover.errors import DifferenceError
from nl_cutover.migration.containers import Container
from nl_cutover.plane import backup as module
from nl_cutover.plane.backup import backup, known_backup
from nl_cutover.plane.execution import Ran
from nl_cutover.plane.locate import pin_of

from .scene import Scene
from .test_inspection import inspection, mount

GRAPH = "CREATE TABLE Nodes (id TEXT PRIMARY KEY, data TEXT)"
PIN = pin_of(inspection(mount("volume", "graph"), env=["NEO_PLANE_ID=p"]))
DAY = 86_400_000


def reader_of(content: bytes, counts: dict[str, int]):
    """What the reader inside would do with a graph of these bytes."""
    import hashlib

    told = {"reader": "r", "counts": counts, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}

    def ran(engine, pin, orders, out):
        for at in range(0, len(content), 1 << 16):
            out(content[at : at + (1 << 16)])
        return Ran(0, json.dumps(told).encode())

    return ran


@pytest.fixture
def graph(tmp_path) -> bytes:
    with closing(sqlite3.connect(tmp_path / "graph.sqlite")) as made:
        made.execute(GRAPH)
        made.executemany('INSERT INTO Nodes VALUES (?, \'{"label":"Memory"}\')', [(str(n),) for n in range(2_000)])
        made.commit()
    return (tmp_path / "graph.sqlite").read_bytes()


def test_the_newest_of_this_graph_that_is_older_than_the_run(monkeypatch, tmp_path, graph):
    monkeypatch.setattr(module, "run_reader", reader_of(graph, {"Memory": 2_000}))
    beside = (
        inspection(mount("volume", "another"), env=["NEO_PLANE_ID=p"]),
        inspection(mount("volume", "graph"), env=["NEO_PLANE_ID=q"]),
    )
    folder, others = tmp_path / "backups", [pin_of(facts | {"Name": "/a"}) for facts in beside]
    assert known_backup(folder, PIN, before_ms=9 * DAY) is None
    taken = [Path(backup(None, PIN, folder, clock=lambda at=at: at * DAY).path) for at in (1, 3, 5)]
    for other in others:
        backup(None, other, folder, clock=lambda: 4 * DAY)
    (folder / "a.sqlite").write_bytes(graph)
    assert Path(known_backup(folder, PIN, before_ms=9 * DAY).path) == taken[2]
    assert Path(known_backup(folder, PIN, before_ms=4 * DAY).path) == taken[1]
    assert Path(known_backup(folder, PIN, before_ms=3 * DAY).path) == taken[1]
    assert known_backup(folder, PIN, before_ms=0) is None
    again = pin_of(inspection(mount("volume", "graph"), env=["NEO_PLANE_ID=p"]) | {"Id": "5e" * 32, "Name": "/anew"})
    found = known_backup(folder, again, before_ms=9 * DAY)
    assert (Path(found.path), found.counts) == (taken[2], {"Memory": 2_000}), "the same graph in a container made anew"
    assert "before the run's first row" in found.reader
    taken[2].write_bytes(graph[:5_000])
    with pytest.raises(DifferenceError, match="does not restore"):
        known_backup(folder, PIN, before_ms=9 * DAY)


def test_a_run_that_goes_on_names_the_backup_of_its_beginning(container, tmp_path):
    beside, core = container(), container()
    scene = Scene(tmp_path, core, archives=3, actions=0)
    early = scene("plane", "backup").json["backup"]["path"]
    backups = []
    for other in (core, beside, core):
        assert scene("migrate", *scene.checkouts).code == 0
        backups.append(scene.receipt("migrate")["container"]["backup"])
        assert scene("plane", "backup", "--container", other.container.name).code == 0
    assert backups[0]["path"] != early, "between that and the first row, others may have written"
    assert {backup["path"] for backup in backups} == {backups[0]["path"]}
    assert [backup["counts"] for backup in backups] == [{}] * 3
    assert len(list((scene.custody / "backups").iterdir())) == 5


def test_a_run_that_began_without_a_backup_says_that_this_one_is_late(container, tmp_path):
    scene = Scene(tmp_path, container(), archives=3, actions=0)
    assert scene("migrate", *scene.checkouts, "--no-backup").code == 0
    assert scene("migrate", *scene.checkouts).code == 0
    beside = scene.receipt("migrate")["container"]
    assert beside["backup"]["counts"] == {"nl-transaction-archive": 3}
    assert any("before the run's first row" in words for words in beside["not_proved"])

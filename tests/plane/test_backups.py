"""Which backup is the run's own, and that neither a copy nor an answer without an end is taken in."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from nl_cutover.errors import CustodyError, DifferenceError, UnreachableError
from nl_cutover.plane import backup as module
from nl_cutover.plane import execution
from nl_cutover.plane.backup import backup, known_backup
from nl_cutover.plane.engine import Engine
from nl_cutover.plane.evidence import graph_facts
from nl_cutover.plane.execution import Ran
from nl_cutover.plane.inside import MARK
from nl_cutover.plane.locate import pin_of

from .scene import Scene
from .test_inspection import FACT, inspection, mount

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


ENDS = 64 << 20  # of what would have no end, so that a test that fails does end


class Endless:
    """`first`, then `chunk` again and again; `sent` counts bytes."""

    def __init__(self, first: bytes, chunk: bytes, wire: int = 1):
        self.first, self.chunk, self.wire, self.sent = first, chunk, wire, 0

    def frames(self, _):
        yield 1, MARK + self.first
        while self.sent < ENDS:
            self.sent += len(self.chunk)
            yield self.wire, self.chunk

    def engine(self, monkeypatch) -> Engine:
        class Api:
            def exec_create(self, *_, **__):
                return {"Id": "1"}

            def exec_start(self, *_, **__):
                return Mock()

            def exec_inspect(self, _):
                return {"ExitCode": 0}

        monkeypatch.setattr(execution, "_frames", self.frames)
        return Engine(None, Api())


def test_a_copy_ends_where_its_header_says(monkeypatch, tmp_path, graph):
    endless = Endless(graph, b"\0" * (1 << 16))
    with pytest.raises(UnreachableError, match=f"does not end.*tells {len(graph)} bytes"):
        backup(endless.engine(monkeypatch), PIN, tmp_path / "backups", clock=lambda: 0)
    assert endless.sent <= 1 << 16
    assert list((tmp_path / "backups").iterdir()) == []
    none = Endless(b"", b"no graph" * 4096)
    with pytest.raises(UnreachableError, match="does not end"):
        backup(none.engine(monkeypatch), PIN, tmp_path / "backups", clock=lambda: 0)
    assert none.sent <= 1 << 16


def test_a_copy_for_which_there_is_no_room_is_not_begun(monkeypatch, tmp_path, graph):
    huge = Endless(graph[:28] + b"\xff" * 4 + graph[32:], b"\0" * (1 << 16))
    with pytest.raises(CustodyError, match="bytes free"):
        backup(huge.engine(monkeypatch), PIN, tmp_path / "backups", clock=lambda: 0)
    assert huge.sent == 0


HEAD = b'{"reader": "r", "now": 1}\n'


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param(Endless(HEAD, FACT * 1000), id="facts"),
        pytest.param(Endless(HEAD, b" " * (1 << 16)), id="a line"),
        pytest.param(Endless(HEAD, b"word\n" * 1000, wire=2), id="errors"),
    ],
)
def test_facts_without_an_end_are_none(monkeypatch, endless):
    with pytest.raises(UnreachableError, match="does not end"):
        graph_facts(endless.engine(monkeypatch), PIN, lambda: 0)
    assert endless.sent < 2 << 20


def test_words_without_an_end_in_place_of_a_reader_are_no_answer(monkeypatch):
    endless = Endless(b"", b"cannot exec" * 1000)
    monkeypatch.setattr(endless, "frames", lambda _: ((1, endless.chunk) for _ in count_sent(endless)))
    with pytest.raises(UnreachableError, match="is none"):
        graph_facts(endless.engine(monkeypatch), PIN, lambda: 0)
    assert endless.sent < 1 << 20


def count_sent(endless: Endless):
    while endless.sent < ENDS:
        endless.sent += len(endless.chunk)
        yield

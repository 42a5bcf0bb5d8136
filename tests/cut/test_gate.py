"""The cut undone at every step, and the races that it must win."""

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from nl_cutover.contract.rows import ACTIONS, ARCHIVES
from nl_cutover.cut import fencing
from nl_cutover.cut.fencing import SealRequest
from nl_cutover.cut.gate import Gate
from nl_cutover.cut.report import CommandResult
from nl_cutover.cut.sealing import seal_stores, unseal_stores
from nl_cutover.errors import RefusedError
from nl_cutover.stores.checkouts import discover
from nl_cutover.stores.measurement import measure
from nl_cutover.stores.sealing import Updates
from nl_cutover.stores.summary import summarize
from nl_cutover.stores.verdict import verdict_of
from nl_cutover.testing import plant_store
from tests.conftest import Operator

STORE = Path(".neo-ai-data/sqlite/memory-core-graph.sqlite")
REQUEST = SealRequest(url="http://127.0.0.1:3102/mc/mcp", busy_timeout_ms=300)
INSERT = (
    "INSERT INTO nl_action_log (id, agent_id, sequence_id, timestamp, tool, args) VALUES (?, 'a', 's', 1, 't', '{}')"
)


class Scene:
    """Two checkouts with a store each, and everything that a cut is given."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / "one", folder / "two"]
        for number, path in enumerate(self.paths):
            plant_store(self.store(path), archives=3, actions=5, seed=number)
        self.landed = 0
        self.exit_code = 0
        self.accounted = True

    @staticmethod
    def store(path: Path) -> Path:
        return path / STORE

    def accounts(self, *_: object) -> bool:
        return self.accounted

    def measured(self):
        checkouts = discover(self.paths, environ={}, home=self.paths[0].parent)
        return measure(checkouts, clock=lambda: datetime.now(UTC), environ={}, accounts=self.accounts)

    def land(self) -> CommandResult:
        self.landed += 1
        return CommandResult("land", self.exit_code, "", 0.0)

    def cut(self, **options):
        request = options.pop("request", REQUEST)
        given = {
            "accounts": self.accounts,
            "land": self.land,
            "remeasure": self.measured,
        } | options
        return Gate(self.measured(), request, **given).cut(host="here", at=lambda: "now")

    def schemas(self) -> list[list[tuple]]:
        return [
            self.ask(path, "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name") for path in self.paths
        ]

    def ask(self, path: Path, sql: str, *parameters: object) -> list[tuple]:
        connection = sqlite3.connect(self.store(path))
        try:
            with connection:
                return connection.execute(sql, parameters).fetchall()
        finally:
            connection.close()

    def writable(self) -> list[bool]:
        answers = []
        for path in self.paths:
            try:
                self.ask(path, INSERT, os.urandom(4).hex())
                answers.append(True)
            except sqlite3.IntegrityError as error:
                answers.append("sealed by nl-cutover" not in str(error))
        return answers


@pytest.fixture
def scene(tmp_path) -> Scene:
    return Scene(tmp_path)


def test_it_lands_once_and_both_stores_refuse_inserts(scene):
    report = scene.cut()
    assert (report.verdict, report.exit_code) == ("landed", 0), report.reasons
    assert scene.landed == 1
    assert scene.writable() == [False, False]
    assert [s.seal for s in report.stores] == ["planted", "planted"]
    assert [(s.archives, s.actions) for s in report.stores] == [(3, 5), (3, 5)]


def test_a_second_cut_of_a_sealed_store_lands_again_and_changes_nothing_in_it(scene):
    scene.cut()
    before = scene.schemas()
    assert scene.cut().exit_code == 0
    assert scene.schemas() == before


def test_a_landing_that_fails_takes_the_seals_away_to_the_byte(scene):
    before = scene.schemas()
    scene.exit_code = 1
    report = scene.cut()
    assert report.exit_code == 3
    assert {s.seal for s in report.stores} == {"removed"}
    assert scene.schemas() == before
    assert scene.writable() == [True, True]


def test_rows_that_nobody_accounts_for_refuse_the_cut(scene):
    scene.accounted = False
    report = scene.cut()
    assert report.exit_code == 3
    assert scene.landed == 0
    assert len(report.reasons) == 4
    assert scene.writable() == [True, True]


def test_a_late_row_of_one_store_refuses_both(scene):
    known = set()
    for path in scene.paths:
        known |= {key for (key,) in scene.ask(path, "SELECT id FROM nl_action_log")}
        known |= {key for (key,) in scene.ask(path, "SELECT archive_id FROM nl_transaction_archive")}
    report = scene.measured()
    scene.ask(scene.paths[1], INSERT, "late")
    gate = Gate(
        report,
        REQUEST,
        accounts=lambda table, key, digest: key.decode() in known,
        land=scene.land,
        remeasure=scene.measured,
    )
    result = gate.cut(host="here", at=lambda: "now")
    assert result.exit_code == 3
    assert scene.landed == 0
    assert "1 of 6 rows of nl_action_log" in result.reasons[0]
    assert scene.writable() == [True, True]


STEPS = ["lock", "count", "seal", "commit", "canary", "land"]


@pytest.mark.parametrize("nth", [0, 1])
@pytest.mark.parametrize("word", STEPS)
@pytest.mark.parametrize("error", [RefusedError("planted"), KeyboardInterrupt(), ValueError("a fault")])
def test_whatever_fails_at_any_step_everything_is_undone(scene, word, nth, error):
    before = scene.schemas()
    seen = []

    def step(name: str) -> None:
        if name.split()[0] == word:
            seen.append(name)
            if len(seen) == nth + 1 or word == "land":
                raise error

    if isinstance(error, RefusedError):
        report = scene.cut(step=step)
        assert report.exit_code == 3
        assert report.reasons == ["planted"]
    else:
        with pytest.raises(type(error)):
            scene.cut(step=step)
    assert seen
    assert scene.schemas() == before
    assert scene.writable() == [True, True]
    assert scene.landed == 0


@pytest.mark.parametrize("error", [RefusedError("planted"), KeyboardInterrupt(), ValueError("a fault")])
def test_what_fails_after_the_landing_leaves_the_seals_and_says_that_it_landed(scene, error):
    """The recorders have moved by then: a store that could be written again would take rows that nobody carries."""

    def step(name: str) -> None:
        if name == "reconcile":
            raise error

    report = scene.cut(step=step)
    assert report.verdict == "landed, not proved"
    assert report.exit_code == (3 if isinstance(error, RefusedError) else 130)
    assert {s.seal for s in report.stores} == {"planted"}
    assert "do not land again" in report.next_steps[0]
    assert scene.writable() == [False, False]


@pytest.mark.parametrize(
    ("script", "stands"),
    [
        (
            "trap '' TERM; sleep 0.3; kill -TERM $PPID; sleep 0.3; exit 0",
            True,
        ),  # it ends well all the same: it has landed
        ("sleep 0.3; kill -TERM $PPID; exec sleep 60", False),
        (
            "trap '' TERM; sleep 0.3; kill -TERM $PPID; sleep 0.3; kill -TERM $PPID; sleep 1; touch landed; sleep 60",
            False,
        ),
    ],
)
def test_an_interrupted_landing_is_ended_before_its_seals_are_and_stands_in_the_receipt(tmp_path, script, stands):
    plant_store(tmp_path / "one" / STORE, archives=0, actions=0)
    run = Operator(tmp_path, None, None)
    done = run("cut", tmp_path / "one", "--", "sh", "-c", script)
    assert done.code == 130
    assert done.json["verdict"] == ("landed, not proved" if stands else "refused")
    assert [store["seal"] for store in done.json["stores"]] == ["planted" if stands else "removed"]
    assert "interrupted" in done.json["reasons"][0]
    assert ("do not land again" in done.json["next_steps"][0]) is stands
    assert ("has to be taken back" in done.json["next_steps"][0]) is not stands
    assert Path(done.json["receipt"]).exists()
    time.sleep(1)
    assert not (tmp_path / "landed").exists()  # it was not left running behind an open store


@contextmanager
def holding(store: Path, *statements: str):
    """Another process with a transaction open on the store."""
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "for sql in sys.argv[2:]: c.execute(sql)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(store), *statements], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        yield holder
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()


def test_a_store_that_stays_locked_refuses_and_names_its_holder(scene):
    with holding(scene.store(scene.paths[1]), "BEGIN IMMEDIATE") as holder:
        report = scene.cut()
        assert report.exit_code == 3
        assert str(holder.pid) in report.reasons[0]
        assert scene.landed == 0
    assert scene.writable() == [True, True]


def test_unsealing_is_all_or_none(scene):
    """The store whose turn comes last is locked: the first keeps its seal."""
    seal_stores(scene.measured(), REQUEST, host="here", at=lambda: "now")
    before = scene.schemas()
    report = scene.measured()
    last = max(report.stores, key=lambda store: store.id)
    with (
        holding(last.location, "BEGIN IMMEDIATE") as holder,
        pytest.raises(RefusedError, match=f"pid {holder.pid} .*nothing was changed"),
    ):
        unseal_stores(report, host="here", at=lambda: "now", busy_timeout_ms=100)
    assert scene.schemas() == before
    assert scene.writable() == [False, False]


def test_a_store_that_cannot_commit_after_another_did_is_named_with_it(scene):
    """A reader of a rollback store lets it be locked, and refuses at the very end."""
    for path in scene.paths:
        scene.ask(path, "PRAGMA journal_mode=DELETE")
    seal_stores(scene.measured(), REQUEST, host="here", at=lambda: "now")
    report = scene.measured()
    first, last = sorted(report.stores, key=lambda store: store.id)
    with (
        holding(last.location, "BEGIN", f"SELECT count(*) FROM {ACTIONS}"),
        pytest.raises(RefusedError, match=f"store {first.id} is unsealed, store {last.id} is not") as told,
    ):
        unseal_stores(report, host="here", at=lambda: "now", busy_timeout_ms=100)
    assert "nothing was changed" not in told.value.message
    assert sorted(scene.writable()) == [False, True]


def test_a_seal_that_cannot_be_removed_is_left_and_the_others_are_removed(scene):
    locks = ExitStack()

    def land() -> CommandResult:
        locks.enter_context(holding(scene.store(scene.paths[1]), "BEGIN IMMEDIATE"))
        return CommandResult("land", 1, "", 0.0)

    with locks:
        report = scene.cut(land=land)
        assert report.exit_code == 3
        assert {s.path: s.seal for s in report.stores} == {
            str(scene.store(scene.paths[0])): "removed",
            str(scene.store(scene.paths[1])): "left",
        }
    assert scene.writable() == [True, False]


def test_a_seal_that_lets_rows_through_fails_the_cut(scene, monkeypatch):
    """The seal's code is removed; the canary must see it."""
    monkeypatch.setattr(fencing.Fence, "plant", lambda self, *a, **k: None)
    report = scene.cut()
    assert report.exit_code == 3
    assert "canary" in report.reasons[0]
    assert scene.landed == 0
    assert [scene.ask(p, f"SELECT count(*) FROM {ACTIONS}")[0][0] for p in scene.paths] == [5, 5]
    assert [scene.ask(p, f"SELECT count(*) FROM {ARCHIVES}")[0][0] for p in scene.paths] == [3, 3]


def test_rows_that_change_while_it_lands_are_a_difference(scene):
    def land() -> CommandResult:
        scene.ask(scene.paths[0], "DELETE FROM nl_action_log WHERE rowid = 1")
        return scene.land()

    report = scene.cut(land=land)
    assert report.exit_code == 8
    assert "changed while the landing ran" in report.reasons[0]
    assert report.verdict == "landed, not proved"
    assert scene.writable() == [False, False]


def test_an_absent_table_refuses_unless_it_is_made_and_sealed(scene):
    scene.ask(scene.paths[0], "DROP TABLE nl_transaction_archive")
    before = scene.schemas()
    refused = scene.cut()
    assert refused.exit_code == 3
    assert verdict_of(scene.measured()) == 0
    told = summarize(scene.measured(), host="here")
    assert "--create-missing" in refused.reasons[0]
    assert refused.reasons[0] in told.next_steps
    assert scene.schemas() == before
    made = scene.cut(request=msgspec.structs.replace(REQUEST, create_missing=True))
    assert made.exit_code == 0, made.reasons
    with pytest.raises(sqlite3.IntegrityError, match="sealed"):
        scene.ask(
            scene.paths[0],
            "INSERT INTO nl_transaction_archive (archive_id, source_tx_id, origin_writer, archived_at, ops) "
            "VALUES ('a', 'b', '{}', 1, '[1]')",
        )


def test_a_replay_may_still_be_counted_or_not_as_the_operator_chose(scene):
    scene.cut()
    scene.ask(scene.paths[0], "UPDATE nl_transaction_archive SET replay_count = 9")
    scene.cut(request=msgspec.structs.replace(REQUEST, updates=Updates.REFUSE))
    with pytest.raises(sqlite3.IntegrityError, match="sealed"):
        scene.ask(scene.paths[0], "UPDATE nl_transaction_archive SET replay_count = 10")


def test_a_seal_that_stood_before_the_cut_is_not_taken_away_by_its_failure(scene):
    seal_stores(scene.measured(), REQUEST, host="here", at=lambda: "now")
    before = scene.schemas()
    scene.exit_code = 1
    report = scene.cut()
    assert report.exit_code == 3
    assert {s.seal for s in report.stores} == {"stood before"}
    assert scene.schemas() == before
    assert scene.writable() == [False, False]


OLDER, NEWER = "2026-11-30T10:00:00.000Z", "2026-11-30T11:00:00.000Z"
OTHER = {
    "updates": {"updates": Updates.REFUSE},
    "url": {"url": "https://mc.example/mcp"},
    "both": {"updates": Updates.REFUSE, "url": "https://mc.example/mcp"},
}


@pytest.mark.parametrize("older", ["whole", "half", "by hand"])
@pytest.mark.parametrize("changed", OTHER)
@pytest.mark.parametrize("how", ["fails", "interrupted"])
def test_an_older_seal_that_a_failed_cut_changed_stands_again_to_the_byte(scene, older, changed, how):
    seal_stores(scene.measured(), msgspec.structs.replace(REQUEST, by=OLDER), host="here", at=lambda: "now")
    for path in scene.paths:
        if older != "whole":
            scene.ask(path, f"DROP TRIGGER nl_cutover_seal_insert_{ARCHIVES}")
        if older == "by hand":
            trigger = f"nl_cutover_seal_insert_{ARCHIVES} AFTER DELETE ON {ARCHIVES}"
            scene.ask(path, f"CREATE TRIGGER {trigger} BEGIN SELECT 1; END")
    before = scene.schemas()
    seen = []

    def land() -> CommandResult:
        seen.extend(scene.schemas())
        if how == "interrupted":
            raise KeyboardInterrupt
        return CommandResult("land", 1, "", 0.0)

    request = msgspec.structs.replace(REQUEST, by=NEWER, **OTHER[changed])
    if how == "interrupted":
        with pytest.raises(KeyboardInterrupt):
            scene.cut(request=request, land=land)
    else:
        report = scene.cut(request=request, land=land)
        assert [(s.seal, s.sealed_by) for s in report.stores] == [
            ("stood before", s.seal.by) for s in scene.measured().stores
        ]
    assert seen != before
    assert scene.schemas() == before


def test_a_landing_that_planted_an_older_seal_anew_says_that_it_is_its_own(scene):
    seal_stores(scene.measured(), msgspec.structs.replace(REQUEST, by=OLDER), host="here", at=lambda: "now")
    report = scene.cut(request=msgspec.structs.replace(REQUEST, by=NEWER, url="https://mc.example/mcp"))
    assert [(s.seal, s.sealed_by) for s in report.stores] == [("planted", NEWER)] * 2
    assert {s.seal.by for s in scene.measured().stores} == {NEWER}


@pytest.mark.parametrize("begun", [True, False])
def test_a_killed_cut_leaves_seals_that_a_later_cut_names_as_its_own(tmp_path, begun):
    """kill -9 undoes nothing: the seals refuse every insert, and say which cut planted them."""
    plant_store(tmp_path / "one" / STORE, archives=0, actions=0)
    run = Operator(tmp_path, None, None)
    landing = ["sh", "-c", "kill -9 $PPID"]
    killed = run("cut", tmp_path / "one", "--", *landing)
    assert killed.code == -9
    if not begun:
        for receipt in (tmp_path / "custody" / "receipts").iterdir():
            receipt.unlink()
    again = run("cut", tmp_path / "one", "--", "false")
    assert again.code == 3
    (store,) = again.json["stores"]
    assert store["seal"] == "stood before"
    assert f"the cut that began at {store['sealed_by']}" in again.json["reasons"][-1]
    assert ("after it had begun to land" in again.json["reasons"][-1]) is begun
    command = again.json["next_steps"][-1].partition(": ")[2]
    assert command == f"nl-cutover unseal {tmp_path / 'one'}"
    assert f"cut of {store['sealed_by']}" in run("measure", tmp_path / "one", json=False).out
    assert run(*command.split()[1:]).code == 0
    clean = run("cut", tmp_path / "one", "--", "false")
    assert [s["seal"] for s in clean.json["stores"]] == ["removed"]
    assert len(clean.json["reasons"]) == 1


def test_a_landing_answers_for_the_seals_that_it_found(tmp_path):
    plant_store(tmp_path / "one" / STORE, archives=0, actions=0)
    run = Operator(tmp_path, None, None)
    assert run("cut", tmp_path / "one", "--", "sh", "-c", "kill -9 $PPID").code == -9
    assert run("cut", tmp_path / "one", "--", "true").code == 0
    third = run("cut", tmp_path / "one", "--", "false")
    assert third.json["reasons"] == ["the landing command ended with 1"]


REPLAY = (
    "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); "
    "c.execute('UPDATE nl_transaction_archive SET replay_count = coalesce(replay_count, 0) + 1 WHERE rowid = 2'); "
    "c.commit()"
)


@pytest.mark.parametrize("while_landing", [True, False])
def test_a_replay_counted_meanwhile_is_named_with_both_counts_and_the_next_command(tmp_path, operator, while_landing):
    """The seal lets replays be counted unless the operator says otherwise: the row is another, the archive is not."""
    checkout = tmp_path / "one"
    store = checkout / STORE
    plant_store(store, archives=4, actions=0, seed=81 + while_landing)
    move = ["--telemetry", "leave", "--owner", "neo-operator"]
    assert operator("migrate", checkout, *move).code == 0
    with closing(sqlite3.connect(store)) as connection:
        select = "SELECT archive_id, coalesce(replay_count, 0) FROM nl_transaction_archive WHERE rowid = 2"
        key, before = connection.execute(select).fetchone()
    replay = [sys.executable, "-c", REPLAY, str(store)]
    if not while_landing:
        subprocess.run(replay, check=True)
    done = operator("cut", checkout, "--", *(replay if while_landing else ["true"]))
    assert done.code == (8 if while_landing else 3)
    named = [reason for reason in done.json["reasons"] if f"archive {key} in" in reason]
    assert len(named) == 1
    assert f"from {before} to {before + 1}" in named[0]
    step = done.json["next_steps"][0]
    assert f"nl-cutover migrate {checkout}" in step
    assert operator("migrate", checkout, *move).code == 0
    assert operator("measure", checkout).code == 0
    if while_landing:
        assert f"then nl-cutover measure {checkout}" in step
    else:
        assert step.endswith("then cut again")
        assert operator("cut", checkout, "--", "true").code == 0


def test_sealing_is_all_or_none_idempotent_and_reversible_to_the_byte(scene):
    before = scene.schemas()
    scene.ask(scene.paths[1], "DROP TABLE nl_transaction_archive")
    with pytest.raises(RefusedError, match="--create-missing"):
        seal_stores(scene.measured(), REQUEST, host="here", at=lambda: "now")
    assert scene.writable() == [True, True]
    making = msgspec.structs.replace(REQUEST, create_missing=True)
    first = seal_stores(scene.measured(), making, host="here", at=lambda: "now")
    assert [s.seal for s in first.stores] == ["planted", "planted"]
    sealed = scene.schemas()
    again = seal_stores(scene.measured(), making, host="here", at=lambda: "now")
    assert [s.seal for s in again.stores] == ["stood before", "stood before"]
    assert scene.schemas() == sealed
    assert scene.writable() == [False, False]
    unseal_stores(scene.measured(), host="here", at=lambda: "now")
    assert scene.schemas()[0] == before[0]
    assert scene.writable() == [True, True]
    assert unseal_stores(scene.measured(), host="here", at=lambda: "now").stores[0].seal == "none"

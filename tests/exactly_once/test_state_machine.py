"""Any order of carrying, refusing, losing, crashing, resuming and settling: the ledger and the server never disagree."""

import itertools
import os
import shutil
import sqlite3
import tempfile
import uuid
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from nl_cutover.contract import telemetry
from nl_cutover.contract.rows import ACTIONS, ARCHIVES, DDL
from nl_cutover.custody.journal import Change
from nl_cutover.custody.ledger import Ledger, RunFacts, move_action, move_archive, set_archive
from nl_cutover.custody.states import ACTION_MOVES, ARCHIVE_MOVES
from nl_cutover.errors import CustodyError
from nl_cutover.ingress import delivery
from nl_cutover.ingress.session import Session
from nl_cutover.migration.archives import ArchiveRoad
from nl_cutover.migration.plan import build_plan
from nl_cutover.migration.policy import Policy, Telemetry
from nl_cutover.migration.progress import Silent
from nl_cutover.migration.run import Run
from nl_cutover.migration.settle import Settler
from nl_cutover.migration.source import Source, SourceStore
from nl_cutover.stores.snapshot import Snapshot
from nl_cutover.verdicts import NotSent
from tests.exactly_once.fake_core import FATES, HALF, IN_DOUBT, WALLS, FakeCore, Killed
from tests.ingress.fake import endpoint

BATCH = 3  # actions: small enough for several batches
POLICY = Policy(Telemetry.parse("admit"), owner="x")
EXAMPLES = 400 if os.environ.get("NL_CUTOVER_SEEDS") == "full" else 40

# A run ends at the first wall: it must not be met too often.
FATE = st.sampled_from((*FATES, *(fate for fate in FATES if fate not in WALLS)))
POINTS = (
    "before intent",
    "after intent",
    "after answer",
    "after record",
    "after read-back",
    "before mark",
    "after mark",
    "after batch intent",
    "after batch answer",
)
KILL = st.none() | st.tuples(st.sampled_from(POINTS), st.integers(1, 4))


class MortalLedger(Ledger):
    """Once dead it writes nothing: what a SIGKILL leaves is the file as it was."""

    dead = False

    def commit(self, *changes: Change) -> None:
        if self.dead:
            raise CustodyError("the process is gone")
        super().commit(*changes)


class Host:
    """The rows of one store. An archive's content is named by its `source_tx_id`; twins share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = itertools.count(1)
        self.content: dict[str, str] = {}
        self.actions: set[str] = set()
        self._do(*((statement, ()) for statement in DDL.values()))

    def add_archive(self, twin: bool, replays: int) -> None:
        number = next(self._numbers)
        tx = list(self.content.values())[-1] if twin and self.content else f"tx-{number}"
        key, name = f"old-{number}", None if tx.endswith(("1", "5")) else f"name of {tx}"
        ops, writer = f'[{{"label":"{tx}"}}]', '{"agentId":"a","sessionId":"s"}'
        values = (key, name, tx, "a", "s", None, writer, 7, 8, ops, replays, None)
        self._do((f"INSERT INTO {ARCHIVES} VALUES ({', '.join('?' * 12)})", values))
        self.content[key] = tx

    def add_action(self) -> None:
        number = next(self._numbers)
        values = (f"action-{number}", "a", "s", f"a_{number // 2}", number, "healthcheck", "{}", None, 1, 5, None, None)
        self._do((f"INSERT INTO {ACTIONS} VALUES ({', '.join('?' * 12)})", values))
        self.actions.add(f"action-{number}")

    def replay(self, key: str) -> None:
        self._do((f"UPDATE {ARCHIVES} SET replay_count = replay_count + 1 WHERE archive_id = ?", (key,)))

    def source(self) -> Source:
        counts = {ARCHIVES: len(self.content), ACTIONS: len(self.actions)}
        return Source([SourceStore("the store", Snapshot("store", self._path, counts, "3"))])

    def _do(self, *statements: tuple[str, tuple[object, ...]]) -> None:
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            for statement, values in statements:
                connection.execute(statement, values)
            connection.commit()


class ExactlyOnce(RuleBasedStateMachine):
    """One worker over the real ledger. `doubt` holds the keys whose last answer never came, as the test knows it."""

    def __init__(self) -> None:
        super().__init__()
        self._small = mock.patch.object(telemetry, "BATCH_LIMIT", BATCH)
        self._small.start()
        self._folder = Path(tempfile.mkdtemp())
        self._clock = itertools.count(1).__next__
        self.core, self.host = FakeCore(self._clock, self.meet), Host(self._folder / "store.sqlite")
        self.doubt: set[str] = set()
        self.open()

    def teardown(self) -> None:
        self.close()
        self._small.stop()
        shutil.rmtree(self._folder)

    # a process, and its end

    def open(self) -> None:
        self.ledger = MortalLedger(self._folder / "custody", self._clock)
        self.ledger.read("PRAGMA synchronous = OFF")  # processes die here, machines do not
        self.ledger.begin(RunFacts("run", 1, "http://127.0.0.1/mc/mcp", "plane", None, "x"))
        self.source = self.host.source()
        self.kill: list[object] = []

    def close(self) -> None:
        self.ledger.__exit__(None, None, None)
        self.source.__exit__(None, None, None)

    def end(self) -> None:
        """What was in flight is in doubt from now on."""
        in_flight = self.keys("archives", "intended")
        assert len(in_flight) <= 1, "one worker, one row in doubt"
        self.doubt |= in_flight | self.keys("actions", "intended")
        self.close()
        self.open()

    def entered(self) -> Run:
        run = Run(
            self.ledger,
            self.source,
            POLICY,
            new_session=lambda: Session(endpoint(), transport=self.core, sleep=lambda _: None),
            identities={},
            new_token=lambda: str(uuid.uuid4()),
            progress=Silent(),
            workers=1,
            barrier=self.barrier,
        )
        entries = []
        build_plan(self.source, POLICY, now_ms=0, entry=entries.append)
        run.enter(entries)
        return run

    def barrier(self, name: str) -> None:
        if self.kill and name == self.kill[0]:
            self.kill[1] -= 1
            if not self.kill[1]:
                self.die()

    def die(self) -> None:
        self.ledger.dead = True
        raise Killed

    def meet(self, tool: str, fate: str) -> None:
        """A writing call meets its fate: whose it is stands in the ledger, because the intent came first."""
        if tool != "mark":
            keys = self.keys("archives" if tool == "save" else "actions", "intended")
            assert keys, "sent before it was intended"
            # Half of one is none, and that is a clear answer.
            if fate in IN_DOUBT or (tool == "admit" and fate == HALF and len(keys) > 1):
                self.doubt |= keys
        if fate.startswith("killed"):
            self.ledger.dead = True

    def states(self, table: str) -> dict[str, str]:
        rows = self.ledger.read(f"SELECT key, state FROM {table}")
        assert len(dict(rows)) == len(rows), "a row stands twice"
        return dict(rows)

    def keys(self, table: str, state: str) -> set[str]:
        return {key for key, found in self.states(table).items() if found == state}

    # steps

    @initialize(twins=st.lists(st.booleans(), min_size=2, max_size=5), replays=st.integers(0, 2))
    def first_rows(self, twins, replays):
        self.add_rows(twins, replays, actions=BATCH + 1)

    @rule(twins=st.lists(st.booleans(), max_size=3), replays=st.integers(0, 2), actions=st.integers(0, 2 * BATCH))
    def add_rows(self, twins, replays, actions):
        for twin in twins:
            self.host.add_archive(twin, replays)
        for _ in range(actions):
            self.host.add_action()
        self.source = self.host.source()

    @rule(data=st.data())
    def replay_on_the_host(self, data):
        """An archive that may have been saved already is replayed once more."""
        self.host.replay(data.draw(st.sampled_from(sorted(self.host.content))))
        self.source = self.host.source()

    @rule(fates=st.lists(FATE, min_size=1, max_size=12), kill=KILL)
    def run_through_faults(self, fates, kill):
        """The life of one process: its writing calls meet their fates, and it is killed or comes to an end."""
        run = self.entered()
        self.core.fates, self.kill = list(fates), list(kill or ())
        try:
            run.carry()
        except (Killed, CustodyError):
            assert self.ledger.dead
        self.core.fates = []
        self.end()

    @rule()
    def run_undisturbed(self):
        """The same command once more, over a network that works."""
        assert self.entered().carry().stopped is None
        archives, actions = self.states("archives"), self.states("actions")
        assert set(archives) == set(self.host.content)
        assert set(actions) == self.host.actions
        assert set(archives.values()) <= {"confirmed", "unknown"}
        assert set(actions.values()) <= {"admitted", "unknown"}
        unmarked = "state = 'confirmed' AND marks_state <> 'unknown' AND marks_made <> marks_wanted"
        assert self.ledger.read(f"SELECT key FROM archives WHERE {unmarked}") == []
        tokens = self.ledger.read("SELECT count(*) FROM tokens")[0][0]
        assert bool(tokens) == ("unknown" in actions.values())

    @rule()
    def arrive(self):
        """Calls that were given up reach the server after all."""
        self.core.arrive()

    @rule()
    def settle(self):
        """Evidence from the server itself decides every row and batch; the quiet time has passed before it."""
        self.core.arrive()
        self.entered()
        Settler(self.ledger, quiet_ms=0).by_evidence(self.core)
        assert "unknown" not in {*self.states("archives").values(), *self.states("actions").values()}
        self.doubt.clear()

    @rule(data=st.data())
    def take_a_step_that_there_is_not(self, data):
        """The ledger refuses it, and is dead for this process: nothing of the step stays."""
        table, moves, move = data.draw(
            st.sampled_from([("archives", ARCHIVE_MOVES, move_archive), ("actions", ACTION_MOVES, move_action)])
        )
        rows = self.ledger.read(f"SELECT id, state FROM {table}")
        steps = [(number, to) for number, state in rows for to, sources in moves.items() if state not in sources]
        if not steps:
            return
        before = self.states(table)
        another = Change("UPDATE run SET owner = 'somebody else'")
        with pytest.raises(CustodyError):
            self.ledger.commit(another, move(*data.draw(st.sampled_from(steps))))
        with pytest.raises(CustodyError):
            self.ledger.commit(another)
        self.end()
        assert self.ledger.run.owner == "x"
        assert self.states(table) == before

    # what holds after each step

    @invariant()
    def archives_are_where_the_ledger_says(self):
        states = self.states("archives")
        assert set(states) <= set(self.host.content)
        by_state = defaultdict(set)
        for key, state in states.items():
            by_state[state].add(key)
        assert set(by_state) <= {"pending", "intended", "delivered", "confirmed", "refused", "unknown"}
        assert len(by_state["intended"]) <= 1
        doubtful = self.doubt & set(states)
        assert by_state["unknown"] <= doubtful <= by_state["unknown"] | by_state["intended"]
        assert by_state["intended"] <= doubtful

        held = Counter(archive["sourceTxId"] for archive in self.core.saved.values())
        there = Counter(self.host.content[key] for key in by_state["confirmed"] | by_state["delivered"])
        maybe = Counter(self.host.content[key] for key in by_state["unknown"] | by_state["intended"])
        assert there <= held <= there + maybe, "lost or doubled"

        claimed = dict(self.ledger.read("SELECT archive_id, key FROM archives WHERE archive_id IS NOT NULL"))
        assert set(claimed.values()) == by_state["confirmed"] | by_state["delivered"]
        for archive_id, key in claimed.items():
            assert self.core.saved[archive_id]["sourceTxId"] == self.host.content[key]

    @invariant()
    def marks_are_counted(self):
        for archive_id, wanted, made, state in self.ledger.read(
            "SELECT archive_id, marks_wanted, marks_made, marks_state FROM archives WHERE archive_id IS NOT NULL"
        ):
            counted = self.core.saved[archive_id]["replayCount"]
            assert made <= counted <= made + (state != "idle" or archive_id in self.core.half_marked)
            assert self.core.on_disk[archive_id] <= wanted

    @invariant()
    def actions_are_where_the_ledger_says(self):
        states = self.states("actions")
        assert set(states) <= self.host.actions
        held = Counter(f"action-{action['timestamp']}" for action in self.core.admitted)
        assert max(held.values(), default=0) <= 1, "doubled"
        for key, state in states.items():
            assert held[key] == 1 or state != "admitted", "lost"
            assert held[key] == 0 or state in ("admitted", "unknown", "intended"), "it would be doubled"
        assert {key for key, state in states.items() if state in ("unknown", "intended")} == self.doubt & set(states)


ExactlyOnce.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=25)
test_exactly_once = pytest.mark.slow(pytest.mark.timeout(60 + 3 * EXAMPLES)(ExactlyOnce.TestCase))


def _resend(ledger):
    again = "SET state = 'pending' WHERE state = 'intended'"
    ledger.commit(Change(f"UPDATE archives {again}", (), None), Change(f"UPDATE actions {again}", (), None))


def _forget_the_doubt(road, work, made, reason):
    road._ledger.commit(set_archive(work.id, marks_made=made, marks_state="idle"))


CARELESS = {
    "what was in flight is sent again": (Ledger, "recover", _resend),
    "a lost answer is a refusal": (delivery, "of_exception", lambda error: NotSent("too-large", "a guess")),
    "a bad gateway is a busy one": (delivery, "of_status", lambda *_, **__: NotSent("busy", "a guess", 0.0)),
    "a mark in doubt is made again": (ArchiveRoad, "_mark_unknown", _forget_the_doubt),
}


@pytest.mark.parametrize("name", CARELESS)
def test_carelessness_is_noticed(name, monkeypatch):
    """The control: the machine fails where the tool is made careless."""
    owner, attribute, careless = CARELESS[name]
    monkeypatch.setattr(owner, attribute, careless)
    quick = settings(max_examples=40, stateful_step_count=25, phases=[Phase.generate], database=None)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(ExactlyOnce, settings=quick)

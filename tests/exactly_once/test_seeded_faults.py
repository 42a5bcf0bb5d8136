"""Whole runs through a proxy that spoils answers: every row once, or in the list, and the list is exactly right.

`NL_CUTOVER_SEEDS` is the number of seeds, "full" for all of them.
"""

import itertools
import json
import os
import random
from collections import Counter, defaultdict

import pytest

from nl_cutover.ingress import delivery
from nl_cutover.migration.evidence import GraphFile
from nl_cutover.verdicts import ExitCode, NotSent
from tests.exactly_once.fault_proxy import ASKED, FAULTS, IN_DOUBT, End, FaultProxy, Kind, leave_alone
from tests.exactly_once.migration import Migration

FULL, BOUNDED = 200, 10
SEEDS = FULL if (asked := os.environ.get("NL_CUTOVER_SEEDS", "")) == "full" else int(asked or BOUNDED)
ROWS, BATCHED_ROWS = 30, 250

# How often each kind meets a call, in per mille; the rest passes untouched.
WEIGHTS = {Kind.DISGUISED: 200, Kind.SPOILED: 150, Kind.SWALLOWED: 60, Kind.TURNED_AWAY: 60, Kind.TOO_LARGE: 15}
SILENT = (End.HOLD, End.DRIP)


class Chance:
    """The faults of one seed: each call's own draw, so that the order in which threads come changes nothing.

    Every third seed has a wall in it. Silence costs a whole deadline, so it is rare.
    """

    def __init__(self, seed):
        self._seed, self._visits = seed, Counter()
        self._by_kind = defaultdict(list)
        for name, fault in FAULTS.items():
            self._by_kind[fault.kind].append(name)

    def __call__(self, tool, subject):
        self._visits[tool, subject] += 1
        rng = random.Random(repr((self._seed, tool, subject, self._visits[tool, subject])))
        drawn = rng.randrange(1000)
        if self._seed % 3 == 0 and rng.randrange(60) == 0:
            return rng.choice(self._by_kind[Kind.WALL])
        for kind, weight in WEIGHTS.items():
            if drawn < weight:
                fault = rng.choice(self._by_kind[kind])
                return fault if FAULTS[fault].end not in SILENT or rng.randrange(4) == 0 else "dropped"
            drawn -= weight
        return "untouched"


class Truth:
    """What became of every row, from the proxy's and the graph's side; the ledger has no part in it."""

    def __init__(self, migration, calls):
        keys = {row["source_tx_id"]: key for key, row in migration.archives.items()}
        assert len(keys) == ROWS
        at = {row["timestamp"]: key for key, row in migration.actions.items()}
        assert len(at) == BATCHED_ROWS
        self.doubtful, self.saves, self.admits = set(), Counter(), Counter()
        self.doubtful_marks, self.doubtful_actions = set(), set()
        old_id = {}
        for call in calls:
            if call.tool == "save_nl_transaction":
                key = keys[call.arguments["transaction"]["txId"]]
                self.saves[key] += call.kind in ASKED
                if call.result is not None:
                    old_id[call.result["archiveId"]] = key
                if call.kind in IN_DOUBT:
                    self.doubtful.add(key)
            elif call.tool == "mark_nl_transaction_replayed":
                if call.kind in IN_DOUBT:
                    self.doubtful_marks.add(call.arguments["archiveId"])
            else:
                batch = {at[action["timestamp"]] for action in call.arguments["actions"]}
                self.admits.update(batch if call.kind in ASKED else ())
                if call.kind in IN_DOUBT:
                    self.doubtful_actions |= batch
        held = Counter()
        self.replays = {}
        for node in migration.graph.archives():
            key = keys[node["sourceTxId"]]
            assert node["ops"] == json.loads(migration.archives[key]["ops"])
            held[key] += 1
            self.replays[node["archiveId"]] = node["replayCount"]
            assert old_id.setdefault(node["archiveId"], key) == key
        self.held = held
        self.held_actions = Counter(at[node["timestamp"]] for node in migration.graph.actions())


def check(migration, calls, report, *, settled=False):
    """The invariant. `calls`: all writing calls so far, of every run; `settled`: evidence has decided every doubt."""
    truth = Truth(migration, calls)
    if settled:
        truth.doubtful, truth.doubtful_marks, truth.doubtful_actions = set(), set(), set()
    archives, actions = migration.ledger()
    states = defaultdict(set)
    for key, row in archives.items():
        states[row["state"]].add(key)
    assert set(archives) == set(migration.archives)
    assert set(states) <= {"confirmed", "refused", "unknown", "pending"}
    assert set(actions) == set(migration.actions)

    assert max(truth.held.values(), default=0) <= 1, "an archive is doubled"
    assert truth.held == +truth.saves
    assert states["unknown"] == truth.doubtful
    assert states["confirmed"] <= set(truth.held)
    assert not (states["refused"] | states["pending"]) & set(truth.held)

    for key in states["confirmed"]:
        row = archives[key]
        replays, wanted = truth.replays[row["archive_id"]], migration.archives[key]["replay_count"]
        assert row["marks_wanted"] == wanted
        assert (row["marks_state"] == "unknown") == (row["archive_id"] in truth.doubtful_marks)
        if row["marks_state"] == "unknown":
            assert row["marks_made"] <= replays <= min(row["marks_made"] + 1, wanted)
        else:
            assert replays == row["marks_made"]

    assert max(truth.held_actions.values(), default=0) <= 1, "an action is doubled"
    assert truth.held_actions == +truth.admits
    in_state = {state: {key for key, found in actions.items() if found == state} for state in set(actions.values())}
    assert set(in_state) <= {"admitted", "refused", "unknown", "pending"}
    assert in_state.get("unknown", set()) == truth.doubtful_actions
    assert in_state.get("admitted", set()) == set(truth.held_actions) - truth.doubtful_actions

    counts = report.archives
    assert (counts.rows, counts.differs) == (ROWS, 0)
    assert counts.confirmed + counts.refused + counts.unknown + counts.pending == ROWS
    assert (counts.unknown, counts.confirmed) == (len(states["unknown"]), len(states["confirmed"]))
    listed = {odd.key for odd in report.odd if (odd.kind, odd.state) == ("archive", "unknown")}
    assert listed == truth.doubtful
    return truth


@pytest.fixture
def migration(core, tmp_path):
    return lambda seed: Migration(tmp_path, core, archives=ROWS, actions=BATCHED_ROWS, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_row_once_or_in_the_list(seed, core, migration):
    made = migration(seed)
    with FaultProxy(core.url, Chance(seed)) as proxy:
        first = made.run(proxy)
        before = check(made, proxy.calls, first)
        assert (first.exit_code == ExitCode.PROVED) == (first.archives.confirmed == ROWS and not first.odd)

        proxy.judge = leave_alone
        second = made.run(proxy)
        after = check(made, proxy.calls, second)
        assert second.archives.confirmed == ROWS - len(before.doubtful)
        assert second.archives.unknown == len(before.doubtful)
        assert after.doubtful == before.doubtful
        assert second.telemetry.admitted == BATCHED_ROWS - len(before.doubtful_actions)
        for row in made.ledger()[0].values():
            done = row["marks_made"] == row["marks_wanted"]
            assert done or row["state"] == "unknown" or row["marks_state"] == "unknown"

        calls = len(proxy.calls)
        third = made.run(proxy)
        assert (len(proxy.calls), third.sent) == (calls, 0)
        assert third.archives == second.archives

        last = made.run(proxy, evidence=GraphFile(core.db), quiet_ms=0)
        assert last.exit_code == ExitCode.PROVED, last.odd
        whole = check(made, proxy.calls, last, settled=True)
        assert set(whole.held) == set(made.archives)
        assert set(whole.held_actions) == set(made.actions)
        assert sum(whole.replays.values()) == sum(row["replay_count"] for row in made.archives.values())


def test_a_sequence_keeps_its_token_when_a_refused_batch_is_sent_again(core, migration):
    made, batches = migration(seed=9_001), itertools.count()
    with FaultProxy(core.url) as proxy:
        proxy.judge = lambda tool, _: "413" if tool == "admit_nl_actions" and next(batches) == 0 else "untouched"
        assert made.run(proxy).telemetry.refused == 100
        proxy.judge = leave_alone
        check(made, proxy.calls, made.run(proxy))
    sequences = {row["timestamp"]: row["sequence_id"] for row in made.actions.values()}
    tokens = defaultdict(set)
    for node in made.graph.actions():
        tokens[sequences[node["timestamp"]]].add(node["sequenceId"])
    assert {len(found) for found in tokens.values()} == {1}


@pytest.mark.parametrize("guess", [NotSent("session-lost", "a guess"), NotSent("too-large", "a guess")])
def test_a_client_that_guesses_is_noticed(core, migration, monkeypatch, guess):
    """The control: were a lost answer taken for a proof, the checks would see it."""
    monkeypatch.setattr(delivery, "of_exception", lambda error: guess)
    made = migration(seed=9_002)
    with FaultProxy(core.url, Chance(2)) as proxy:
        report = made.run(proxy)
        with pytest.raises(AssertionError):
            check(made, proxy.calls, report)


def test_every_fault_is_drawn():
    """The full number of seeds meets every fault."""
    drawn = {Chance(seed)("save_nl_transaction", f"tx:{number}") for seed in range(FULL) for number in range(ROWS)}
    assert drawn == {name for name, fault in FAULTS.items() if fault.kind is not Kind.LATE}

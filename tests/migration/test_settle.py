"""Unknown outcomes, decided by evidence or by the operator, and never by guess."""

import json
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from nl_cutover.errors import RefusedError, SurfaceError, UsageError
from nl_cutover.ingress.endpoint import Endpoint, Token
from nl_cutover.ingress.session import Session
from nl_cutover.migration.evidence import GraphFile
from nl_cutover.migration.job import migrate, settle
from nl_cutover.migration.policy import Policy, Telemetry
from nl_cutover.migration.progress import Silent
from nl_cutover.papers.explaining import explain
from nl_cutover.stores.checkouts import discover
from nl_cutover.stores.measurement import measure
from nl_cutover.testing import plant_store
from tests.conftest import FIRST, STRIPPED, RefusedByName


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Spoiled(httpx.BaseTransport):
    """Lets every request through; what `spoils` says of a call's answer is lost after the server committed it."""

    def __init__(self, spoils) -> None:
        self._inner = httpx.HTTPTransport()
        self._spoils = spoils
        self.calls: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.read() or b"{}")
        name = body.get("params", {}).get("name", "") if body.get("method") == "tools/call" else ""
        self.calls.append(name)
        verdict = self._spoils(name, self.calls.count(name))
        if verdict == "before":
            raise httpx.ReadError("dropped before the server saw it")  # as seen from here: after the request left
        if verdict == "refused":
            result = {"content": [{"type": "text", "text": "no"}], "isError": True}
            return httpx.Response(200, json={"jsonrpc": "2.0", "id": body["id"], "result": result})
        response = self._inner.handle_request(request)
        if verdict == "after":
            response.read()
            response.close()
            raise httpx.ReadError("the answer was lost")
        return response

    def close(self) -> None:
        self._inner.close()


class Job:
    def __init__(self, folder: Path, core, **store) -> None:
        self.core, self.folder = core, folder
        self.custody = folder / "custody"
        self.store = folder / "host" / ".neo-ai-data" / "sqlite" / "memory-core-graph.sqlite"
        actions = 0 if core.shape == FIRST else 30  # a test that is about them asks for them
        plant_store(self.store, **({"archives": 6, "actions": actions, "seed": 3} | store))
        self.endpoint = Endpoint(core.url, Token(core.token))
        self.transports: list[Spoiled] = []

    def measured(self):
        checkouts = discover([self.folder / "host"], environ={}, home=self.folder)
        return measure(checkouts, clock=lambda: datetime.now(UTC), environ={})

    def migrate(self, spoils=lambda name, nth: None, **options):
        def session():
            self.transports.append(Spoiled(spoils))
            return Session(self.endpoint, transport=self.transports[-1])

        given = {"workers": 1, "quiet_ms": 0, "telemetry": "admit", "note": lambda words: None} | options
        progress = Silent()
        progress.note = given.pop("note")
        begun = self.custody.exists()
        try:
            return self._migrate(session, progress, given)
        except SurfaceError as refused:
            if self.core.shape != FIRST or STRIPPED not in refused.message or self.custody.exists() != begun:
                raise
            raise RefusedByName from refused

    def _migrate(self, session, progress, given):
        return migrate(
            self.measured(),
            Policy(Telemetry.parse(given.pop("telemetry")), owner="all"),
            custody=self.custody,
            new_session=session,
            expected_plane="any",
            expected_root=None,
            acknowledged=None,
            clock=now_ms,
            progress=progress,
            **given,
        )

    def settle(self, *rows, evidence=None, quiet_ms=0.0):
        return settle(custody=self.custody, evidence=evidence, rows=rows, quiet_ms=quiet_ms, clock=now_ms)

    @property
    def evidence(self) -> GraphFile:
        return GraphFile(self.core.db)

    def held(self) -> tuple[list[str], int]:
        """Source transactions that MC holds, and the number of its telemetry rows."""
        graph = sqlite3.connect(f"file:{self.core.db}?mode=ro", uri=True)
        try:
            labels = "SELECT json_extract(data, '$.properties.sourceTxId') FROM Nodes WHERE json_extract(data, '$.label') = ?"
            archives = sorted(t for (t,) in graph.execute(labels, ("nl-transaction-archive",)))
            return archives, len(graph.execute(labels, ("nl-action-telemetry",)).fetchall())
        finally:
            graph.close()

    def source(self) -> list[str]:
        store = sqlite3.connect(self.store)
        try:
            return sorted(t for (t,) in store.execute("SELECT source_tx_id FROM nl_transaction_archive"))
        finally:
            store.close()


def lost(tool: str, nth: int, when: str = "after"):
    return lambda name, count: when if name == tool and count == nth else None


@pytest.mark.parametrize("when", ["after", "before"])
def test_a_lost_save_is_settled_by_evidence_and_ends_once(job, when):
    first = job.migrate(lost("save_nl_transaction", 3, when))
    assert (first.archives.unknown, first.exit_code) == (1, 7)
    again = job.migrate()
    assert again.archives.unknown == 1, "without evidence it is not sent again"
    assert "nl-cutover settle" in again.next_steps[0]
    done = job.migrate(evidence=job.evidence)
    assert done.exit_code == 0, done.odd
    assert job.held()[0] == job.source()
    receipt = json.loads(Path(done.receipt).read_text())
    (decision,) = receipt["settled"]
    assert decision["decision"] == ("adopted" if when == "after" else "resend")
    assert str(job.core.db) in decision["by"]


@pytest.mark.parametrize("when", ["after", "before"])
def test_a_lost_batch_is_settled_by_its_tokens(told, when):
    first = told.migrate(lost("admit_nl_actions", 1, when))
    assert first.telemetry.unknown == 30
    tokens = sqlite3.connect(told.custody / "ledger.sqlite")
    assert tokens.execute("SELECT count(*) FROM tokens").fetchone()[0] > 0, "kept until the outcome is known"
    tokens.close()
    done = told.migrate(evidence=told.evidence)
    assert done.exit_code == 0
    assert done.telemetry.admitted == 30
    assert told.held()[1] == 30


def test_a_batch_that_was_refused_is_left_on_the_host_by_one_word(told):
    """`explain` names the batch; its rows are many, and no error says which of them was the cause."""
    first = told.migrate(lost("admit_nl_actions", 1, "refused"))
    assert (first.telemetry.refused, first.exit_code) == (30, 7)
    (step,) = explain(first, []).next_steps
    word = step.rpartition("--row ")[2]
    assert word == "batch:1=exclude"
    done = told.settle(word)
    assert [d.decision for d in done.decisions] == ["excluded"] * 30
    again = told.migrate()
    assert (again.telemetry.excluded, again.odd, again.exit_code) == (30, [], 0)
    with pytest.raises(RefusedError, match="holds no refused row"):
        told.settle(word)


def test_the_token_map_is_erased_at_the_end_and_no_trace_of_it_stays_in_the_file(told):
    seen = []

    def watch(name, nth):
        if name == "admit_nl_actions":
            ledger = sqlite3.connect(told.custody / "ledger.sqlite")
            seen.extend(token for (token,) in ledger.execute("SELECT token FROM tokens"))
            ledger.close()

    assert told.migrate(watch).exit_code == 0
    assert seen, "the control: there were tokens while it ran"
    for file in told.custody.rglob("*"):
        if file.is_file():
            body = file.read_bytes()
            assert not [t for t in seen if t.encode() in body], file


@pytest.mark.parametrize("when", ["after", "before"])
def test_a_lost_mark_is_settled_by_the_count_in_mcs_file(job, when):
    first = job.migrate(lost("mark_nl_transaction_replayed", 1, when))
    assert first.marks.unknown == 1
    assert "nl-cutover settle" in first.next_steps[0]
    done = job.migrate(evidence=job.evidence)
    assert done.exit_code == 0, done.odd
    assert done.marks.made == done.marks.wanted > 0
    graph = sqlite3.connect(f"file:{job.core.db}?mode=ro", uri=True)
    counted = graph.execute("SELECT sum(json_extract(data, '$.properties.replayCount')) FROM Nodes").fetchone()[0]
    graph.close()
    assert counted == done.marks.wanted


def test_what_was_tried_a_moment_ago_is_not_believed_to_be_absent(job):
    job.migrate(lost("save_nl_transaction", 1))
    result = job.settle(evidence=job.evidence, quiet_ms=60_000)
    assert (result.exit_code, result.left) == (7, 1)
    assert result.decisions[0].decision == "undecided"
    assert "recently" in result.decisions[0].detail


def test_more_candidates_than_rows_are_refused_and_listed(job):
    job.migrate(lost("save_nl_transaction", 1))
    graph = sqlite3.connect(job.core.db)
    row_id, user, data = graph.execute(
        "SELECT id, user_id, data FROM Nodes WHERE id LIKE 'nl-transaction-archive:%'"
    ).fetchone()
    twin = data.replace(row_id.split(":")[1], "twin-of-it")
    graph.execute("INSERT INTO Nodes VALUES ('nl-transaction-archive:twin-of-it', ?, ?)", (user, twin))
    graph.commit()
    graph.close()
    result = job.settle(evidence=job.evidence)
    undecided = [d for d in result.decisions if d.decision == "undecided"]
    assert len(undecided) == 1
    assert "twin-of-it" in undecided[0].detail


def test_equal_rows_share_the_candidates(tmp_path, serve):
    """One transaction archived twice: whichever node each row adopts, it is right."""
    with serve(tmp_path / "core", tokens="t") as core:
        job = Job(tmp_path, core, archives=1, actions=0)
        store = sqlite3.connect(job.store)
        columns = [c[1] for c in store.execute("PRAGMA table_info(nl_transaction_archive)")][1:]
        store.execute(
            f"INSERT INTO nl_transaction_archive (archive_id, {', '.join(columns)}) "
            f"SELECT 'second', {', '.join(columns)} FROM nl_transaction_archive"
        )
        store.execute("UPDATE nl_transaction_archive SET replay_count = 0")
        store.commit()
        store.close()
        assert job.migrate(lambda name, nth: "after" if name == "save_nl_transaction" else None).archives.unknown == 2
        done = job.migrate(evidence=job.evidence)
        assert done.exit_code == 0
        assert len(job.held()[0]) == 2
        ids = sqlite3.connect(job.custody / "ledger.sqlite")
        assert len({i for (i,) in ids.execute("SELECT archive_id FROM archives")}) == 2
        ids.close()


def test_the_operator_decides_rows_and_the_receipt_says_so(job):
    first = job.migrate(lost("save_nl_transaction", 2, "before"))
    (odd,) = first.odd
    result = job.settle(f"{odd.key}=resend")
    assert (result.exit_code, result.left) == (0, 0)
    assert json.loads(Path(result.receipt).read_text())["settled"][0]["by"] == "operator"
    assert job.migrate().exit_code == 0
    assert job.held()[0] == job.source()


def test_the_operator_names_an_archive_and_it_is_still_compared(job):
    (odd,) = job.migrate(lost("save_nl_transaction", 2)).odd
    others = sqlite3.connect(job.custody / "ledger.sqlite")
    taken = others.execute("SELECT archive_id FROM archives WHERE archive_id IS NOT NULL").fetchone()[0]
    others.close()
    with pytest.raises(RefusedError, match="another row's"):
        job.settle(f"{odd.key}=saved:{taken}")
    job.settle(f"{odd.key}=saved:no-such-archive")
    done = job.migrate()
    assert done.exit_code == 7, "a wrong word of the operator is found out by the read-back"
    # An older server answers null, which tells nothing.
    says = "answers this token not-found" if job.core.shape == "final" else "not read back yet: unavailable"
    assert says in done.odd[0].reason
    job.settle(f"{odd.key}=resend")
    assert job.migrate().exit_code == 0, "and can be taken back"


@pytest.mark.parametrize("words", ["x", "x=perhaps", "batch:1=saved:y", "mark:x=resend"])
def test_words_that_are_no_decision(job, words):
    job.migrate(lost("save_nl_transaction", 2))
    with pytest.raises(UsageError):
        job.settle(words)


@pytest.mark.parametrize("words", ["x=resend", "x=saved:y", "batch:7=resend", "mark:x=made"])
def test_rows_whose_outcome_is_known_cannot_be_decided(job, words):
    job.migrate()
    with pytest.raises(RefusedError):
        job.settle(words)


def test_a_half_applied_mark_is_seen_and_not_repeated(tmp_path, serve):
    """The server raised the count in memory and failed to write it (observed): a second mark would count two."""
    with serve(tmp_path / "core", tokens="t", busy_timeout_ms=50) as core:
        job = Job(tmp_path, core, archives=8, actions=0, seed=5)
        locker = sqlite3.connect(core.db, isolation_level=None, check_same_thread=False)

        def lock(name, nth):
            if name == "mark_nl_transaction_replayed" and nth == 1:
                locker.execute("BEGIN IMMEDIATE")
            elif name and locker.in_transaction:
                locker.execute("ROLLBACK")

        first = job.migrate(lock)
        if locker.in_transaction:
            locker.execute("ROLLBACK")
        locker.close()
        assert first.marks.unknown == 1
        assert "half applied" in first.odd[0].reason
        again = job.migrate(evidence=job.evidence)
        assert again.marks.unknown == 1, "its file says 0 and its memory says 1: nobody marks again"
        core.restart()
        job.endpoint = Endpoint(core.url, Token(core.token))
        done = job.migrate(evidence=job.evidence)
        assert done.exit_code == 0, done.odd
        assert done.marks.made == done.marks.wanted


@pytest.fixture
def strange(tmp_path, serve):
    """The graph of a plane that the run never went to."""
    with serve(tmp_path / "strange", tokens="t") as core:
        yield GraphFile(core.db)


def one_archive(tmp_path, core, when: str) -> Job:
    job = Job(tmp_path, core, archives=1, actions=0, seed=11)
    assert job.migrate(lost("save_nl_transaction", 1, when)).archives.unknown == 1
    return job


def test_a_graph_that_holds_nothing_of_the_run_does_not_tell_that_a_row_is_absent(tmp_path, serve, strange):
    """Memory Core has the archive: sent again for an empty graph's sake, it would be there twice."""
    with serve(tmp_path / "core", tokens="t") as core:
        job = one_archive(tmp_path, core, "after")
        told = job.settle(evidence=strange)
        assert (told.left, [d.decision for d in told.decisions]) == (1, ["undecided"])
        assert "--evidence container" in told.decisions[0].detail
        assert job.migrate(evidence=strange).archives.unknown == 1
        assert job.migrate(evidence=job.evidence).exit_code == 0, "what is found is still adopted, and then read back"
        assert job.held()[0] == job.source()


def test_without_a_tie_absence_is_the_operators_word_and_the_first_row_ties_the_rest(tmp_path, serve):
    with serve(tmp_path / "core", tokens="t") as core:
        job = Job(tmp_path, core, archives=3, actions=0, seed=12)
        first = job.migrate(lambda name, nth: "before" if name == "save_nl_transaction" else None)
        assert first.archives.unknown == 3
        assert job.settle(evidence=job.evidence).left == 3
        job.settle(f"{first.odd[0].key}=resend")
        assert job.migrate().archives.confirmed == 1
        told = job.settle(evidence=job.evidence)
        assert [d.decision for d in told.decisions] == ["resend", "resend"]
        assert job.migrate().exit_code == 0
        assert job.held()[0] == job.source()


def test_of_equal_rows_those_that_are_found_are_adopted_and_the_rest_is_not_sent_again(tmp_path, serve):
    with serve(tmp_path / "core", tokens="t") as core:
        job = Job(tmp_path, core, archives=1, actions=0, seed=13)
        with closing(sqlite3.connect(job.store)) as store, store:
            columns = [c[1] for c in store.execute("PRAGMA table_info(nl_transaction_archive)")][1:]
            store.execute(
                f"INSERT INTO nl_transaction_archive (archive_id, {', '.join(columns)}) "
                f"SELECT 'second', {', '.join(columns)} FROM nl_transaction_archive"
            )
        fates = {1: "after", 2: "before"}
        job.migrate(lambda name, nth: fates.get(nth) if name == "save_nl_transaction" else None)
        told = job.settle(evidence=job.evidence)
        assert sorted(d.decision for d in told.decisions) == ["adopted", "undecided"]


@pytest.mark.parametrize(("when", "decision"), [("before", "undecided"), ("after", "admitted")])
def test_of_a_batch_the_tokens_are_the_tie(tmp_path, serve, strange, when, decision):
    with serve(tmp_path / "core", tokens="t") as core:
        job = Job(tmp_path, core, archives=0, actions=30, seed=14)
        assert job.migrate(lost("admit_nl_actions", 1, when)).telemetry.unknown == 30
        assert [d.decision for d in job.settle(evidence=strange).decisions] == ["undecided"]
        assert [d.decision for d in job.settle(evidence=job.evidence).decisions] == [decision]


def test_a_batch_that_was_admitted_ties_the_graph_for_what_is_not_there(tmp_path, serve):
    with serve(tmp_path / "core", tokens="t") as core:
        job = Job(tmp_path, core, archives=1, actions=150, seed=15)

        def spoils(name, nth):
            return "before" if (name, nth) in (("save_nl_transaction", 1), ("admit_nl_actions", 2)) else None

        first = job.migrate(spoils)
        assert (first.archives.unknown, first.telemetry.admitted, first.telemetry.unknown) == (1, 100, 50)
        assert {d.decision for d in job.settle(evidence=job.evidence).decisions} == {"resend"}
        assert job.migrate().exit_code == 0
        assert (job.held()[0], job.held()[1]) == (job.source(), 150)

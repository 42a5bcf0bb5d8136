"""Against older servers: what can be carried truthfully is carried, the rest is refused by name before it leaves."""

import json
import sqlite3
from pathlib import Path

import pytest

from nl_cutover.contract.archives import save_call
from nl_cutover.contract.rows import ARCHIVES
from nl_cutover.testing import plant_store
from nl_cutover.verdicts import Delivered, Refused, Unknown
from tests.cli.test_road import COUNTS, graph_rows
from tests.conftest import TOKENS, Operator
from tests.contract.test_rows import archive
from tests.migration.test_settle import Job, lost

OWNER = ("--owner", "neo-operator")
FIRST = "902ddd4d"  # it declares no sequenceId: whatever telemetry it is sent loses its token
CARRIED = ("sourceTxId", "name", "appSessionId", "committedAt", "replayCount")


def store_of(path: Path) -> Path:
    return path / ".neo-ai-data" / "sqlite" / "memory-core-graph.sqlite"


def source_rows(path: Path) -> list[tuple]:
    columns = "source_tx_id, name, app_session_id, committed_at, replay_count, ops, origin_writer"
    store = sqlite3.connect(store_of(path))
    rows = store.execute(f"SELECT {columns} FROM {ARCHIVES}").fetchall()
    store.close()
    return sorted([(*row[:5], json.loads(row[5]), json.loads(row[6])) for row in rows], key=str)


def held(core, before: set[str]) -> list[tuple]:
    """What MC holds of the archives that came since `before`, as `source_rows` gives it."""
    new = [p for n in graph_rows(core, "nl-transaction-archive") if (p := n["properties"])["archiveId"] not in before]
    rows = [(*(p[key] for key in CARRIED), p["ops"], p["originWriter"]) for p in new]
    # A mark on an unnamed archive gives it its id as name, on the final server alone.
    ids = {p["archiveId"] for p in new}
    return sorted([(row[0], None if row[1] in ids else row[1], *row[2:]) for row in rows], key=str)


def ids(core) -> set[str]:
    return {n["properties"]["archiveId"] for n in graph_rows(core, "nl-transaction-archive")}


@pytest.mark.parametrize("name", ["closed", "live"])
def test_a_store_is_carried_read_back_and_marked(operator, checkout, core, name):
    path, before = checkout(name), ids(core)
    archives, actions = COUNTS[name]
    takes = core.shape != FIRST
    words = ("migrate", path, *OWNER, "--telemetry", "admit" if takes else "leave")
    done = operator(*words)
    assert done.code == (0 if takes else 3), done.err
    report = done.json
    assert report["archives"]["rows"] == report["archives"]["confirmed"] == archives
    assert report["marks"]["made"] == report["marks"]["wanted"] > 0
    assert report["telemetry"]["admitted" if takes else "left"] == actions
    assert held(core, before) == source_rows(path)
    if core.shape != "final":
        unnamed = [n["properties"] for n in graph_rows(core, "nl-transaction-archive")]
        assert not [p for p in unnamed if p["name"] == p["archiveId"]]
    again = operator(*words)
    assert (again.code, again.json["sent"]) == (done.code, 0)
    verified = operator("verify", path)
    assert verified.code == 0, verified.err
    assert [verified.json[key] for key in ("expected", "checked", "equal", "bytes_equal")] == [archives] * 4


@pytest.mark.parametrize("core", [FIRST], indirect=True)
@pytest.mark.parametrize("name", ["closed", "live"])
def test_telemetry_that_would_lose_its_token_is_refused_before_anything_is_sent(operator, checkout, core, name):
    before, path = ids(core), checkout(name)
    done = operator("migrate", path, *OWNER, "--telemetry", "admit")
    assert done.code == 3
    assert "admit_nl_actions.actions[].sequenceId" in done.err
    assert not operator.custody.exists()
    assert ids(core) == before
    assert graph_rows(core, "nl-action-telemetry") == []


@pytest.mark.parametrize("core", [FIRST], indirect=True)
def test_the_first_server_can_be_landed_on_when_telemetry_is_discarded_by_count(operator, checkout):
    path = checkout("closed")
    assert operator("migrate", path, *OWNER, "--telemetry", "discard=60").code == 0
    assert operator("cut", path, "--", "true").code == 0


def test_the_id_of_a_transaction_travels_under_both_names():
    """One form for all: each server reads the name that it knows, as the cases of conformance show."""
    call = save_call(archive())
    assert not isinstance(call, Refused)
    transaction = json.loads(call.arguments)["transaction"]
    assert transaction["id"] == transaction["txId"] == call.source_tx_id


def test_null_is_no_word_about_absence(operations, core):
    """An older server answers null for what is absent, private or unreadable; the final one tells them apart."""
    own, other = operations(core.token), operations(TOKENS["neo-other"])
    transaction = {"txId": "t", "id": "t", "status": "committed", "ops": [{}]}
    transaction["originWriter"] = {"agentId": "a", "sessionId": "s"}
    saved = own.save(json.dumps({"transaction": transaction}).encode())
    assert isinstance(saved, Delivered)
    archive_id = saved.result["archiveId"]
    found = own.get(archive_id)
    assert (found.result["status"], found.result["sourceTxId"]) == ("found", "t")
    nothing = "not-found" if core.shape == "final" else "unavailable"
    assert other.get(archive_id).result["status"] == own.get("no-such").result["status"] == nothing
    # A bare `updated: false` may be a store that failed half way: only a server that says not-found refuses.
    assert isinstance(other.mark(archive_id), Refused if core.shape == "final" else Unknown)


def test_a_read_under_the_wrong_identity_proves_nothing(operator, checkout, core):
    path = checkout("closed")
    operator("migrate", path, *OWNER)
    wrong = Operator(operator.folder, core.url, TOKENS["neo-other"])
    verified = wrong("verify", path)
    report = verified.json
    if core.shape == "final":
        assert (verified.code, report["checked"], report["equal"]) == (8, 12, 0)
    else:
        assert (verified.code, report["checked"], report["missing"]) == (7, 0, 0)
        assert {d["what"] for d in report["differences"]} == {"could not be read: MC could not say"}
    assert operator("verify", path).code == 0


def test_an_archive_that_cannot_be_read_back_is_never_confirmed(tmp_path, core):
    """The operator names an archive that is not there: another identity reads that too, so the row stays open."""
    job = Job(tmp_path, core, actions=0)
    (odd,) = job.migrate(lost("save_nl_transaction", 2)).odd
    job.settle(f"{odd.key}=saved:no-such-archive")
    done = job.migrate()
    assert (done.exit_code, done.archives.differs, done.archives.confirmed) == (7, 0, 5)


@pytest.mark.parametrize("tool", ["save_nl_transaction", "mark_nl_transaction_replayed"])
@pytest.mark.parametrize("when", ["after", "before"])
def test_a_lost_answer_is_settled_by_the_graph(tmp_path, core, tool, when):
    before = len(ids(core))
    # Rows of its own: equal ones of another test, in this MC a moment ago, would be candidates too.
    job = Job(tmp_path, core, actions=0, seed=sum(map(ord, tool + when)))
    first = job.migrate(lost(tool, 1, when))
    assert (first.archives.unknown, first.marks.unknown) == ((1, 0) if tool.startswith("save") else (0, 1))
    done = job.migrate(evidence=job.evidence)
    assert done.exit_code == 0, done.odd
    assert done.marks.made == done.marks.wanted > 0
    assert len(ids(core)) == before + 6


@pytest.mark.parametrize("spoils", [lambda name, nth: None, lost("save_nl_transaction", 1)], ids=["kept", "lost"])
def test_a_name_with_outer_blanks_arrives_once_and_is_confirmed(tmp_path, core, spoils):
    """Later servers trim a name, the first does not: what is sent, compared and looked up must be one form of it."""
    before = ids(core)
    job = Job(tmp_path, core, archives=2, actions=0, seed=9 if spoils("save_nl_transaction", 1) else 10)
    store = sqlite3.connect(job.store)
    store.execute("UPDATE nl_transaction_archive SET name = ' \u00a0 Näme 😀 \u2028' WHERE rowid = 1")
    store.execute("UPDATE nl_transaction_archive SET name = '   ' WHERE rowid = 2")
    store.commit()
    store.close()
    job.migrate(spoils)
    done = job.migrate(evidence=job.evidence)
    assert (done.exit_code, done.archives.confirmed) == (0, 2), done.odd
    assert len(ids(core) - before) == 2


def test_a_store_in_which_nothing_is_telemetry_needs_no_word_about_it(tmp_path, core):
    plant_store(store_of(tmp_path / "bare"), archives=3, actions=0)
    operator = Operator(tmp_path, core.url, core.token)
    assert operator("migrate", tmp_path / "bare", *OWNER, "--telemetry", "admit").code == 0

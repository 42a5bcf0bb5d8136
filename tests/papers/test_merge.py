"""`receipt merge`: a fleet is clear only if every expected host is there, fresh, sealed and clear."""

import hashlib
import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import rfc8785

from nl_cutover.papers.merging import MergeReport
from nl_cutover.papers.merging import merge as merge_receipts
from nl_cutover.papers.verifying import Paper
from tests.conftest import Operator
from tests.papers.conftest import plant

HOSTS = ("ada", "ben", "cyn")


@pytest.fixture
def fleet(tmp_path, whole_road):
    """`fleet(host, **changes)` brings home a clear receipt of that host, its outcome or its body changed."""
    clear = json.loads(max((whole_road.custody / "receipts").iterdir()).read_text())
    (tmp_path / "home").mkdir()
    operator = Operator(tmp_path / "home", None, None)

    def bring(host: str, change=lambda body: None) -> Path:
        body = json.loads(json.dumps(clear))
        body["tool"]["host"] = host
        change(body)
        path = operator.folder / f"{host}.json"
        path.write_bytes(rfc8785.dumps(body))
        return path

    bring.operator = operator
    return bring


def merge(*paths: Path, hosts=HOSTS) -> MergeReport:
    now = time.time_ns() // 1_000_000
    return merge_receipts(Paper(paths), hosts, now_ms=now, max_age_ms=36_000_000, at="now")


def merge_by_hand(operator, *words, hosts=HOSTS):
    return operator("receipt", "merge", *words, *(w for h in hosts for w in ("--expect-host", h)), "--max-age", 600)


def late_row(body):
    body["measured"]["stores"][0]["tables"][1]["unaccounted"] = 1
    body["outcome"]["totals"]["unaccounted"] = 1
    body["outcome"].update(verdict="refused", exit_code=3)


def unsealed(body):
    body["measured"]["stores"][0]["seal"]["sealed"] = ["nl_action_log"]


def contradiction(body):
    body["outcome"]["totals"]["archives"] = 99


def other_plane(body):
    body["plane"]["plane_id"] = "neo-somewhere-else"


def unmeasurable(body):
    body["measured"]["checkouts"][0]["state"] = "unmeasurable"
    body["outcome"].update(verdict="unmeasurable", exit_code=4)


def test_all_there_fresh_and_clear(fleet):
    done = merge(*map(fleet, HOSTS))
    assert done.exit_code == 0, done.reasons
    assert done.verdict == "clear"
    assert [h.state for h in done.hosts] == ["clear"] * 3
    assert "landing may run now" in done.next_steps[0]


def test_what_has_landed_is_not_landed_again(fleet, receipts):
    host = json.loads(receipts[0].read_text())["tool"]["host"]
    assert "has landed" in merge(*receipts, hosts=[host]).next_steps[0]
    for number in (9, 10):  # taken back since, migrated and measured
        body = json.loads(receipts[2 if number == 9 else 7].read_text())
        last = receipts[-1] if number == 9 else receipts[-1].parent / "0009-migrate.json"
        body |= {"number": number, "previous": hashlib.sha256(last.read_bytes()).hexdigest()}
        path = receipts[-1].parent / f"{number:04d}-{body['kind']}.json"
        body["at"] = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        path.write_bytes(rfc8785.dumps(body))
    again = merge(*sorted(receipts[-1].parent.iterdir()), hosts=[host])
    assert (again.exit_code, again.hosts[0].landed) == (0, False), again.reasons
    both = merge(*receipts, fleet("ada"), hosts=[host, "ada"])
    assert [h.landed for h in both.hosts] == [h.host == host for h in both.hosts]
    assert "the landing of ada may run now" in both.next_steps[0]


@pytest.mark.parametrize(
    ("change", "state", "word"),
    [
        (late_row, "blocked", "1 of 6 rows of nl_transaction_archive in store"),
        (unsealed, "open", "is not sealed"),
        (unmeasurable, "blocked", "says unmeasurable"),
    ],
)
def test_one_host_that_is_not_clear_refuses_the_fleet_and_is_named(fleet, change, state, word):
    paths = [fleet("ada"), fleet("ben", change), fleet("cyn")]
    done = merge(*paths)
    assert done.exit_code == 3, done.reasons
    assert [h.state for h in done.hosts] == ["clear", state, "clear"]
    assert done.reasons[0].startswith("ben: ")
    assert word in done.reasons[0]
    assert done.next_steps[0].startswith("ben: ")
    assert merge(fleet("ada"), fleet("ben"), fleet("cyn")).exit_code == 0, "after it was mended"


def test_a_missing_host_is_named(fleet):
    done = merge(fleet("ada"), fleet("cyn"))
    assert done.exit_code == 3
    assert done.reasons == ["ben: no receipt of it is here"]


@pytest.mark.parametrize(
    ("at", "word"), [("2025-01-01T00:00:00.000Z", "minutes old"), ("2099-01-01T00:00:00.000Z", "ahead")]
)
def test_a_stale_receipt_and_one_of_the_future(fleet, at, word):
    done = merge(fleet("ada"), fleet("ben", lambda body: body.update(at=at)), fleet("cyn"))
    assert done.exit_code == 3
    assert done.hosts[1].state == "stale"
    assert word in done.reasons[0]


def test_hosts_that_went_to_different_planes(fleet):
    done = merge(fleet("ada"), fleet("ben", other_plane), fleet("cyn"))
    assert done.exit_code == 3
    assert "different planes" in done.reasons[0]
    assert "neo-somewhere-else" in done.reasons[0]


def test_a_host_that_nobody_expected_is_judged_too(fleet):
    done = merge(*map(fleet, HOSTS), fleet("dan", late_row))
    assert done.exit_code == 3
    assert done.reasons[0].startswith("dan: ")


def test_a_broken_receipt_and_a_torn_one(fleet):
    done = merge(fleet("ada"), fleet("ben", contradiction), fleet("cyn"))
    assert (done.exit_code, done.hosts[1].state) == (8, "broken")
    torn = fleet("ben")
    torn.write_bytes(torn.read_bytes()[:-9])
    done = merge(fleet("ada"), torn, fleet("cyn"))
    assert (done.exit_code, done.hosts[1].state, done.unread) == (4, "missing", [str(torn)])


def test_the_newest_receipt_decides(fleet, receipts):
    """A chain whose newest receipt is a verification says nothing about rows that came since."""
    host = json.loads(receipts[0].read_text())["tool"]["host"]
    for last, code, state in (
        (8, 0, "clear"),
        (7, 0, "clear"),
        (6, 3, "blocked"),
        (5, 3, "blocked"),
        (3, 3, "blocked"),
    ):
        done = merge(*receipts[:last], hosts=[host])
        assert (done.exit_code, done.hosts[0].state) == (code, state), last


def test_without_expected_hosts_nobody_knows_who_is_missing(fleet):
    done = merge_by_hand(fleet.operator, fleet("ada"), hosts=())
    assert done.code == 2
    assert "--expect-host" in done.err


def test_signatures_may_be_asked_of_every_host(fleet, tmp_path):
    import subprocess

    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    (tmp_path / "allowed").write_text(f"mia {(tmp_path / 'key.pub').read_text()}")
    paths = [*map(fleet, HOSTS)]
    assert fleet.operator("receipt", "sign", *paths[:2], "--key", tmp_path / "key").code == 0
    done = merge_by_hand(fleet.operator, *paths, "--allowed-signers", tmp_path / "allowed")
    assert done.code == 3
    assert [h["state"] for h in done.json["hosts"]] == ["clear", "clear", "unsigned"]
    assert fleet.operator("receipt", "sign", paths[2], "--key", tmp_path / "key").code == 0
    assert merge_by_hand(fleet.operator, *paths, "--allowed-signers", tmp_path / "allowed").code == 0


def test_a_late_row_on_a_real_host_is_refused_until_it_is_brought_over(tmp_path, core):
    """seal, migrate, measure --receipt, merge; the row came before the seal and after the migration."""
    import socket
    import sqlite3

    operator = Operator(tmp_path, core.url, core.token)
    path = plant(tmp_path / "codex", archives=3, actions=4, seed=902)
    migrate = ("migrate", path, "--owner", "neo-operator", "--telemetry", "admit")
    assert operator(*migrate).code == 0
    store = sqlite3.connect(path / ".neo-ai-data/sqlite/memory-core-graph.sqlite")
    with store:
        store.execute(
            "INSERT INTO nl_transaction_archive SELECT 'late', name, source_tx_id, source_agent_id, "
            "source_agent_session_id, app_session_id, origin_writer, committed_at, archived_at, ops, 0, NULL "
            "FROM nl_transaction_archive LIMIT 1"
        )
    store.close()

    def state():
        measured = operator("measure", path, "--receipt")
        done = merge_by_hand(operator, measured.json["receipt"], hosts=[socket.gethostname()])
        return done.code, done.json["hosts"][0]["state"], done.json["reasons"]

    code, blocked, reasons = state()
    assert (code, blocked) == (3, "blocked")
    assert "1 of 4 rows of nl_transaction_archive" in reasons[0]
    assert operator("seal", path).code == 0
    assert state()[:2] == (3, "blocked")
    assert operator(*migrate).code == 0
    assert state() == (0, "clear", [])

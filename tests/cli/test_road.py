"""The whole road through the command line, on copies of the stores that the recorder's own code wrote."""

import json
import shlex
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from nl_cutover.contract.rows import ACTIONS, ARCHIVES
from tests.conftest import FIRST, Operator, RefusedByName, state_of

COUNTS = {"live": (40, 188), "closed": (12, 60), "hostile": (57, 199), "oversized": (7, 10)}


def tables(report: dict) -> dict[str, dict]:
    return {t["name"]: t for t in report["stores"][0]["tables"]}


@pytest.mark.parametrize("name", COUNTS)
def test_measure_counts_and_leaves_the_folder_as_it_was(operator, checkout, name):
    path = checkout(name)
    before = state_of(path)
    done = operator("measure", path)
    assert state_of(path) == before
    assert done.code == done.json["exit_code"] == 3
    assert done.json["schema"] == "nl-cutover/measure/1"
    assert done.json["verdict"] == "refused"
    found = tables(done.json)
    assert (found[ARCHIVES]["rows"], found[ACTIONS]["rows"]) == COUNTS[name]
    assert found[ARCHIVES]["unaccounted"] == found[ARCHIVES]["rows"]
    assert not operator.custody.exists(), "measuring creates nothing"


def test_live_counts_its_log_and_a_bare_copy_would_not(operator, checkout):
    with_log = operator("measure", checkout("live")).json
    assert with_log["stores"][0]["wal_bytes"] == 4_124_152
    bare = operator("measure", checkout("bare", "live", sidecars=False)).json
    counted = {t["name"]: t["rows"] for t in bare["stores"][0]["tables"]}
    assert counted != {ARCHIVES: 40, ACTIONS: 188}, "the control: the rows were in the log"


def test_five_symlinked_checkouts_are_one_store(operator, checkout, link):
    canonical = checkout("antigravity", "live")
    others = [link(name, canonical) for name in ("claude", "clio", "codex", "opus-vega")]
    report = operator("measure", canonical, *others, "--expect-checkouts", 5).json
    assert len(report["checkouts"]) == 5
    assert {c["seat"] for c in report["checkouts"]} == {"antigravity", "claude", "clio", "codex", "opus-vega"}
    assert len({c["store"] for c in report["checkouts"]}) == 1
    (store,) = report["stores"]
    assert len(store["aliases"]) == 5
    assert report["totals"]["archives"] == 40


def migrate(operator: Operator, *arguments: object):
    """With all telemetry: admitted, or discarded by count where admitting is refused by name."""
    try:
        return operator("migrate", *arguments, "--telemetry", "admit", "--owner", "neo-operator")
    except RefusedByName:
        if "--plan" in arguments:
            raise
        actions = operator("plan", *arguments, "--owner", "neo-operator").json["actions"]
        return operator("migrate", *arguments, "--telemetry", f"discard={actions}", "--owner", "neo-operator")


@pytest.mark.parametrize(
    ("name", "archives", "marks", "actions"),
    [("live", 40, 24, 188), ("hostile", 57, 21, 199), ("closed", 12, None, 60)],
)
def test_every_row_arrives_once_and_a_second_run_sends_nothing(operator, checkout, name, archives, marks, actions):
    path = checkout(name)
    before = state_of(path)
    done = migrate(operator, path)
    report = done.json
    assert done.code == 0, done.err
    assert report["schema"] == "nl-cutover/run/1"
    assert report["archives"]["rows"] == report["archives"]["confirmed"] == archives
    taken = "discarded" if operator.shape == FIRST else "admitted"
    assert report["telemetry"]["rows"] == report["telemetry"][taken] == actions
    assert report["marks"]["made"] == report["marks"]["wanted"]
    if marks is not None:
        assert report["marks"]["made"] == marks
    again = migrate(operator, path)
    assert again.code == 0
    assert again.json["sent"] == 0
    assert again.json["run"] == report["run"]
    assert state_of(path) == before
    verified = operator("verify", path).json
    assert (verified["expected"], verified["checked"], verified["equal"]) == (archives,) * 3
    assert verified["bytes_equal"] == archives
    measured = operator("measure", path)
    assert measured.code == 0
    assert measured.json["verdict"] == "clear"


def graph_rows(core, label: str) -> list[dict]:
    with sqlite3.connect(f"file:{core.db}?mode=ro", uri=True) as graph:
        found = graph.execute("SELECT data FROM Nodes WHERE json_extract(data, '$.label') = ?", (label,)).fetchall()
    graph.close()
    return [json.loads(data) for (data,) in found]


def test_the_graph_holds_each_archive_once(operator, checkout, core):
    path = checkout("closed")
    source = sqlite3.connect(path / ".neo-ai-data/sqlite/memory-core-graph.sqlite")
    wanted = sorted(t for (t,) in source.execute("SELECT source_tx_id FROM nl_transaction_archive"))
    source.close()
    before = {n["properties"]["archiveId"] for n in graph_rows(core, "nl-transaction-archive")}
    assert migrate(operator, path).code == 0
    new = [n for n in graph_rows(core, "nl-transaction-archive") if n["properties"]["archiveId"] not in before]
    assert sorted(n["properties"]["sourceTxId"] for n in new) == wanted


def test_oversized_rows_are_named_before_anything_is_sent(operator, checkout):
    path = checkout("oversized")
    plan = operator("plan", path, "--telemetry", "admit", "--owner", "neo-operator").json
    assert [r["reason"].split(":")[0] for r in plan["refused"]] == ["too large", "too large"]
    assert all("186," in r["reason"] for r in plan["refused"])
    done = migrate(operator, path)
    assert done.code == done.json["exit_code"] == 7
    counted = {name: count for name, count in done.json["archives"].items() if count}
    assert counted == {"rows": 7, "confirmed": 5, "refused": 2}
    assert {o["key"] for o in done.json["odd"]} == {r["key"] for r in plan["refused"]}
    assert operator("measure", path).code == 3
    cut = operator("cut", path, "--", "true")
    assert cut.code == 3
    assert cut.json["command"] is None
    # Bringing them over is refused for ever: the next step is another one, until there is none.
    for _ in plan["refused"]:
        (step,) = operator("cut", path, "--", "true").json["next_steps"]
        assert "migrate" not in step
        command = shlex.split(step.partition(": ")[2])
        assert command[:3] == ["nl-cutover", "settle", "--row"]
        assert operator(*command[1:]).code == 0
    assert operator("status").json["archives"]["excluded"] == 2
    verified = operator("verify", path)
    assert (verified.code, verified.json["expected"], verified.json["excluded"]) == (0, 5, 2)
    assert migrate(operator, path).code == 0
    landed = operator("cut", path, "--", "true")
    assert landed.code == 0, landed.out


def test_a_cut_names_rows_that_were_refused_apart_from_rows_that_are_new(operator, checkout):
    path = checkout("oversized")
    assert migrate(operator, path).code == 7
    with closing(sqlite3.connect(path / ".neo-ai-data/sqlite/memory-core-graph.sqlite")) as store, store:
        store.execute("UPDATE nl_action_log SET id = 'late' WHERE rowid = 1")
    steps = operator("cut", path, "--", "true").json["next_steps"]
    assert ["settle --row" in steps[0], "nl-cutover migrate" in steps[1], len(steps)] == [True, True, 2]


def test_rows_of_several_writers_need_an_owner(operator, checkout):
    done = operator("migrate", checkout("live"), "--telemetry", "admit")
    assert done.code == 3
    assert "6 writers" in done.err
    assert "--owner" in done.err
    assert not operator.custody.exists()


def test_a_plan_is_run_exactly_or_not_at_all(operator, checkout, tmp_path):
    path = checkout("live")
    plan = tmp_path / "plan.json"
    made = operator("plan", path, "--telemetry", "admit", "--owner", "neo-operator", "--out", plan)
    assert made.code == 0
    store = sqlite3.connect(path / ".neo-ai-data/sqlite/memory-core-graph.sqlite")
    store.execute("UPDATE nl_transaction_archive SET name = 'changed' WHERE rowid = 1")
    store.commit()
    store.close()
    refused = migrate(operator, path, "--plan", plan)
    assert refused.code == 3
    assert not operator.custody.exists()
    assert operator("plan", path, "--telemetry", "admit", "--owner", "neo-operator", "--out", plan).code == 0
    done = migrate(operator, path, "--plan", plan)
    assert done.code == 0, done.err
    receipt = json.loads(Path(done.json["receipt"]).read_text())
    assert receipt["plan"]["acknowledged"] is True
    bare = operator("migrate", path, "--plan", plan)
    assert bare.code == 0, "the plan itself says how: no flag has to be repeated"
    against = operator("migrate", path, "--plan", plan, "--telemetry", "leave")
    assert against.code == 2
    assert "contradicts the plan" in against.err
    plan.write_text(plan.read_text().replace('"marks":24', '"marks":23'))
    assert migrate(operator, path, "--plan", plan).code == 2


def test_telemetry_left_keeps_the_cut_refused_and_discarding_needs_the_exact_count(operator, checkout):
    path = checkout("live")
    owner = ("--owner", "neo-operator")
    left = operator("migrate", path, *owner)
    assert left.json["telemetry"]["left"] == 188
    assert left.code == 3
    assert operator("cut", path, "--", "true").code == 3
    wrong = operator("migrate", path, *owner, "--telemetry", "discard=187")
    assert wrong.code == 3
    assert "188" in wrong.err
    done = operator("migrate", path, *owner, "--telemetry", "discard=188")
    assert done.code == 0
    assert done.json["telemetry"]["discarded"] == 188
    assert "telemetry_rows" in {loss["kind"] for loss in done.json["losses"]}
    assert operator("cut", path, "--", "true").code == 0


def test_replays_may_stay_in_the_receipt(operator, checkout):
    done = operator("migrate", checkout("closed"), "--owner", "x", "--telemetry", "admit", "--replays", "receipt")
    assert done.code == 0
    assert done.json["marks"] == {"wanted": 0, "made": 0, "unknown": 0}
    assert "replay_count" in {loss["kind"] for loss in done.json["losses"]}


def test_a_replay_on_the_host_after_the_migration_becomes_one_more_mark_and_no_second_archive(operator, checkout, core):
    path = checkout("closed")
    assert migrate(operator, path).code == 0
    held = len(graph_rows(core, "nl-transaction-archive"))
    with sqlite3.connect(path / ".neo-ai-data/sqlite/memory-core-graph.sqlite") as store:
        store.execute("UPDATE nl_transaction_archive SET replay_count = replay_count + 1 WHERE rowid = 3")
    store.close()
    assert operator("measure", path).json["totals"]["unaccounted"] == 1
    again = migrate(operator, path).json
    assert again["sent"] == 1
    assert again["exit_code"] == 0
    assert len(graph_rows(core, "nl-transaction-archive")) == held


def test_one_archive_in_two_stores_is_saved_once(operator, checkout):
    done = migrate(operator, checkout("closed"), checkout("copy", "closed"))
    assert done.code == 0
    assert done.json["archives"]["rows"] == 12
    receipt = json.loads(Path(done.json["receipt"]).read_text())
    assert all(len(entry["stores"]) == 2 for entry in receipt["id_map"])


def test_one_id_with_two_contents_is_refused_before_anything_is_sent(operator, checkout):
    one, other = checkout("closed"), checkout("copy", "closed")
    with sqlite3.connect(other / ".neo-ai-data/sqlite/memory-core-graph.sqlite") as store:
        store.execute("UPDATE nl_transaction_archive SET name = 'another' WHERE rowid = 3")
    store.close()
    done = migrate(operator, one, other)
    assert done.code == 3
    assert "different contents" in done.err
    assert not operator.custody.exists()


def test_cut_lands_once_seals_and_leaves_a_receipt(operator, checkout, tmp_path):
    path = checkout("live")
    landed = tmp_path / "landed"
    assert operator("cut", path, "--", "touch", landed).code == 3
    assert not landed.exists()
    assert migrate(operator, path).code == 0
    done = operator("cut", path, "--", "touch", landed)
    assert done.code == 0, done.out
    assert landed.exists()
    assert done.json["command"]["exit_code"] == 0
    with (
        pytest.raises(sqlite3.IntegrityError, match="sealed by nl-cutover"),
        sqlite3.connect(path / ".neo-ai-data/sqlite/memory-core-graph.sqlite") as store,
    ):
        store.execute(
            "INSERT INTO nl_action_log (id, agent_id, sequence_id, timestamp, tool, args) VALUES (1, 2, 3, 4, 5, 6)"
        )
    store.close()
    assert operator("measure", path).json["stores"][0]["seal"]["sealed"] == [ACTIONS, ARCHIVES]
    receipt = json.loads(Path(done.json["receipt"]).read_text())
    assert receipt["kind"] == "cut"
    assert receipt["outcome"]["command"]["exit_code"] == 0


def test_a_landing_that_fails_takes_the_seal_away_again(operator, checkout):
    path = checkout("closed")
    assert migrate(operator, path).code == 0
    done = operator("cut", path, "--", "sh", "-c", "echo told; exit 9")
    assert done.code == 3
    assert done.json["command"]["exit_code"] == 9
    assert done.json["command"]["output_tail"] == "told\n"
    assert done.json["stores"][0]["seal"] == "removed"
    assert operator("measure", path).json["stores"][0]["seal"]["sealed"] == []


def test_status_and_receipts_tell_where_a_run_stands(operator, checkout):
    assert operator("status").code == 4
    migrate(operator, checkout("oversized"))
    status = operator("status")
    assert status.code == 7
    assert status.json["archives"]["refused"] == 2
    assert status.json["losses"]
    shown = operator("receipt", "show")
    assert shown.code == 0
    assert shown.json["number"] == 1
    assert len(shown.json["id_map"]) == 5


def test_each_writers_rows_are_saved_verified_and_marked_under_its_own_identity(tmp_path, checkout, serve):
    with serve(tmp_path / "seats", tokens={"ada": "token-ada", "vega": "token-vega", "tool": "t"}) as core:
        operator = Operator(tmp_path, core.url, "t", core.shape)
        operator.environ |= {"ADA": "token-ada", "VEGA": "token-vega"}
        path = checkout("closed")
        config = tmp_path / "nl-cutover.toml"
        seats = {"neo-opus-ada": "ADA", "claude-😀": "VEGA", "агент-7": "VEGA", "seat_1": "ADA"}
        lines = "".join(f'"{writer}" = "{slot}"\n' for writer, slot in seats.items())
        config.write_text("[identities]\n" + lines)
        partly = operator("migrate", path, "--telemetry", "admit")
        assert partly.code == 7
        assert {o["reason"].split(":")[0] for o in partly.json["odd"]} == {"no-credential"}
        assert partly.json["archives"]["refused"] == 2
        config.write_text("[identities]\n" + lines + '"neo-gemini-lin" = "ADA"\n"neo-gpt-grace" = "VEGA"\n')
        done = operator("migrate", path, "--telemetry", "admit")
        assert done.code == 0, done.out
        assert done.json["custodians"] == (["ada", "vega"] if operator.shape == "final" else [])
        owners = Counter(
            (n["properties"]["originWriter"]["agentId"], n["properties"]["userId"])
            for n in graph_rows(core, "nl-transaction-archive")
        )
        assert all(
            {"ADA": "ada", "VEGA": "vega"}[(seats | {"neo-gemini-lin": "ADA", "neo-gpt-grace": "VEGA"})[w]] == c
            for w, c in owners
        )
        assert operator("verify", path).code == 0
        assert operator("cut", path, "--", "true").code == 0
        del operator.environ["VEGA"]
        missing = operator("verify", path)
        assert missing.code == 6
        assert "VEGA" in missing.err
        operator.environ["VEGA"] = "token-ada"
        wrong = operator("verify", path)
        # A difference to look at, never an absence; an older server answers null to both, and that proves nothing.
        assert wrong.code == (8 if core.shape == "final" else 7)


def test_a_verification_that_found_a_difference_forbids_the_cut(checkout, tmp_path, serve):
    with serve(tmp_path / "own", tokens={"neo-operator": "t-2"}) as core:
        own = Operator(tmp_path, core.url, "t-2", core.shape)
        path = checkout("closed")
        assert migrate(own, path).code == 0
        core.stop()
        with sqlite3.connect(core.db) as graph:
            graph.execute(
                "UPDATE Nodes SET data = json_set(data, '$.properties.appSessionId', 'another') WHERE id = "
                "(SELECT min(id) FROM Nodes WHERE id LIKE 'nl-transaction-archive:%')"
            )
        graph.close()
        core.restart()
        verified = own("verify", path)
        assert verified.code == 8
        assert verified.json["differences"][0]["what"] == 'differs at $["appSessionId"]'
        cut = own("cut", path, "--", "true")
        assert cut.code == 3
        assert "proved nothing" in cut.err

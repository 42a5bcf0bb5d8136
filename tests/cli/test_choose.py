"""One archive id with two contents: refused, or sent as the operator chose; the other row is accounted for."""

import json
import sqlite3
from pathlib import Path

import pytest

STORE = ".neo-ai-data/sqlite/memory-core-graph.sqlite"
HOW = ("--telemetry", "admit", "--owner", "neo-operator")


class Two:
    """Two checkouts with equal stores, but for the name of one archive."""

    def __init__(self, operator, one: Path, other: Path) -> None:
        self.paths = (one, other)
        with sqlite3.connect(other / STORE) as store:
            self.key = store.execute("SELECT archive_id FROM nl_transaction_archive WHERE rowid = 3").fetchone()[0]
            self.unique = store.execute("SELECT archive_id FROM nl_transaction_archive WHERE rowid = 4").fetchone()[0]
            store.execute("UPDATE nl_transaction_archive SET name = 'another' WHERE rowid = 3")
        store.close()
        measured = operator("measure", *self.paths).json
        ids = {Path(s["path"]).parents[2].name: s["id"] for s in measured["stores"]}
        self.ids = (ids[one.name], ids[other.name])


@pytest.fixture
def two(operator, checkout) -> Two:
    return Two(operator, checkout("closed"), checkout("copy", "closed"))


def name_in(core, archive_id: str) -> str:
    graph = sqlite3.connect(f"file:{core.db}?mode=ro", uri=True)
    (data,) = graph.execute("SELECT data FROM Nodes WHERE id = ?", (f"nl-transaction-archive:{archive_id}",)).fetchone()
    graph.close()
    return json.loads(data)["properties"]["name"]


@pytest.mark.parametrize(("chosen", "spelled"), [(0, "id"), (1, "path")])
def test_the_chosen_one_is_sent_and_the_other_is_accounted_for(operator, two, core, tmp_path, chosen, spelled):
    blocked = operator("plan", *two.paths, *HOW)
    assert blocked.code == 3
    assert f"--choose {two.key}=STORE" in blocked.out
    link = tmp_path / "link"
    link.symlink_to(two.paths[chosen], target_is_directory=True)
    word = {"id": two.ids[chosen], "path": link / STORE}[spelled]
    choose = ("--choose", f"{two.key}={word}")
    plan = operator("plan", *two.paths, *HOW, *choose).json
    (choice,) = plan["choices"]
    assert (choice["key"], choice["store"]) == (two.key, two.ids[chosen])
    assert [left["store"] for left in choice["left"]] == [two.ids[1 - chosen]]
    assert {x["kind"]: x["count"] for x in plan["losses"]}["not_chosen"] == 1
    done = operator("migrate", *two.paths, *HOW, *choose)
    assert done.code == 0, done.err
    counted = {name: count for name, count in done.json["archives"].items() if count}
    assert counted == {"rows": 13, "confirmed": 12, "excluded": 1}
    receipt = json.loads(Path(done.json["receipt"]).read_text())
    assert receipt["plan"]["choices"] == plan["choices"]
    assert {x["kind"] for x in receipt["losses"]} >= {"not_chosen"}
    (new,) = [e["new"] for e in receipt["id_map"] if e["old"] == two.key]
    assert (name_in(core, new) == "another") is (chosen == 1)
    verified = operator("verify", *two.paths)
    assert (verified.code, verified.json["expected"], verified.json["excluded"]) == (0, 12, 1)
    assert operator("measure", *two.paths).json["totals"]["unaccounted"] == 0
    again = operator("migrate", *two.paths, *HOW, *choose).json
    assert (again["exit_code"], again["sent"]) == (0, 0)
    assert operator("cut", *two.paths, "--", "true").code == 0


def test_a_plan_carries_its_choice(operator, two, tmp_path):
    plan = tmp_path / "plan.json"
    digests = set()
    for store in two.ids:
        made = operator("plan", *two.paths, *HOW, "--choose", f"{two.key}={store}", "--out", plan)
        assert made.code == 0, made.err
        digests.add(made.json["digest"])
    assert len(digests) == 2
    shown = operator(
        "plan", *two.paths, *HOW, "--choose", f"{two.key}={two.ids[1]}", "--format", "markdown", json=False
    )
    assert two.key in shown.out
    against = operator("migrate", *two.paths, "--plan", plan, "--choose", f"{two.key}={two.ids[0]}")
    assert against.code == 2
    assert "--choose contradicts the plan" in against.err
    assert not operator.custody.exists()
    done = operator("migrate", *two.paths, "--plan", plan)
    assert done.code == 0, done.err
    receipt = json.loads(Path(done.json["receipt"]).read_text())
    assert [choice["store"] for choice in receipt["plan"]["choices"]] == [two.ids[1]]


def test_a_choice_that_cannot_be_made_is_refused_by_name(operator, two):
    for word, code, says in (
        (f"{two.unique}={two.ids[0]}", 3, "there is nothing to choose"),
        (f"no-such-id={two.ids[0]}", 3, "holds archive no-such-id 0 times"),
        (f"~null:x={two.ids[0]}", 3, "0 times"),
        (f"{two.key}=nowhere", 2, "names no store of this run"),
        (f"{two.key}=", 2, "takes ARCHIVE=STORE"),
        (two.key, 2, "takes ARCHIVE=STORE"),
    ):
        done = operator("plan", *two.paths, *HOW, "--choose", word)
        assert done.code == code, word
        assert says in done.err
    done = operator("migrate", *two.paths, *HOW, "--choose", f"{two.unique}={two.ids[0]}")
    assert done.code == 3
    assert not operator.custody.exists()


def test_two_choices_for_one_archive_and_a_prefix_of_two_stores_are_refused(operator, two):
    both = [part for store in two.ids for part in ("--choose", f"{two.key}={store}")]
    assert "names two stores" in operator("plan", *two.paths, *HOW, *both).err
    common = two.ids[0][:2]
    assert two.ids[1].startswith(common)
    done = operator("plan", *two.paths, *HOW, "--choose", f"{two.key}={common}")
    assert done.code == 2
    assert "several stores" in done.err


def test_another_choice_after_one_was_sent_sends_no_second_archive(operator, two, core):
    assert operator("migrate", *two.paths, *HOW, "--choose", f"{two.key}={two.ids[0]}").code == 0
    done = operator("migrate", *two.paths, *HOW, "--choose", f"{two.key}={two.ids[1]}")
    assert done.code == 8, "the row that is chosen now is not the one that MC holds"
    assert done.json["sent"] == 0
    assert "was sent" in done.json["odd"][0]["reason"]

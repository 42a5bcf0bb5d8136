"""Rows and columns that nobody expected: each is named, and accounted for by itself."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nl_cutover.contract.rows import ACTIONS, ARCHIVES
from nl_cutover.testing import plant_store
from tests.conftest import Operator

STORE = Path(".neo-ai-data/sqlite/memory-core-graph.sqlite")


def execute(checkout: Path, *statements: str) -> None:
    with closing(sqlite3.connect(checkout / STORE)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def checkout(tmp_path) -> Path:
    plant_store(tmp_path / "neo" / STORE, archives=2, actions=3, seed=4711)
    return tmp_path / "neo"


TWINS = (
    f"INSERT INTO {ACTIONS} (id, agent_id, sequence_id, timestamp, tool, args) VALUES (NULL, 'a', 's', 1, 't', '{{}}')",
    f"INSERT INTO {ARCHIVES} (archive_id, source_tx_id, origin_writer, archived_at, ops) VALUES (NULL, 'x', '{{}}', 1, '[1]')",
)


def unaccounted(run: Operator, checkout: Path) -> int:
    return run("measure", checkout).json["totals"]["unaccounted"]


def test_twins_without_a_key_are_accounted_for_one_by_one(operator, checkout):
    execute(checkout, *TWINS, *TWINS)
    plan = operator("plan", checkout, "--telemetry", "admit").json
    assert (plan["archives"], plan["archives_to_send"], plan["duplicates"]) == (4, 2, 0)
    assert (plan["actions"], plan["actions_to_send"]) == (5, 3)
    assert len({row["key"] for row in plan["refused"]}) == len(plan["refused"]) == 4
    assert all("is NULL" in row["reason"] for row in plan["refused"])

    done = operator("migrate", checkout, "--telemetry", "admit", "--owner", "neo-operator")
    assert done.code == 7
    assert (done.json["archives"]["rows"], done.json["archives"]["refused"]) == (4, 2)
    assert (done.json["telemetry"]["rows"], done.json["telemetry"]["refused"]) == (5, 2)
    assert unaccounted(operator, checkout) == 4

    for left, row in zip((3, 2, 1, 0), plan["refused"], strict=True):
        assert operator("settle", "--row", f"{row['key']}=exclude").code in (0, 7)
        assert unaccounted(operator, checkout) == left
    execute(checkout, *TWINS)
    assert unaccounted(operator, checkout) == 2, "a third of each, that nobody has seen"


def test_a_column_of_a_wider_schema_is_a_loss_as_soon_as_it_holds_something(tmp_path, checkout):
    run = Operator(tmp_path, None, None)
    plain = run("plan", checkout, "--telemetry", "admit").json
    for table in (ACTIONS, ARCHIVES):
        execute(checkout, f'ALTER TABLE {table} ADD COLUMN "Mood ü" TEXT', f"ALTER TABLE {table} ADD COLUMN empty")
    assert run("plan", checkout, "--telemetry", "admit").json["digest"] == plain["digest"]
    execute(
        checkout,
        f"UPDATE {ACTIONS} SET \"Mood ü\" = 'odd'",
        f"UPDATE {ARCHIVES} SET \"Mood ü\" = 'odd' WHERE rowid = 1",
    )
    wider = run("plan", checkout, "--telemetry", "admit").json
    new = [loss for loss in wider["losses"] if loss not in plain["losses"]]
    assert [(loss["kind"], loss["count"]) for loss in new] == [(f"{ACTIONS}.Mood ü", 3), (f"{ARCHIVES}.Mood ü", 1)]
    assert wider["digest"] != plain["digest"]
    left = run("plan", checkout, "--telemetry", "leave").json["losses"]
    assert [loss["kind"] for loss in left if "Mood" in loss["kind"]] == [f"{ARCHIVES}.Mood ü"], "no action is sent"


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_what_is_odd_about_a_table_is_shown_in_short_lines(tmp_path, checkout, form):
    execute(
        checkout,
        *TWINS,
        f"UPDATE {ACTIONS} SET id = x'00' WHERE rowid = 1",
        f"ALTER TABLE {ARCHIVES} ADD COLUMN mood",
    )
    out = Operator(tmp_path, None, None)("measure", checkout, "--format", form, json=False).out
    said = " ".join(out.split())
    assert f"{ACTIONS}: 1 row has a NULL key: it cannot be migrated" in said
    assert f"{ACTIONS}: 1 row has a key that is not text: it cannot be migrated" in said
    assert f"{ARCHIVES}: columns this tool does not know: mood" in said


def test_an_override_that_dangles_is_counted_as_what_blocks(tmp_path, checkout):
    (checkout / "own.sqlite").symlink_to("gone.sqlite")
    (checkout / ".env").write_text("NEO_MEMORY_DB_PATH=own.sqlite\n")
    done = Operator(tmp_path, None, None)("measure", checkout)
    assert done.code == 4
    assert done.json["checkouts"][0]["state"] == "unmeasurable"
    assert (done.json["totals"]["unmeasurable"], done.json["totals"]["actions"]) == (1, 3)


def test_a_store_that_cannot_be_read_is_counted_once_a_table_whoever_reaches_it(tmp_path, checkout):
    (checkout / STORE).write_bytes(b"no database at all" * 100)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".neo-ai-data").symlink_to(checkout / ".neo-ai-data")
    done = Operator(tmp_path, None, None)("measure", checkout, tmp_path / "other")
    assert done.json["totals"]["unmeasurable"] == 2

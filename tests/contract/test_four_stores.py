"""Every row of the stores that the recorder's own code wrote, against what the recorder itself says of it."""

import json
import shutil
import sqlite3
from collections import defaultdict
from pathlib import Path

import pytest

from nl_cutover.contract import javascript as js
from nl_cutover.contract.archives import SaveCall, carried_digest, compare, save_call
from nl_cutover.contract.rows import ACTIONS, ARCHIVES, COLUMNS, Row, Text
from nl_cutover.contract.telemetry import Action, project
from nl_cutover.verdicts import Confirmed, Refused

STORES = Path(__file__).parent.parent / "stores"
NAMES = ("live", "closed", "hostile", "oversized")


def rows_of(folder: Path, table: str) -> list[Row]:
    connection = sqlite3.connect(folder / "memory-core-graph.sqlite")
    connection.text_factory = Text
    try:
        return [Row(table, v) for v in connection.execute(f"SELECT {', '.join(COLUMNS[table])} FROM {table}")]
    finally:
        connection.close()


@pytest.fixture(scope="module", params=NAMES)
def store(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("copy") / request.param
    shutil.copytree(STORES / request.param, folder)
    return folder


def test_projection_equals_the_recorders_own(store):
    expected = {e["id"]: e for e in map(json.loads, (store / "expected_admits.jsonl").read_text().splitlines())}
    rows = rows_of(store, ACTIONS)
    assert len(rows) == len(expected) > 0
    tokens: dict[bytes | None, set[str]] = defaultdict(set)
    for row in rows:
        want = expected[row.key.decode()]
        action = project(row)
        assert isinstance(action, Action)
        got = json.loads(action.encode(want["expected"]["sequenceId"]))
        assert got == want["expected"]
        assert list(got) == list(want["expected"])
        tokens[action.sequence].add(want["expected"]["sequenceId"])
    assert all(len(group) == 1 for sequence, group in tokens.items() if sequence is not None)
    grouped = [t for sequence, group in tokens.items() for t in group]
    assert len(grouped) == len(set(grouped)), "no two groups share a token"


def test_no_secret_survives_the_projection(store):
    rows = rows_of(store, ACTIONS)
    inside = sum(b"SECRET-" in (row["args"] or b"") + (row["result"] or b"") for row in rows)
    assert inside > 0, "the control: there are secrets in the source"
    assert not any("SECRET-" in project(row).fields for row in rows)


def test_archives_travel_verbatim(store):
    readers = {r["archiveId"]: r for r in json.loads((store / "rows.json").read_text())["archives"]}
    for row in rows_of(store, ARCHIVES):
        call = save_call(row)
        if isinstance(call, Refused):
            assert "bytes" in call.reason
            continue
        assert row["ops"] in call.arguments
        assert row["origin_writer"] in call.arguments
        sent = js.parse(call.arguments.decode())
        reader = readers[row.key.decode()]
        assert sent["transaction"]["ops"] == reader["ops"]
        assert sent["transaction"]["originWriter"] == reader["originWriter"]
        assert sent["transaction"]["committedAt"] == reader["committedAt"]
        assert sent["transaction"]["txId"] == reader["sourceTxId"]
        assert sent["name"] == reader["name"]
        found = {k: reader[k] for k in ("name", "sourceTxId", "appSessionId", "originWriter", "committedAt", "ops")}
        assert isinstance(compare(row, found, b""), Confirmed)
        assert carried_digest(found, "new") == call.digest
        assert carried_digest(found | {"ops": [*found["ops"], 1]}, "new") != call.digest


def test_the_two_oversized_rows_are_named_with_their_sizes():
    refused = [c for r in rows_of(STORES / "oversized", ARCHIVES) if isinstance(c := save_call(r), Refused)]
    assert len(refused) == 2
    assert all("186," in r.reason and "102,400" in r.reason for r in refused)


def test_every_other_row_can_be_sent():
    kinds = [type(save_call(r)) for name in ("closed", "hostile") for r in rows_of(STORES / name, ARCHIVES)]
    assert kinds == [SaveCall] * 69

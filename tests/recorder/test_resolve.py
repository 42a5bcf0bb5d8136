"""Legacy ids: a replay that holds an id of before the cut finds its archive, through the receipts."""

import json
import os
import subprocess
import sys

import pytest
import rfc8785

from nl_cutover.custody.receipts import aliases, read
from nl_cutover.recorder import Archive, Found, Marked, connector
from tests.conftest import Operator


@pytest.fixture
def moved(operator, checkout):
    """A store that was migrated, and the receipt of it."""
    done = operator("migrate", checkout("closed"), "--telemetry", "leave", "--owner", "neo-operator")
    (receipt,) = (operator.custody / "receipts").glob("*-migrate.json")
    assert done.json["archives"]["confirmed"] == 12
    return receipt


def test_every_old_id_is_resolved_and_found(operator, moved, core):
    entries = read(moved)[1]["id_map"]
    assert len(entries) == 12
    done = operator("resolve", entries[0]["old"])
    assert (done.code, done.json["verdict"]) == (0, "resolved")
    (way,) = done.json["archives"]
    assert way["entry"] == entries[0]
    assert way["binding"].startswith("nothing here binds it")
    assert operator("resolve", entries[0]["new"]).json["archives"] == [way]
    archive = Archive(connector({"S": core.token}, url=core.url, slot="S"), aliases=aliases([read(moved)[1]]))
    for entry in entries:
        found = archive.get(entry["old"])
        assert isinstance(found, Found)
        assert found.archive_id == entry["new"]
    assert isinstance(archive.mark_replayed(entries[0]["old"]), Marked)


def test_a_receipt_may_be_named_instead(operator, moved):
    entry = read(moved)[1]["id_map"][0]
    copy = operator.folder / "copy.json"
    copy.write_bytes(moved.read_bytes())
    operator.custody = operator.folder / "elsewhere"
    assert operator("resolve", entry["old"]).code == 3
    done = operator("resolve", entry["old"], "--receipt", copy, json=False)
    assert done.code == 0
    assert entry["new"] in done.out


def test_what_no_receipt_knows_is_refused(operator, moved):
    done = operator("resolve", "nowhere")
    assert (done.code, done.json["exit_code"]) == (3, 3)
    assert "--receipt" in done.json["next_steps"][0]


@pytest.mark.parametrize(
    ("change", "code", "verdict"),
    [({"content_digest": "0" * 64, "new": "n2"}, 3, "ambiguous"), ({"confirmed": False}, 7, "not read back")],
)
def test_what_is_not_one_proved_archive_is_told(operator, moved, change, code, verdict):
    body = read(moved)[1]
    entry = body["id_map"][0]
    counts, total = body["outcome"]["archives"], body["outcome"]["marks"]
    if code == 3:
        body["id_map"] = [*body["id_map"], {**entry, **change}]
        for key in ("rows", "confirmed"):
            counts[key] += 1
        total["made"] += entry["marks_made"]
        total["wanted"] += entry["marks_wanted"]
    else:
        body["id_map"] = [{**entry, **change}, *body["id_map"][1:]]
        counts.update(confirmed=counts["confirmed"] - 1, pending=1)
        body["outcome"].update(verdict="partial", exit_code=7)
    path = operator.folder / "made.json"
    path.write_bytes(rfc8785.dumps(body))
    done = operator("resolve", entry["old"], "--receipt", path)
    assert (done.code, done.json["verdict"]) == (code, verdict)


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("marks_made", 9, 8),
        ("digest", "0" * 64, 8),
        ("digest", "torn", 4),
        ("marks_wanted", 9, 8),
        ("new", "forged", 0),
    ],
)
def test_a_forged_row_is_told_where_the_receipt_contradicts_itself(operator, moved, core, key, value, code):
    """A new id that was forged agrees with all the rest: only what binds the receipt, or Memory Core, can tell."""
    body = read(moved)[1]
    body["id_map"][0][key] = value
    path = operator.folder / "forged.json"
    path.write_bytes(rfc8785.dumps(body))
    assert operator("receipt", "verify", path).code == code
    asked = operator("resolve", body["id_map"][0]["old"], "--receipt", path, "--ask", "--url", core.url)
    assert asked.code == (code or 7)


def test_what_two_runs_saved_is_told_twice(operator, moved):
    """The papers of two runs prove a doubling; the newer one does not hide the older."""
    body = read(moved)[1]
    for entry in body["id_map"]:
        entry["new"] = f"again-{entry['new']}"
    body["run"] = "20300101T000000Z-bbbbbb"
    twin = operator.folder / "twin.json"
    twin.write_bytes(rfc8785.dumps(body))
    old = body["id_map"][0]["old"]
    done = operator("resolve", old, "--receipt", moved, "--receipt", twin)
    assert (done.code, done.json["verdict"], len(done.json["archives"])) == (3, "ambiguous", 2)
    alone = operator("resolve", old, "--receipt", twin, json=False)
    assert f"nl-cutover resolve {old} --receipt {twin} --ask" in " ".join(alone.out.split())


def test_one_archive_is_asked_for_without_store_and_ledger(operator, moved, core):
    """What somebody with the receipt and the token alone can prove of every row."""
    entries = read(moved)[1]["id_map"]
    copy = operator.folder / "copy.json"
    copy.write_bytes(moved.read_bytes())
    operator.custody = operator.folder / "elsewhere"
    for entry in entries:
        done = operator("resolve", entry["old"], "--receipt", copy, "--ask", "--url", core.url)
        assert (done.code, done.json["verdict"]) == (0, "equal"), done.out
    other = Operator(operator.folder, core.url, "token-of-another", core.shape)
    other.custody = operator.custody
    done = other("resolve", entries[0]["old"], "--receipt", copy, "--ask", "--url", core.url)
    assert (done.code, done.json["verdict"]) == (7, "not told")
    assert "it shows an archive to neo-operator alone" in done.json["answer"]
    body = read(moved)[1]
    body["id_map"][0]["carried_digest"] = "0" * 64
    copy.write_bytes(rfc8785.dumps(body))
    done = operator("resolve", entries[0]["old"], "--receipt", copy, "--ask", "--url", core.url, json=False)
    assert done.code == 8
    assert "carried digest" in done.out
    body["plane"]["plane_id"] = "another"
    copy.write_bytes(rfc8785.dumps(body))
    done = operator("resolve", entries[0]["old"], "--receipt", copy, "--ask", "--url", core.url)
    assert (done.code, "went to plane another" in done.err + done.out) == (3, True)


def test_a_changed_receipt_is_not_believed(operator, moved):
    moved.write_bytes(moved.read_bytes() + b" ")
    assert operator("resolve", "a").code == 4


def test_the_bridge_understands_old_ids(moved, core):
    entry = read(moved)[1]["id_map"][0]
    command = [sys.executable, "-m", "nl_cutover", "recorder", "bridge", "--url", core.url, "--receipt", str(moved)]
    opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    get = {"name": "get_nl_transaction", "arguments": {"archiveId": entry["old"]}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": get},
    ]
    environ = os.environ | {"NEO_MCP_REMOTE_TOKEN": core.token}
    with subprocess.Popen(command, env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bridge:
        bridge.stdin.write("".join(json.dumps(line) + "\n" for line in lines))
        bridge.stdin.flush()
        answers = [json.loads(bridge.stdout.readline()) for _ in range(2)]
        bridge.communicate(timeout=30)
    assert answers[1]["result"]["structuredContent"]["archiveId"] == entry["new"]
    assert bridge.returncode == 0

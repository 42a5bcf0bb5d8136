"""Legacy ids: a replay that holds an id of before the cut finds its archive, through the receipts."""

import json
import os
import subprocess
import sys

import pytest
import rfc8785

from nl_cutover.custody.receipts import aliases, read
from nl_cutover.recorder import Archive, Found, Marked, connector


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
    assert [a["new"] for a in done.json["archives"]] == [entries[0]["new"]]
    assert done.json["archives"][0]["custodian"] == "neo-operator"
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
    [({"content_digest": "other", "new": "n2"}, 3, "ambiguous"), ({"confirmed": False}, 7, "not read back")],
)
def test_what_is_not_one_proved_archive_is_told(operator, moved, change, code, verdict):
    body = read(moved)[1]
    entry = body["id_map"][0]
    body["id_map"] = [entry, {**entry, **change}]
    path = operator.folder / "made.json"
    path.write_bytes(rfc8785.dumps(body))
    done = operator("resolve", entry["old"], "--receipt", path)
    assert (done.code, done.json["verdict"]) == (code, verdict)


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

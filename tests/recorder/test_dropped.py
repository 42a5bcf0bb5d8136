"""Dropped by contract, field by field: not in the admitted row, not on the wire, not in the graph's file."""

import json

import pytest

from nl_cutover.ingress.endpoint import Endpoint, Token
from nl_cutover.ingress.session import Session
from nl_cutover.recorder import Telemetry
from tests.recorder.host import ENTRY, Keeping, adds_up, wire_actions

MARK = "sentinel-b2c4-"


@pytest.fixture
def traces(core, nodes):
    """`traces(text)`: where a text is to be found after a record that holds a sentinel in every field."""
    transport = Keeping()
    endpoint = Endpoint(core.url, Token(core.token))
    telemetry = Telemetry(lambda: Session(endpoint, transport=transport), enabled=True)
    entry = {
        **ENTRY,
        "id": MARK + "id",
        "agent_id": MARK + "agent",
        "session_id": MARK + "session",
        "sequence_id": MARK + "sequence",
        "tool": MARK + "tool_component",
        "args": json.dumps({"id": MARK + "target", "properties": {"text": MARK + "args"}, "note": MARK + "args"}),
        "result": json.dumps({"text": MARK + "result"}),
        "app_name": MARK + "app",
        "reward": 0.123456789012,
    }
    telemetry.record(entry)
    assert telemetry.flush(20)
    stats = telemetry.close()
    assert stats.admitted == 1
    assert adds_up(stats)
    rows = [row for row in nodes("nl-action-telemetry") if row["tool"] == entry["tool"]]
    files = b"".join(p.read_bytes() for p in sorted(core.db.parent.glob(core.db.name + "*")))

    def look(text):
        wire = b"".join(transport.sent)
        return {
            "row": text in json.dumps(rows, ensure_ascii=False),
            "wire": text.encode() in wire,
            "file": text.encode() in files,
        }

    look.rows, look.wire = rows, wire_actions(transport.sent)
    return look


NOWHERE = {"row": False, "wire": False, "file": False}


@pytest.mark.parametrize(
    "text",
    [MARK + "agent", MARK + "result", "0.123456789012", MARK + "args", MARK + "id", MARK + "sequence"],
    ids=["agent_id", "result", "reward", "args", "id", "sequence_id"],
)
def test_dropped_by_contract(traces, text):
    assert traces(text) == NOWHERE


@pytest.mark.parametrize("text", [MARK + "tool_component", MARK + "session", MARK + "app", MARK + "target"])
def test_the_control_finds_what_is_admitted(traces, text):
    assert traces(text) == {"row": True, "wire": True, "file": True}


def test_the_names_of_the_dropped_fields_are_nowhere_either(traces):
    (action,) = traces.wire
    assert sorted(action) == sorted(
        ["sequenceId", "sessionId", "timestamp", "tool", "success", "durationMs", "appName", "targets"]
    )
    for row in traces.rows:
        assert not {"agentId", "agent_id", "result", "reward", "args", "sequence_id"} & set(row)

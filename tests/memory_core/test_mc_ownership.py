"""Archives belong to the bearer that saved them; telemetry is the team's; local-bearer mode knows no owner."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

from nl_cutover.testing import EmbeddedMemoryCore

from .mcp_caller import Connect

TOKEN = "11111111-1111-4111-8111-111111111111"


def nodes(core: EmbeddedMemoryCore, pattern: str) -> list[tuple[str | None, dict[str, Any]]]:
    with closing(sqlite3.connect(core.db)) as graph:
        rows = graph.execute("SELECT user_id, data FROM Nodes WHERE id LIKE ? ORDER BY rowid", (pattern,)).fetchall()
    return [(user, json.loads(data)) for user, data in rows]


def test_another_seats_archive_is_not_found(connect: Connect, seats: EmbeddedMemoryCore) -> None:
    vega, ada = (connect(seats, seats.tokens[name]) for name in ("vega", "ada"))
    archive_id = vega.save()
    assert ada.get(archive_id) == {"status": "not-found"}
    assert ada.mark(archive_id) == {"updated": False, "status": "not-found"}
    found = vega.get(archive_id)
    assert (found["custodian"], found["replayCount"]) == ("vega", 0)


def test_the_bearer_of_each_request_decides_not_the_session(connect: Connect, seats: EmbeddedMemoryCore) -> None:
    caller = connect(seats, seats.tokens["vega"])
    archive_id = caller.save()
    caller.http.headers["authorization"] = f"Bearer {seats.tokens['ada']}"
    assert caller.get(archive_id) == {"status": "not-found"}


def test_an_archive_node_is_stamped_with_its_owner(connect: Connect, seats: EmbeddedMemoryCore) -> None:
    archive_id = connect(seats).save(name="  one  ", appSessionId="app")
    ((user, node),) = nodes(seats, f"nl-transaction-archive:{archive_id}")
    properties = node["properties"]
    assert user == "vega"
    assert node["label"] == "nl-transaction-archive"
    assert list(node) == ["id", "label", "properties"]
    assert (properties["name"], properties["description"], properties["userId"]) == ("one", "", "vega")
    assert properties["updatedAt"] == properties["archivedAt"]
    assert "visibility" not in properties


def test_telemetry_is_projected_and_visible_to_the_team(connect: Connect, seats: EmbeddedMemoryCore) -> None:
    action = {
        "sequenceId": TOKEN.upper(),
        "sessionId": "s",
        "timestamp": 1.5,
        "tool": "only_here",
        "success": True,
        "targets": {"classNames": ["A"], "extra": 1},
        "args": {"secret": "never"},
    }
    assert connect(seats).call("admit_nl_actions", {"actions": [action]}) == {"admitted": 1, "refused": 0}
    ((user, node),) = [
        row for row in nodes(seats, "nl-action-telemetry:%") if row[1]["properties"]["name"] == "only_here"
    ]
    assert user == "vega"
    assert node["label"] == "nl-action-telemetry"
    kept = {key: value for key, value in node["properties"].items() if key != "updatedAt"}
    assert kept == {
        "name": "only_here",
        "description": "",
        "sequenceId": TOKEN.upper(),
        "sessionId": "s",
        "timestamp": 1.5,
        "tool": "only_here",
        "success": True,
        "durationMs": None,
        "appName": None,
        "targets": {"classNames": ["A"], "componentIds": []},
        "visibility": "team",
        "userId": "vega",
    }


def test_without_identities_everybody_sees_everything(connect: Connect, core: EmbeddedMemoryCore) -> None:
    archive_id = connect(core).save()
    found = connect(core).get(archive_id)
    assert (found["status"], found["custodian"]) == ("found", None)
    ((user, node),) = nodes(core, f"nl-transaction-archive:{archive_id}")
    assert user is None
    assert "userId" not in node["properties"]

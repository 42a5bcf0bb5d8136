"""What goes in comes out: every value that a JavaScript writer can send survives save and get."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from nl_cutover.testing import EmbeddedMemoryCore

from .mcp_caller import Connect

HOSTILE = Path(__file__).parent.parent / "stores" / "hostile" / "memory-core-graph.sqlite"
WRITER = '{"agentId":"a","sessionId":"s"}'

# JSON text as it is sent, and as JSON.stringify(JSON.parse(text)) gives it back.
VALUES = [
    (r'"\ud800"', r'"\ud800"'),
    (r'"\udc00\ud800"', r'"\udc00\ud800"'),
    (r'"\ud83d\ude00"', '"😀"'),
    (r'{"\udfff":1}', r'{"\udfff":1}'),
    ("1e21", "1e+21"),
    ("1e+21", "1e+21"),
    ("100000000000000000000", "100000000000000000000"),
    ("12345678901234567890", "12345678901234567000"),
    ("-0", "0"),
    ("-0.0", "0"),
    ("1.0", "1"),
    ("5e-324", "5e-324"),
    ("1e-7", "1e-7"),
    ("0.000001", "0.000001"),
    ("1.7976931348623157e+308", "1.7976931348623157e+308"),
    ("1e999", "null"),
    ("9007199254740993", "9007199254740992"),
    ("0.1", "0.1"),
    ('{"__proto__":{"a":1},"constructor":2}', '{"__proto__":{"a":1},"constructor":2}'),
    ('{"b":1,"10":2,"9":3,"a":4,"01":5}', '{"9":3,"10":2,"b":1,"a":4,"01":5}'),
    ('{"4294967295":1,"4294967294":2}', '{"4294967294":2,"4294967295":1}'),
    ('{"a":1,"b":2,"a":3}', '{"a":3,"b":2}'),
    ('"\u2028\u2029\u0085"', '"\u2028\u2029\u0085"'),
    (r'"\u0000\u001f\u007f\/\b\f\n\r\t"', '"\\u0000\\u001f\u007f/\\b\\f\\n\\r\\t"'),
    ('"\ufeff<script>&"', '"\ufeff<script>&"'),
    ('{"":[{},[],null,true,false]}', '{"":[{},[],null,true,false]}'),
    ("[" * 400 + "]" * 400, "[" * 400 + "]" * 400),
    ('{"a":' * 300 + "1" + "}" * 300, '{"a":' * 300 + "1" + "}" * 300),
]


def _save(arguments: str, connect: Connect, core: EmbeddedMemoryCore) -> tuple[str, str]:
    caller = connect(core)
    saved = caller.raw("save_nl_transaction", arguments)
    archive_id = json.loads(saved)["result"]["structuredContent"]["archiveId"]
    return saved, caller.raw("get_nl_transaction", json.dumps({"archiveId": archive_id}))


@pytest.mark.parametrize(("sent", "expected"), VALUES)
def test_a_value_survives(sent: str, expected: str, connect: Connect, core: EmbeddedMemoryCore) -> None:
    transaction = f'{{"status":"committed","txId":{sent},"originWriter":{WRITER},"ops":[{{"v":{sent}}}]}}'
    saved, got = _save(f'{{"transaction":{transaction}}}', connect, core)
    assert f'"sourceTxId":{expected},"archivedAt"' in saved
    assert f'"ops":[{{"v":{expected}}}],"replayCount":0' in got


def test_the_text_is_the_pretty_form_of_the_structured_content(connect: Connect, core: EmbeddedMemoryCore) -> None:
    ops = '[{"v":{"2":[],"1":{},"x":[1,{"y":"\\ud800"}]}}]'
    transaction = f'{{"status":"committed","originWriter":{WRITER},"ops":{ops}}}'
    _, got = _save(f'{{"transaction":{transaction}}}', connect, core)
    text = json.loads(got)["result"]["content"][0]["text"]
    assert (
        '  "ops": [\n    {\n      "v": {\n        "1": {},\n        "2": [],\n        "x": [\n          1,\n'
        '          {\n            "y": "\\ud800"\n          }\n        ]\n      }\n    }\n  ],\n' in text
    )


def test_beyond_the_depth_that_can_be_walked_nothing_is_stored(connect: Connect, core: EmbeddedMemoryCore) -> None:
    deep = "[" * 20_000 + "]" * 20_000
    transaction = f'{{"status":"committed","originWriter":{WRITER},"ops":[{deep}]}}'
    params = f'{{"name":"save_nl_transaction","arguments":{{"transaction":{transaction}}}}}'
    body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'
    answer = connect(core).post(body)
    assert answer.status_code == 400
    assert "Maximum call stack size exceeded" in answer.text


def _hostile_rows() -> list[sqlite3.Row]:
    store = sqlite3.connect(f"file:{HOSTILE}?mode=ro&immutable=1", uri=True)
    store.row_factory = sqlite3.Row
    rows = store.execute("SELECT * FROM nl_transaction_archive ORDER BY archive_id").fetchall()
    store.close()
    return rows


def test_every_archive_of_the_hostile_store_survives(connect: Connect, core: EmbeddedMemoryCore) -> None:
    caller = connect(core)
    rows = _hostile_rows()
    assert len(rows) == 57
    for row in rows:
        parts = {key: json.dumps(row[key]) for key in ("name", "app_session_id", "source_tx_id", "committed_at")}
        transaction = (
            f'{{"txId":{parts["source_tx_id"]},"status":"committed","committedAt":{parts["committed_at"]},'
            f'"originWriter":{row["origin_writer"]},"ops":{row["ops"]}}}'
        )
        arguments = f'{{"transaction":{transaction},"appSessionId":{parts["app_session_id"]},"name":{parts["name"]}}}'
        saved = json.loads(caller.raw("save_nl_transaction", arguments))["result"]["structuredContent"]
        assert saved["saved"] is True
        got = caller.raw("get_nl_transaction", json.dumps({"archiveId": saved["archiveId"]}))
        # The recorder wrote both with JSON.stringify, so they come back byte for byte.
        assert f'"ops":{row["ops"]},"replayCount":0' in got, row["archive_id"]
        assert f'"originWriter":{row["origin_writer"]},"custodian"' in got, row["archive_id"]
        found = json.loads(got)["result"]["structuredContent"]
        assert found["name"] == row["name"]
        assert found["sourceTxId"] == row["source_tx_id"]
        assert found["appSessionId"] == row["app_session_id"]
        assert found["committedAt"] == row["committed_at"]

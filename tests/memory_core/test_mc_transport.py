"""HTTP and JSON-RPC beside the conformance cases."""

from __future__ import annotations

import json
import socket
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from nl_cutover.errors import UnreachableError
from nl_cutover.testing import EmbeddedMemoryCore, embedded_memory_core, plant_store

from .mcp_caller import OPENING, Connect

PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}'


def test_headers_of_an_answer(connect: Connect, core: EmbeddedMemoryCore) -> None:
    answer = connect(core).post(PING)
    assert answer.text == 'event: message\ndata: {"result":{},"jsonrpc":"2.0","id":1}\n\n'
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["keep-alive"] == "timeout=5"
    assert "server" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("request_id", ["0", "-7", '"text \\ud800"', '"é"', "9007199254740991"])
def test_a_request_id_comes_back_as_it_was(connect: Connect, core: EmbeddedMemoryCore, request_id: str) -> None:
    answer = connect(core).post(f'{{"jsonrpc":"2.0","id":{request_id},"method":"ping"}}')
    assert answer.text.endswith(f'"id":{request_id}}}\n\n')


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ("[1]", 400, -32700),
        ("{}", 400, -32700),
        ("", 400, -32700),
        ('{"jsonrpc":"1.0","id":1,"method":"ping"}', 400, -32700),
        ('{"jsonrpc":"2.0","id":true,"method":"ping"}', 400, -32700),
        ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', 400, -32700),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', 400, -32700),
        ("5", 400, None),
        ("null", 400, None),
        ('{"a":NaN}', 400, None),
    ],
)
def test_what_is_no_message_is_refused(
    connect: Connect, core: EmbeddedMemoryCore, body: str, status: int, code: int | None
) -> None:
    answer = connect(core).post(body)
    assert answer.status_code == status
    if code is None:
        assert answer.headers["content-type"].startswith("text/html")
    else:
        assert answer.json()["error"]["code"] == code


@pytest.mark.parametrize("params", ["null", "[]", '{"name":7}', '{"name":"healthcheck","arguments":null}', "{}"])
def test_a_malformed_call_is_an_error_and_the_session_goes_on(
    connect: Connect, core: EmbeddedMemoryCore, params: str
) -> None:
    caller = connect(core)
    answer = caller.post(f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}')
    assert answer.status_code == 400 or '"error":{"code":-32603' in answer.text
    assert caller.post(PING).status_code == 200


def test_notifications_and_answers_are_accepted_without_a_word(connect: Connect, core: EmbeddedMemoryCore) -> None:
    caller = connect(core)
    for body in (
        '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
        '{"jsonrpc":"2.0","method":"notifications/never-heard-of"}',
        '{"jsonrpc":"2.0","id":5,"result":{}}',
        '[{"jsonrpc":"2.0","method":"notifications/initialized"}]',
    ):
        answer = caller.post(body)
        assert (answer.status_code, answer.content) == (202, b""), body


def test_a_tool_name_may_be_any_string(connect: Connect, core: EmbeddedMemoryCore) -> None:
    data = connect(core).raw("\\ud800", "{}")
    assert "not found or not implemented" in json.loads(data)["result"]["content"][0]["text"]


def test_equal_ids_in_flight_do_not_meet(connect: Connect, core: EmbeddedMemoryCore) -> None:
    caller = connect(core)
    ids = [caller.save(name=f"n{number}") for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(caller.get, ids * 5))
    assert [archive["archiveId"] for archive in found] == ids * 5


def test_a_body_that_comes_in_pieces_is_measured_as_one(connect: Connect, core: EmbeddedMemoryCore) -> None:
    caller = connect(core)
    pieces = [b"x" * 1024] * 200
    answer = caller.http.post(core.url, content=iter(pieces))
    assert answer.status_code == 413
    assert caller.post(PING).status_code == 200


def test_an_open_stream_does_not_keep_the_server_from_ending(tmp_path: Path, connect: Connect) -> None:
    with embedded_memory_core(tmp_path, tokens="t") as core:
        caller = connect(core)
        stream = {"accept": "text/event-stream"}
        with caller.http.stream("GET", core.url, headers=stream) as answer:
            assert answer.status_code == 200
            assert answer.headers["mcp-session-id"] == caller.http.headers["mcp-session-id"]
            core.stop()
        assert core.process.returncode == 0


def test_host_names_are_compared_without_port_and_case(tmp_path: Path, core: EmbeddedMemoryCore) -> None:
    opening = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": OPENING})
    headers = {"authorization": f"Bearer {core.token}", "content-type": "application/json"}
    headers["accept"] = "application/json, text/event-stream"
    for host, status in (("LOCALHOST:1", 200), ("[::1]:99", 200), ("127.0.0.1", 200), ("127.0.0.1.evil", 403)):
        answer = httpx.post(core.url, content=opening, headers=headers | {"host": host}, trust_env=False)
        assert answer.status_code == status, host


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UnreachableError, match=f"cannot listen on 127.0.0.1:{port}"):
            EmbeddedMemoryCore(tmp_path, "t", "plane", port, 5_000)


def test_a_restart_keeps_port_and_data_and_loses_sessions(tmp_path: Path, connect: Connect) -> None:
    with embedded_memory_core(tmp_path, tokens={"vega": "one"}, plane_id="scratch") as core:
        caller = connect(core)
        archive_id = caller.save()
        port = urlsplit(core.url).port
        core.restart()
        assert urlsplit(core.url).port == port
        assert caller.post(PING).status_code == 404
        caller.open()
        assert caller.get(archive_id)["custodian"] == "vega"
        plane = caller.call("healthcheck", {})["plane"]
        assert plane == {"id": "scratch", "dataRoot": str(tmp_path)}


def test_planted_stores_are_equal_for_equal_seeds(tmp_path: Path) -> None:
    def rows(path: Path) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(path)) as store:
            return [
                row
                for table in ("nl_transaction_archive", "nl_action_log")
                for row in store.execute(f"SELECT * FROM {table}")
            ]

    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        plant_store(tmp_path / name, archives=30, actions=50, seed=seed)
    assert rows(tmp_path / "a") == rows(tmp_path / "b") != rows(tmp_path / "c")
    assert len(rows(tmp_path / "a")) == 80
    writer = plant_store(tmp_path / "live", archives=3, actions=3, close=False)
    assert (tmp_path / "live-wal").stat().st_size > 0
    assert len(rows(tmp_path / "live")) == 6
    writer.close()

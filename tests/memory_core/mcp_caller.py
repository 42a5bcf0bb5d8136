"""An MCP session over plain httpx that hides nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx

OPENING = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Caller:
    """One MCP session over plain httpx; bodies are written by hand where it matters."""

    def __init__(self, url: str, token: str) -> None:
        headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
        headers["content-type"] = "application/json"
        self.url = url
        self.http = httpx.Client(trust_env=False, headers=headers, timeout=60)
        self.open()

    def open(self) -> None:
        self.http.headers.pop("mcp-session-id", None)
        answer = self.post(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": OPENING}))
        assert answer.status_code == 200, answer.text
        self.http.headers["mcp-session-id"] = answer.headers["mcp-session-id"]

    def post(self, body: str | bytes, **headers: str) -> httpx.Response:
        return self.http.post(self.url, content=body, headers=headers)

    def raw(self, tool: str, arguments: str) -> str:
        """The `data` text of the answer to a tools/call whose arguments are JSON text."""
        body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}'
        answer = self.post(body.encode())
        assert answer.status_code == 200, answer.text
        assert answer.text.startswith("event: message\ndata: ")
        assert answer.text.endswith("\n\n")
        return answer.text.removeprefix("event: message\ndata: ").removesuffix("\n\n")

    def call(self, tool: str, arguments: Any) -> Any:
        """`structuredContent`, or the text of an error."""
        result = json.loads(self.raw(tool, json.dumps(arguments)))["result"]
        return result["content"][0]["text"] if result["isError"] else result["structuredContent"]

    def save(self, **arguments: Any) -> str:
        transaction = {
            "txId": "tx:1",
            "status": "committed",
            "originWriter": {"agentId": "a", "sessionId": "s"},
            "ops": [{"label": "one"}],
        }
        answer = self.call("save_nl_transaction", {"transaction": transaction, **arguments})
        assert answer["saved"] is True, answer
        archive_id: str = answer["archiveId"]
        return archive_id

    def get(self, archive_id: str) -> Any:
        return self.call("get_nl_transaction", {"archiveId": archive_id})

    def mark(self, archive_id: str) -> Any:
        return self.call("mark_nl_transaction_replayed", {"archiveId": archive_id})


Connect = Callable[..., Caller]

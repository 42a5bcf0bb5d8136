"""The operations on the MCP Python SDK's own high-level server, everything in memory.

`python -m tests.exactly_once.peers.python_server PORT [json] [stateless]` prints its URL once it listens.
"""

import socket
import sys
import uuid
from collections import Counter
from typing import Annotated, Any

import uvicorn
from mcp.server import MCPServer
from pydantic import WithJsonSchema

FIELDS = ("sequenceId", "sessionId", "timestamp", "tool", "success", "durationMs", "appName", "targets")
# Without this the SDK describes an action by a `$ref`; MC's own schema is written out.
Action = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "properties": {name: {} for name in FIELDS}})]

server = MCPServer("python-peer")
archives: dict[str, dict[str, Any]] = {}
executed: Counter[str] = Counter()


@server.tool()
def save_nl_transaction(
    transaction: dict[str, Any], appSessionId: str | None = None, name: str | None = None
) -> dict[str, Any]:
    executed["save"] += 1
    if not transaction.get("ops"):
        return {"saved": False, "reason": "invalid-transaction"}
    archive_id = str(uuid.uuid4())
    archives[archive_id] = {
        "archiveId": archive_id,
        "name": name,
        "sourceTxId": transaction["txId"],
        "appSessionId": appSessionId,
        "originWriter": transaction["originWriter"],
        "committedAt": transaction["committedAt"],
        "ops": transaction["ops"],
        "replayCount": 0,
    }
    return {"saved": True, "archiveId": archive_id}


@server.tool()
def get_nl_transaction(archiveId: str) -> dict[str, Any]:
    found = archives.get(archiveId)
    return {"status": "not-found"} if found is None else {"status": "found", **found}


@server.tool()
def mark_nl_transaction_replayed(archiveId: str) -> dict[str, Any]:
    executed["mark"] += 1
    if archiveId not in archives:
        return {"updated": False, "status": "not-found"}
    archives[archiveId]["replayCount"] += 1
    return {"updated": True, "replayCount": archives[archiveId]["replayCount"]}


@server.tool()
def admit_nl_actions(actions: list[Action]) -> dict[str, Any]:
    executed["admit"] += 1
    executed["actions"] += len(actions)
    return {"admitted": len(actions), "refused": 0}


@server.tool()
def healthcheck() -> dict[str, Any]:
    return {"status": "healthy", "plane": {"id": "peer"}, "executed": dict(executed)}


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    app = server.streamable_http_app(json_response="json" in sys.argv, stateless_http="stateless" in sys.argv)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])

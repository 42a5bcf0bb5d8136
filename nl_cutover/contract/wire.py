"""What travels: names and limits of the four operations, and the JSON-RPC envelope. Source: neo#16202, PR#17740."""

from __future__ import annotations

SAVE = "save_nl_transaction"
GET = "get_nl_transaction"
MARK = "mark_nl_transaction_replayed"
ADMIT = "admit_nl_actions"
HEALTH = "healthcheck"
OPERATIONS = (SAVE, GET, MARK, ADMIT)

BODY_LIMIT = 102_400  # bytes of one HTTP body; the ingress answers 413 to one more
BATCH_LIMIT = 100  # actions of one admit call (`maxItems` of the newest servers)
RETENTION_MS = 14 * 24 * 60 * 60 * 1000  # `nlActionDigestLookbackMs`: older telemetry is deleted by MC

PLANE_ID = "neo-local-canonical"
DEFAULT_URL = "http://127.0.0.1:3102/mc/mcp"
DEFAULT_TOKEN_ENV = "NEO_MCP_REMOTE_TOKEN"
PROTOCOL_VERSION = "2025-06-18"


def envelope(request_id: int, tool: str, arguments: bytes) -> bytes:
    """The JSON-RPC body of one `tools/call`; `arguments` is JSON text and goes in verbatim."""
    head = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":' % (
        request_id,
        tool.encode("ascii"),
    )
    return head + arguments + b"}}"


# Room for the longest envelope: a request id of 19 digits.
ENVELOPE_BYTES = {tool: len(envelope(10**18, tool, b"")) for tool in OPERATIONS}

"""What a surface answers, in words that a later version must repeat: `python -m tests.surface.recorded NAME META...`.

Recorded before the exact profiles came: `unforced.json` is the surface that no client projects, `harness.json` the
one that a client asks for with `_meta.neoToolProjection: harness-embedded`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from nl_cutover.testing import embedded_memory_core

from ..memory_core.mcp_caller import Caller

FOLDER = Path(__file__).parent
NOWHERE = "00000000-0000-4000-8000-000000000000"
CALLS: list[tuple[str, Any]] = [
    ("save_nl_transaction", {}),
    ("save_nl_transaction", {"transaction": {}}),
    ("save_nl_transaction", {"transaction": {}, "name": 1, "agentId": "me"}),
    ("save_nl_transaction", {"transaction": {"status": "committed", "ops": [{}]}}),
    ("get_nl_transaction", {}),
    ("get_nl_transaction", {"archiveId": NOWHERE, "more": 1}),
    ("get_nl_transaction", {"archiveId": 1}),
    ("mark_nl_transaction_replayed", {"archiveId": NOWHERE}),
    ("admit_nl_actions", {"actions": []}),
    ("admit_nl_actions", {"actions": [{"sequenceId": "x"}]}),
    ("admit_nl_actions", {"actions": [{"success": 1}]}),
    ("get_mcp_tool_handbook", {}),
    ("memory-core__healthcheck", {}),
    ("HEALTHCHECK", {}),
]


def answers(caller: Caller, meta: Any = None) -> dict[str, Any]:
    """tools/list, and what each of CALLS comes to, as JSON-RPC results; `meta` None sends no `_meta`."""
    extra = {} if meta is None else {"_meta": meta}

    def ask(method: str, params: dict[str, Any]) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | extra}
        answer = caller.post(json.dumps(body))
        return json.loads(answer.text.removeprefix("event: message\ndata: "))

    calls = [[name, sent, ask("tools/call", {"name": name, "arguments": sent})["result"]] for name, sent in CALLS]
    healthy = ask("tools/call", {"name": "healthcheck", "arguments": {}})["result"]["isError"] is False
    return {"list": ask("tools/list", {})["result"]["tools"], "healthcheck": healthy, "calls": calls}


def recorded(name: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return said


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, embedded_memory_core(Path(folder), tokens="t") as core:
        mode = {"neoToolProjection": sys.argv[2]} if sys.argv[2:] else None
        said = answers(Caller(core.url, core.token), mode)
    (FOLDER / f"{sys.argv[1]}.json").write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n", "utf-8")

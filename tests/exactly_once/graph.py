"""What a Memory Core's graph holds, read beside the running server."""

import json
import sqlite3
from pathlib import Path


class Graph:
    """The nodes that came after this object was made, read-only."""

    def __init__(self, path: Path) -> None:
        self._uri = path.absolute().as_uri() + "?mode=ro"
        self._before = 0
        self._before = max((number for number, _ in self._nodes()), default=0)

    def archives(self) -> list[dict]:
        return [node["properties"] for _, node in self._nodes() if node["label"] == "nl-transaction-archive"]

    def actions(self) -> list[dict]:
        return [node["properties"] for _, node in self._nodes() if node["label"] == "nl-action-telemetry"]

    def _nodes(self) -> list[tuple[int, dict]]:
        connection = sqlite3.connect(self._uri, uri=True)
        try:
            rows = connection.execute("SELECT rowid, data FROM Nodes WHERE rowid > ?", (self._before,)).fetchall()
        finally:
            connection.close()
        return [(number, json.loads(data)) for number, data in rows]

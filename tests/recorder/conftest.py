import json
import sqlite3
from contextlib import closing

import pytest


@pytest.fixture
def nodes(core):
    """`nodes(label)`: the properties of the nodes of that label that stand in the graph."""

    def read(label):
        with closing(sqlite3.connect(core.db.as_uri() + "?mode=ro", uri=True)) as graph:
            rows = graph.execute("SELECT data FROM Nodes WHERE json_extract(data, '$.label') = ?", (label,))
            return [json.loads(data)["properties"] for (data,) in rows]

    return read


@pytest.fixture
def admitted(nodes):
    """`admitted(tool)`: the telemetry rows of a tool that MC keeps."""
    return lambda tool: [row for row in nodes("nl-action-telemetry") if row["tool"] == tool]

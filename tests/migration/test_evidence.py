"""Evidence from a graph file of any size, in memory that does not grow with what the archives hold."""

import json
import sqlite3
import subprocess
import sys

ARCHIVES, LIMIT_MIB = 100_000, 150
PEAK = """
import re, sys
from pathlib import Path
from nl_cutover.migration.evidence import GraphFile
count = sum(1 for _ in GraphFile(Path(sys.argv[1])).archives())
# Not ru_maxrss, which remembers what the process was before it was this one: a copy of pytest.
print(count, int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


def test_a_hundred_thousand_archives_are_read_in_flat_memory(tmp_path):
    graph = tmp_path / "graph.sqlite"
    connection = sqlite3.connect(graph)
    connection.execute("CREATE TABLE Nodes (id TEXT PRIMARY KEY, user_id TEXT, data TEXT)")
    ops = [{"kind": "set", "value": "x" * 1_000}]
    connection.executemany(
        "INSERT INTO Nodes VALUES (?, 'u', ?)",
        (
            (
                f"nl-transaction-archive:{n}",
                json.dumps(
                    {
                        "label": "nl-transaction-archive",
                        "properties": {"archiveId": f"archive-{n:030}", "sourceTxId": f"tx:{n:030}", "ops": ops},
                    }
                ),
            )
            for n in range(ARCHIVES)
        ),
    )
    connection.commit()
    connection.close()
    said = subprocess.run([sys.executable, "-c", PEAK, graph], capture_output=True, text=True, check=True, timeout=100)
    count, peak = map(int, said.stdout.split())
    assert count == ARCHIVES
    assert peak < LIMIT_MIB, f"{peak} MiB"

"""Runs inside the container, sent there as text: reads one line of orders from stdin, answers on stdout.

Standard library of Python 3.7 or newer; nothing of the project or of Neo is imported, because importing it opens and
stamps the graph. `inside.cjs` is its twin for images with Node.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from typing import Any

try:
    import sqlite3
except ImportError:
    sys.exit(127)  # as if there were no Python: Node may read it

ASKED = "SELECT CAST(data AS BLOB) FROM main.Nodes WHERE CASE WHEN json_valid(data) THEN json_extract(data, '$.label') END = ?"
COUNTS = "SELECT CASE WHEN json_valid(data) THEN json_extract(data, '$.label') END, count(*) FROM main.Nodes GROUP BY 1"

MARK = b"nl-cutover reads:\n"


def say(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def head() -> dict[str, Any]:
    reader = f"python {sys.version.split()[0]}, sqlite {sqlite3.sqlite_version}"
    return {"reader": reader, "now": time.time() * 1000}


def facts(graph: sqlite3.Connection, orders: dict[str, Any]) -> int:
    try:
        with open("/app/.neo-revision") as file:
            revision = file.read(200).strip()
    except OSError:
        revision = None
    say({"counts": counts(graph), "bytes": os.path.getsize(orders["db"]), "revision": revision})
    return 1


def nodes(graph: sqlite3.Connection, orders: dict[str, Any]) -> int:
    sql, parameters = ASKED, [orders["label"]]
    if orders.get("since"):
        sql += " AND json_extract(data, '$.properties.archivedAt') >= ?"
        parameters.append(orders["since"])
    if orders.get("tokens") is not None:
        sql += " AND json_extract(data, '$.properties.sequenceId') IN (SELECT value FROM json_each(?))"
        parameters.append(json.dumps(orders["tokens"]))
    number = 0
    for number, (data,) in enumerate(graph.execute(sql, parameters), 1):  # noqa: B007
        say(base64.b64encode(data).decode("ascii"))
    return number


def counts(graph: sqlite3.Connection) -> dict[str, int]:
    return {label or "": rows for label, rows in graph.execute(COUNTS)}


def backup(graph: sqlite3.Connection, orders: dict[str, Any]) -> None:
    folder, room = None, os.path.getsize(orders["db"]) + (16 << 20)
    for place in (tempfile.gettempdir(), os.path.dirname(orders["db"])):
        if os.access(place, os.W_OK) and shutil.disk_usage(place).free > room:
            folder = tempfile.mkdtemp(prefix="nl-cutover-", dir=place)
            break
    if folder is None:
        raise OSError(f"neither the temporary folder nor the graph's has {room} bytes free for a copy")
    digest, size = hashlib.sha256(), 0
    try:
        path = os.path.join(folder, "copy.sqlite")
        graph.execute("BEGIN")
        held = counts(graph)
        copy = sqlite3.connect(path)
        graph.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # whoever opens the copy leaves nothing beside it
        copy.close()
        with open(path, "rb") as file:
            for chunk in iter(lambda: file.read(1 << 20), b""):
                digest.update(chunk)
                size += len(chunk)
                sys.stdout.buffer.write(chunk)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.flush()
    json.dump(dict(head(), counts=held, sha256=digest.hexdigest(), bytes=size), sys.stderr)


def main() -> None:
    orders = json.loads(sys.stdin.readline())
    path = orders["db"].replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    graph = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None, timeout=5)
    graph.execute("PRAGMA query_only = 1")
    sys.stdout.buffer.write(MARK)
    sys.stdout.flush()
    if orders["op"] == "backup":
        backup(graph, orders)
        return
    say(head())
    say({"end": {"facts": facts, "nodes": nodes}[orders["op"]](graph, orders)})


if __name__ == "__main__":
    main()

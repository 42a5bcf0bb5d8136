"""Sessions and memories to ingest, made from a seed, and the graph they must become."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from nl_cutover.memory_core.graph import migrate_graph, open_migrated
from nl_cutover.memory_core.ingestion import Metadata, Outcome, Row, ingest, read_source
from nl_cutover.memory_core.integrity import canonical

OWNERS = (None, "@vega", "@ада")


def row(kind: str, row_id: str, metadata: dict[str, Any]) -> Row:
    return Row(kind, row_id, msgspec.convert(metadata, Metadata))


def session(session_id: str, **metadata: Any) -> Row:
    told = {"sessionId": session_id, "title": f"About {session_id}", **metadata}
    return row("session", f"summary_{session_id}", told)


def memory(chroma_id: str, session_id: str, **metadata: Any) -> Row:
    return row("memory", chroma_id, {"sessionId": session_id, **metadata})


def some(sessions: int, memories: int, seed: int = 0) -> list[Row]:
    """`memories` rows a session, in an order of no meaning."""
    rng = random.Random(seed)
    rows = []
    for number in range(sessions):
        owner = rng.choice(OWNERS)
        extra: dict[str, Any] = {} if owner is None else {"userId": owner}
        rows.append(session(f"s-{seed}-{number}", createdAt=f"2026-01-01T00:00:{number % 60:02}Z", **extra))
        for index in range(memories):
            rows.append(
                memory(f"m-{seed}-{number}-{index}", f"s-{seed}-{number}", createdAt=1_700_000_000_000 + index, **extra)
            )
    rng.shuffle(rows)
    return rows


def write_jsonl(path: Path, rows: Iterable[Row]) -> Path:
    """Absent metadata is left out, as Chroma knows no null."""
    told = ({"kind": r.kind, "id": r.id, "metadata": msgspec.structs.asdict(r.metadata)} for r in rows)
    kept = (one | {"metadata": {k: v for k, v in one["metadata"].items() if v is not None}} for one in told)
    lines = (json.dumps(one, ensure_ascii=False) for one in kept)
    path.write_text("".join(line + "\n" for line in lines), "utf-8")
    return path


def graph_of(path: Path, rows: Iterable[Row] = ()) -> Path:
    migrate_graph(path)
    run(path, rows)
    return path


def run(path: Path, rows: Iterable[Row]) -> list[Outcome]:
    with open_migrated(path) as connection:
        return list(ingest(connection, read_source(rows)))


def form(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as connection:
        return canonical(connection)


def query(path: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, values).fetchall()


def properties(path: Path, node_id: str) -> Any:
    [(data,)] = query(path, "SELECT data FROM Nodes WHERE id = ?", node_id)
    return json.loads(data)["properties"]

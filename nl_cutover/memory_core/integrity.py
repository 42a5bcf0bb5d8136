"""Whether a graph's Memory and Session nodes hang together. Read-only but for the orphan clean-up."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from typing import Any

import msgspec
from sqlite_utils import Database

from ..errors import UnmeasurableError
from .graph import graph_migrations
from .ingestion import MEMORY, ORIGINATES_IN, OWNED, SESSION
from .operations import ARCHIVE
from .retention import TELEMETRY

PROTECTED = (SESSION, MEMORY, ARCHIVE, TELEMETRY)  # labels whose nodes mean something without an edge

_SHOWN = 20  # ids of one kind of fault that a report names
_LABEL = "json_extract(n.data, '$.label')"
_FAULTS = {
    "a memory without its edge": (
        "SELECT n.id FROM Nodes n WHERE json_valid(n.data) AND {label} = '{memory}' AND NOT EXISTS "
        "(SELECT 1 FROM Edges e WHERE e.source = n.id AND e.type = '{edge}')"
    ),
    "a memory with several edges": (
        "SELECT n.id FROM Nodes n JOIN Edges e ON e.source = n.id AND e.type = '{edge}' "
        "WHERE json_valid(n.data) AND {label} = '{memory}' GROUP BY n.id HAVING count(*) > 1"
    ),
    "an edge without its ends": (
        "SELECT e.id FROM Edges e LEFT JOIN Nodes s ON s.id = e.source LEFT JOIN Nodes t ON t.id = e.target "
        "WHERE s.id IS NULL OR t.id IS NULL"
    ),
    "an edge between other nodes": (
        "SELECT e.id FROM Edges e JOIN Nodes s ON s.id = e.source JOIN Nodes n ON n.id = e.target "
        "WHERE e.type = '{edge}' AND json_valid(s.data) AND json_valid(n.data) "
        "AND (json_extract(s.data, '$.label') IS NOT '{memory}' OR {label} IS NOT '{session}' "
        "OR 'session:' || json_extract(s.data, '$.properties.sessionId') <> e.target)"
    ),
    "an edge of another owner": (
        "SELECT e.id FROM Edges e JOIN Nodes n ON n.id = e.source WHERE e.type = '{edge}' AND NOT {owned}"
    ),
    "a node that is not JSON": "SELECT n.id FROM Nodes n WHERE NOT json_valid(n.data)",
}
_ORPHANS = (
    f"SELECT n.id FROM Nodes n WHERE json_valid(n.data) AND {_LABEL} NOT IN ({', '.join('?' * len(PROTECTED))}) "
    "AND NOT EXISTS (SELECT 1 FROM Edges e WHERE e.source = n.id OR e.target = n.id)"
)


class Fault(msgspec.Struct, frozen=True):
    """One kind of fault: how many there are, and the first of them by id."""

    kind: str
    count: int
    ids: list[str]


class Integrity(msgspec.Struct, frozen=True):
    """`labels`, `edges`: counts; `orphans`: nodes that a clean-up would take; `digest`: of the canonical form."""

    labels: dict[str, int]
    edges: dict[str, int]
    faults: list[Fault]
    orphans: int
    digest: str


def check(connection: sqlite3.Connection) -> Integrity:
    """Examine a graph. Raises UnmeasurableError when the same code does not see the faults of a graph that has them."""
    if (seen := {fault.kind for fault in _control()}) != set(_FAULTS):
        blind = ", ".join(sorted(set(_FAULTS) - seen))
        raise UnmeasurableError(f"the check does not see planted faults: {blind}", "report this; trust no result")
    labels = f"SELECT coalesce({_LABEL}, ''), count(*) FROM Nodes n WHERE json_valid(n.data) GROUP BY 1 ORDER BY 1"
    with _snapshot(connection):
        return Integrity(
            labels=dict(connection.execute(labels).fetchall()),
            edges=dict(connection.execute("SELECT type, count(*) FROM Edges GROUP BY 1 ORDER BY 1").fetchall()),
            faults=_faults(connection),
            orphans=len(orphans(connection)),
            digest=sha256(canonical(connection)).hexdigest(),
        )


def canonical(connection: sqlite3.Connection) -> bytes:
    """Nodes and edges of memories and sessions, sorted by id, the keys of their JSON sorted too; one a line.

    What is not JSON stands as it is.
    """
    rows = connection.execute(
        "SELECT id, user_id, data, '', '' FROM Nodes WHERE (id >= 'memory:' AND id < 'memory;') "
        "OR (id >= 'session:' AND id < 'session;') UNION ALL "
        f"SELECT id, user_id, data, source, target FROM Edges WHERE type = '{ORIGINATES_IN}' ORDER BY id"
    )
    return b"\n".join(
        msgspec.json.encode([node, owner, _decoded(data), *ends], order="sorted") for node, owner, data, *ends in rows
    )


def orphans(connection: sqlite3.Connection) -> list[str]:
    """Ids of the nodes that no edge touches and whose label does not protect them."""
    return [row[0] for row in connection.execute(_ORPHANS, PROTECTED)]


def remove_orphans(connection: sqlite3.Connection) -> int:
    """Delete what `orphans` names, in one statement; returns how many."""
    return connection.execute(f"DELETE FROM Nodes WHERE id IN ({_ORPHANS})", PROTECTED).rowcount


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """One read transaction, so that the counts are of one moment."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _faults(connection: sqlite3.Connection) -> list[Fault]:
    words = {"label": _LABEL, "memory": MEMORY, "session": SESSION, "edge": ORIGINATES_IN, "owned": OWNED}
    faults = []
    for kind, query in _FAULTS.items():
        ids = sorted(row[0] for row in connection.execute(query.format(**words)))
        if ids:
            faults.append(Fault(kind, len(ids), ids[:_SHOWN]))
    return faults


def _control() -> list[Fault]:
    """The faults found in a graph in memory that has one of each kind."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        graph_migrations().apply(Database(connection, recursive_triggers=False))
        connection.execute("PRAGMA foreign_keys = OFF")
        node = "INSERT INTO Nodes (id, data) VALUES (?, ?)"
        edge = f"INSERT INTO Edges VALUES (?, 'somebody', ?, ?, '{ORIGINATES_IN}', '{{}}')"
        for name, label in (("m1", MEMORY), ("m2", MEMORY), ("s1", SESSION), ("s2", SESSION)):
            connection.execute(node, (name, json.dumps({"id": name, "label": label})))
        connection.execute(node, ("torn", "{"))
        ends = (("e1", "m2", "s1"), ("e2", "m2", "s2"), ("e3", "m2", "gone"), ("e4", "s1", "s2"))
        connection.executemany(edge, ends)
        return _faults(connection)

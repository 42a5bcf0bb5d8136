"""Sessions and memories as graph nodes: `session:<id>`, `memory:<chroma id>`, and ORIGINATES_IN between them.

Deterministic: what is written depends on the source rows alone, so any number of runs, at once or one killed after
another, end in one graph. A session is one transaction, the node before the edges to it. A row is written where its
payload hash differs, and its edge wherever it is lost; a node of another owner is left alone. Ids, labels, properties
and hashes are those of neo:ai/services/ingestion/MemorySessionIngestor.mjs (neo#10151, neo#10153).

It writes to the file, not through a served graph's node cache: no operation of the Memory Core reads these nodes.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from hashlib import sha256
from json.encoder import encode_basestring
from math import isfinite
from operator import attrgetter
from typing import Any

import msgspec

from .jsontext import parse, stringify

MEMORY = "MEMORY"
SESSION = "SESSION"
ORIGINATES_IN = "ORIGINATES_IN"

_NAME_LENGTH = 12  # of a memory's id, as its node's name
_EXACT = 2**53
_SCALARS = (str, int, float, bool)
_LONE = re.compile("[\ud800-\udfff]")

# Whether edge e has the owner of its memory n. One that the server wrote, under an id of its own, may have none.
OWNED = (
    f"(e.user_id IS n.user_id OR (e.user_id IS NULL AND e.id <> '{ORIGINATES_IN}:' || n.id) "
    "OR coalesce(e.user_id = CASE WHEN json_valid(n.data) THEN json_extract(n.data, '$.properties.userId') END, 0))"
)
_SETTLED = (
    "SELECT count(*), count(DISTINCT n.id), "
    """sum(e.target = ? AND instr(n.data, '"payloadHash":"' || wanted.value || '"') > 0 AND """
    f"{OWNED}) "
    "FROM json_each(?) AS wanted JOIN Nodes AS n ON n.id = wanted.key "
    f"LEFT JOIN Edges AS e ON e.source = n.id AND e.type = '{ORIGINATES_IN}'"
)
_EXISTING = (
    "SELECT n.id, n.user_id, n.data, e.id, e.target, e.user_id FROM json_each(?) AS wanted JOIN Nodes AS n ON n.id = wanted.value "
    f"LEFT JOIN Edges AS e ON e.source = n.id AND e.type = '{ORIGINATES_IN}'"
)
_UPSERT_NODE = (
    "INSERT INTO Nodes (id, user_id, data) VALUES (?, ?, ?) "
    "ON CONFLICT(id) DO UPDATE SET user_id = excluded.user_id, data = excluded.data"
)
_UPSERT_EDGE = (
    "INSERT INTO Edges (id, user_id, source, target, type, data) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT(id) DO UPDATE SET user_id = excluded.user_id, source = excluded.source, target = excluded.target, "
    "type = excluded.type, data = excluded.data"
)


class Metadata(msgspec.Struct, frozen=True, gc=False):
    """What is taken of a row's metadata, as it stands there; all else, such as the texts, is not even decoded."""

    sessionId: Any = None
    createdAt: Any = None
    userId: Any = None
    title: Any = None


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of a source. `kind`: `session` (a summary) or `memory`; `id`: its Chroma id."""

    kind: str
    id: str
    metadata: Metadata


class Unreadable(msgspec.Struct, frozen=True):
    """What stands in a source and is no row."""

    where: str
    why: str


class Node(msgspec.Struct, frozen=True, gc=False):
    """A row that can be written. `key`: the id of its node; `created_at`: any JSON scalar; `user_id`: its owner."""

    key: str
    chroma_id: str
    session_id: str
    label: str
    name: str
    created_at: str | float | int | bool | None
    user_id: str | None
    payload_hash: str

    @property
    def properties(self) -> dict[str, Any]:
        optional = {"createdAt": self.created_at, "userId": self.user_id}
        return {
            "name": self.name,
            "chromaId": self.chroma_id,
            "payloadHash": self.payload_hash,
            "sessionId": self.session_id,
            **{key: value for key, value in optional.items() if value is not None},
        }


class Source(msgspec.Struct, frozen=True):
    """A whole source, sorted: summaries by session id, memories by session id, and the rows that cannot be written."""

    sessions: dict[str, Node]
    memories: dict[str, list[Node]]
    errors: list[str]

    @property
    def unsummarized(self) -> list[str]:
        return sorted(self.memories.keys() - self.sessions.keys())


class Outcome(msgspec.Struct, frozen=True):
    """What became of one session, once it stands. Extraction may follow where `errors` is empty (neo#10460)."""

    session_id: str
    session_written: bool = False
    memories_written: int = 0
    memories_equal: int = 0
    edges_written: int = 0
    errors: tuple[str, ...] = ()


def read_source(rows: Iterable[Row | Unreadable]) -> Source:
    """Sort and check the rows. Twins of one id that differ are all refused: which of them is right is not known here."""
    seen: dict[str, Node | None] = {}
    errors: list[str] = []
    for row in rows:
        if isinstance(row, Unreadable):
            errors.append(f"[{row.where}] {row.why}")
            continue
        try:
            node = _node(row)
        except ValueError as failure:
            errors.append(f"[{row.id}] {failure}")
            continue
        twin = seen.setdefault(node.key, node)
        if twin is not node and twin is not None and twin != node:
            errors.append(f"[{row.id}] {node.key} stands in the source more than once, with different metadata")
            seen[node.key] = None
    sessions: dict[str, Node] = {}
    memories: dict[str, list[Node]] = {}
    for one in seen.values():
        if one is not None and one.label == SESSION:
            sessions[one.session_id] = one
        elif one is not None:
            memories.setdefault(one.session_id, []).append(one)
    for group in memories.values():
        group.sort(key=attrgetter("key"))
    # A summary whose twins differ is not "no summary yet": its memories wait until somebody has decided.
    disputed = {key[len("session:") :] for key, node in seen.items() if node is None and key.startswith("session:")}
    for session_id in disputed & memories.keys():
        errors += [f"[{node.chroma_id}] the summaries of its session differ" for node in memories.pop(session_id)]
    return Source(dict(sorted(sessions.items())), memories, sorted(errors))


def ingest(connection: sqlite3.Connection, source: Source) -> Iterator[Outcome]:
    """Write every summarized session with its memories, one after another; an outcome is yielded once it is committed.

    `connection` is in autocommit mode. A failure of the database is an error of that session, which is then unchanged.
    """
    for session_id, session in source.sessions.items():
        yield _one_session(connection, session, source.memories.get(session_id, []), backfill=False)


def backfill(connection: sqlite3.Connection, source: Source) -> Iterator[Outcome]:
    """Write what is absent and leave what stands. A session without a summary gets a minimal node (neo#10153)."""
    for session_id in sorted(source.sessions.keys() | source.memories.keys()):
        session = source.sessions.get(session_id) or _minimal(session_id)
        yield _one_session(connection, session, source.memories.get(session_id, []), backfill=True)


def _node(row: Row) -> Node:
    """Raises ValueError saying what cannot be written."""
    session_id, user_id, created_at = row.metadata.sessionId, row.metadata.userId, row.metadata.createdAt
    if type(session_id) is not str or not session_id or not row.id:
        raise ValueError("it has no id" if not row.id else "its metadata has no sessionId")
    if user_id is not None and type(user_id) is not str:
        raise ValueError("its userId is no name")
    if created_at is not None and type(created_at) not in _SCALARS:
        raise ValueError("its createdAt is no text and no number")
    if type(created_at) in (int, float) and not -_EXACT <= created_at <= _EXACT:
        created_at = float(created_at)
        if not isfinite(created_at):
            raise ValueError("its createdAt is no finite number")
    if row.kind == "memory":
        key, label, name = f"memory:{row.id}", MEMORY, row.id[:_NAME_LENGTH]
        title = ""
    elif row.kind == "session":
        title = row.metadata.title
        if title is not None and type(title) is not str:
            raise ValueError("its title is no text")
        key, label, name = f"session:{session_id}", SESSION, title or session_id
        title = f'"title":{_json(title)},'
    else:
        raise ValueError(f"neither a session nor a memory: {row.kind!r}")
    told = f"{key}{row.id}{session_id}{user_id}"
    if "\0" in told or (not told.isascii() and _LONE.search(told)):
        raise ValueError("an id holds what SQLite cannot store as text: NUL, or half a surrogate pair")
    payload = f'{{"createdAt":{_json(created_at)},"sessionId":{_json(session_id)},{title}"userId":{_json(user_id)}}}'
    if not payload.isascii():  # half a surrogate pair in a title, which JSON.stringify escapes
        payload = _LONE.sub(lambda match: f"\\u{ord(match.group()):04x}", payload)
    return Node(key, row.id, session_id, label, name, created_at, user_id, sha256(payload.encode()).hexdigest())


def _json(value: Any) -> str:
    """The JSON text of a scalar, an absent one as an empty text; as `stringify`, only sooner."""
    kind = type(value)
    if kind is str:
        return encode_basestring(value)
    if value is None:
        return '""'
    return str(value) if kind is int else stringify(value)


def _minimal(session_id: str) -> Node:
    return Node(f"session:{session_id}", "", session_id, SESSION, session_id, None, None, "")


class _Existing(msgspec.Struct, frozen=True):
    """A node that stands, and its ORIGINATES_IN edges as (id, target, owner)."""

    owner: str | None
    data: str
    edges: list[tuple[str, str, str | None]]


class _Work(msgspec.Struct):
    """What one session needs: nodes as (node, owner, properties), edges as (id, source, owner), ids of edges to delete."""

    nodes: list[tuple[Node, str | None, dict[str, Any]]] = []
    edges: list[tuple[str, str, str | None]] = []
    stale: list[tuple[str]] = []
    session_written: bool = False
    memories_written: int = 0
    memories_equal: int = 0
    errors: list[str] = []


def _one_session(connection: sqlite3.Connection, session: Node, memories: list[Node], *, backfill: bool) -> Outcome:
    try:
        if _settled(connection, session, memories):
            return Outcome(session.session_id, memories_equal=len(memories))
        connection.execute("BEGIN IMMEDIATE")
        try:
            work = _plan(connection, session, memories, backfill=backfill)
            _write(connection, session, work)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    except (sqlite3.Error, RecursionError) as failure:
        return Outcome(session.session_id, errors=(f"[{session.key}] {failure}",))
    return Outcome(
        session.session_id,
        work.session_written,
        work.memories_written,
        work.memories_equal,
        len(work.edges),
        tuple(work.errors),
    )


def _settled(connection: sqlite3.Connection, session: Node, memories: list[Node]) -> bool:
    """Whether all stands as it should: then nobody is locked out for it."""
    if not session.payload_hash:
        return False
    held = connection.execute("SELECT instr(data, ?) FROM Nodes WHERE id = ?", (_hash_text(session), session.key))
    if held.fetchall() in ([], [(0,)]):
        return False
    wanted = msgspec.json.encode({memory.key: memory.payload_hash for memory in memories})
    counts = connection.execute(_SETTLED, (session.key, wanted.decode())).fetchone()
    return not memories or counts == (len(memories),) * 3


def _hash_text(node: Node) -> str:
    """How an equal payload shows in a node's JSON; inside a text its quotes would be escaped."""
    return f'"payloadHash":"{node.payload_hash}"'


def _write(connection: sqlite3.Connection, session: Node, work: _Work) -> None:
    nodes = (
        (node.key, owner, stringify({"id": node.key, "label": node.label, "properties": properties}))
        for node, owner, properties in work.nodes
    )
    connection.executemany(_UPSERT_NODE, nodes)
    connection.executemany("DELETE FROM Edges WHERE id = ?", work.stale)
    connection.executemany(_UPSERT_EDGE, (_edge(*edge, session.key) for edge in work.edges))


def _edge(edge: str, memory: str, owner: str | None, session: str) -> tuple[str, str | None, str, str, str, str]:
    ends = {"source": memory, "target": session, "type": ORIGINATES_IN}
    return edge, owner, memory, session, ORIGINATES_IN, stringify({"id": edge, **ends, "properties": {"weight": 1}})


def _plan(connection: sqlite3.Connection, session: Node, memories: list[Node], *, backfill: bool) -> _Work:
    standing = _existing(connection, [session.key, *(memory.key for memory in memories)])
    work = _Work()
    before = standing.get(session.key)
    written = _written(session, before, work, backfill=backfill)
    if written is None:
        return work  # the session belongs to somebody else, or cannot be read: nothing can originate in it
    work.session_written = written
    for memory in memories:
        before = standing.get(memory.key)
        written = _written(memory, before, work, backfill=backfill)
        if written is not None:
            work.memories_written += written
            work.memories_equal += not written
            owner = work.nodes[-1][1] if written or before is None else before.owner or memory.user_id
            edges = before.edges if before else []
            _link(memory.key, owner, session.key, edges, work, moved=written or not backfill)
    return work


def _existing(connection: sqlite3.Connection, keys: list[str]) -> dict[str, _Existing]:
    found: dict[str, _Existing] = {}
    for key, owner, data, edge, *rest in connection.execute(_EXISTING, (stringify(keys),)):
        node = found.setdefault(key, _Existing(owner, data, []))
        if edge is not None:
            node.edges.append((edge, *rest))
    return found


def _written(node: Node, before: _Existing | None, work: _Work, *, backfill: bool) -> bool | None:
    """Whether the node is to be written, and `work` takes it; None where the error stands in the way that it takes."""
    old: dict[str, Any] = {}
    owner = node.user_id
    if before is not None:
        if node.payload_hash and _hash_text(node) in before.data:
            return False
        where = f"[{node.chroma_id or node.session_id}] the node {node.key}"
        try:
            old = parse(before.data)["properties"]
            known = before.owner or old.get("userId")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            work.errors.append(f"{where} that stands cannot be read")
            return None
        if known is not None and owner is not None and known != owner:
            work.errors.append(f"{where} belongs to another owner")
            return None
        if backfill:
            return False
        owner = known if owner is None else owner
    if node.payload_hash:
        kept = {key: value for key, value in old.items() if key not in ("minimal", "backfilled", "createdAt")}
        properties = {**kept, **node.properties, "backfilled" if backfill else "liveIngested": True}
    else:
        properties = {"name": node.name, "sessionId": node.session_id, "backfilled": True, "minimal": True}
    work.nodes.append((node, owner, properties))
    return True


def _link(
    memory: str, owner: str | None, session: str, edges: list[tuple[str, str, str | None]], work: _Work, *, moved: bool
) -> None:
    """Exactly one ORIGINATES_IN edge, to this session, under whatever id it stands that is not another memory's."""
    ours = f"{ORIGINATES_IN}:{memory}"
    foreign = {edge for edge, *_ in edges if edge != ours and edge.startswith(f"{ORIGINATES_IN}:")}
    right = sorted(edge for edge, target, _ in edges if target == session and edge not in foreign)
    strange = {edge for edge, _, of in edges if of != owner and (of is not None or edge == ours)}
    if (not right and (moved or not edges)) or (moved and right[0] in strange):
        right = right or [ours]
        work.edges.append((right[0], memory, owner))
    if moved:
        work.stale += [(edge,) for edge, *_ in edges if edge not in right[:1]]

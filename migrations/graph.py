"""The graph of the reference Memory Core: `sqlite-utils migrate GRAPH.sqlite migrations/graph.py` applies it too.

Tables, indices and triggers carry the names of the real graph (neo: ai/graph/storage/SQLite.mjs), so that a query
written against one reads the other.
"""

from __future__ import annotations

from sqlite_utils import Database, Migrations

migrations = Migrations("graph")

_TRIGGER = """
CREATE TRIGGER IF NOT EXISTS trg_{table}_{event} AFTER {event} ON {table} BEGIN
  INSERT INTO GraphLog (entity_id, entity_type) VALUES ({row}.id, '{kind}');
END
"""


@migrations()
def graph_version_1(db: Database) -> None:
    db.execute("CREATE TABLE IF NOT EXISTS Nodes (id TEXT PRIMARY KEY, user_id TEXT, data TEXT NOT NULL)")
    db.execute(
        "CREATE TABLE IF NOT EXISTS Edges (id TEXT PRIMARY KEY, user_id TEXT, source TEXT NOT NULL, "
        "target TEXT NOT NULL, type TEXT NOT NULL, data TEXT NOT NULL, "
        "FOREIGN KEY(source) REFERENCES Nodes(id) ON DELETE CASCADE, "
        "FOREIGN KEY(target) REFERENCES Nodes(id) ON DELETE CASCADE)"
    )
    db.execute(
        "CREATE TABLE IF NOT EXISTS GraphLog (log_id INTEGER PRIMARY KEY AUTOINCREMENT, entity_id TEXT NOT NULL, "
        "entity_type TEXT NOT NULL, event_id TEXT, event_payload TEXT)"
    )
    db.execute(
        "CREATE TABLE IF NOT EXISTS SchemaVersion (id TEXT PRIMARY KEY, version INTEGER, "
        "updated_at TEXT DEFAULT CURRENT_TIMESTAMP)"
    )
    db.execute("CREATE INDEX IF NOT EXISTS idx_edges_source ON Edges(source)")
    db.execute("CREATE INDEX IF NOT EXISTS idx_edges_target ON Edges(target)")
    db.execute(
        "CREATE UNIQUE INDEX IF NOT EXISTS idx_graph_log_event_id ON GraphLog(event_id) WHERE event_id IS NOT NULL"
    )
    for table in ("Nodes", "Edges"):
        for event, row in (("insert", "NEW"), ("update", "NEW"), ("delete", "OLD")):
            db.execute(_TRIGGER.format(table=table, kind=table.lower(), event=event, row=row))
    db.execute("INSERT OR IGNORE INTO SchemaVersion (id, version) VALUES ('graph', 1)")


@migrations()
def memory_and_session_version_1(db: Database) -> None:
    """Indices for nodes of the labels MEMORY and SESSION (neo#10151).

    `SchemaVersion` keeps `graph` at 1: a Memory Core refuses any other. The indices are partial by id, so that no
    other node's JSON is ever parsed for them.
    """
    for label, below in (("memory", "memory;"), ("session", "session;")):
        for column, key in (("session_id", "sessionId"), ("user_id", "userId")):
            db.execute(
                f"CREATE INDEX IF NOT EXISTS idx_nodes_{label}_{column} ON Nodes(json_extract(data, '$.properties.{key}')) "
                f"WHERE id >= '{label}:' AND id < '{below}'"
            )
    db.execute("INSERT OR IGNORE INTO SchemaVersion (id, version) VALUES ('memory-session', 1)")

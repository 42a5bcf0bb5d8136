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
    """Memory and Session nodes by owner, and a session's memories by their edges (neo#10151).

    A session's id is in its node's id, so the primary key finds it. No index is of an expression over the JSON: SQLite
    (3.40, for one) calls its JSON functions unsafe where a connection does not trust the schema, and then reads nothing of
    the file at all. `SchemaVersion` keeps `graph` at 1, because a Memory Core refuses any other.
    """
    for label in ("memory", "session"):
        db.execute(
            f"CREATE INDEX IF NOT EXISTS idx_nodes_{label}_user_id ON Nodes(user_id) "
            f"WHERE id >= '{label}:' AND id < '{label};'"
        )
    db.execute(
        "CREATE INDEX IF NOT EXISTS idx_edges_memory_session_id ON Edges(target, source) WHERE type = 'ORIGINATES_IN'"
    )
    db.execute("INSERT OR IGNORE INTO SchemaVersion (id, version) VALUES ('memory-session', 1)")

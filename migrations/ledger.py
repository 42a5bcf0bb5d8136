"""The ledger's schema, forward only. Applied by `nl_cutover.custody.ledger`."""

from sqlite_utils import Database, Migrations

migrations = Migrations("ledger")


@migrations()
def m001_journal_of_a_run(db: Database) -> None:
    db.execute(
        """
        CREATE TABLE run (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            id TEXT NOT NULL, created_at INTEGER NOT NULL, tool_version TEXT NOT NULL,
            url TEXT NOT NULL, plane_id TEXT, data_root TEXT, owner TEXT, plan_digest TEXT
        ) STRICT
        """
    )
    db.execute(
        """
        CREATE TABLE archives (
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL, content_digest TEXT NOT NULL, digest TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN
                ('pending', 'intended', 'delivered', 'confirmed', 'refused', 'unknown', 'differs', 'excluded')),
            reason TEXT NOT NULL DEFAULT '', refused_by TEXT NOT NULL DEFAULT '',
            source_tx_id TEXT, call_digest TEXT, identity TEXT NOT NULL DEFAULT '', host_facts TEXT NOT NULL DEFAULT '{}',
            archive_id TEXT, custodian TEXT, bytes_equal INTEGER,
            intended_at INTEGER, given_up_at INTEGER,
            marks_wanted INTEGER NOT NULL DEFAULT 0, marks_made INTEGER NOT NULL DEFAULT 0,
            marks_state TEXT NOT NULL DEFAULT 'idle' CHECK (marks_state IN ('idle', 'intended', 'unknown')),
            UNIQUE (key, content_digest)
        ) STRICT
        """
    )
    db.execute("CREATE INDEX archives_state ON archives (state, id)")
    db.execute("CREATE UNIQUE INDEX archives_archive_id ON archives (archive_id) WHERE archive_id IS NOT NULL")
    db.execute(
        """
        CREATE TABLE actions (
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL, digest TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN
                ('pending', 'intended', 'admitted', 'refused', 'left', 'discarded', 'unknown', 'excluded')),
            reason TEXT NOT NULL DEFAULT '', batch INTEGER, token TEXT, sent_digest TEXT,
            UNIQUE (key, digest)
        ) STRICT
        """
    )
    db.execute("CREATE INDEX actions_state ON actions (state, id)")
    db.execute("CREATE INDEX actions_batch ON actions (batch) WHERE batch IS NOT NULL")
    db.execute(
        """
        CREATE TABLE origins (
            row_table TEXT NOT NULL, row_id INTEGER NOT NULL, store TEXT NOT NULL, digest TEXT NOT NULL,
            PRIMARY KEY (row_table, row_id, store)
        ) STRICT, WITHOUT ROWID
        """
    )
    db.execute(
        """
        CREATE TABLE batches (
            id INTEGER PRIMARY KEY,
            state TEXT NOT NULL CHECK (state IN ('intended', 'admitted', 'not-sent', 'refused', 'mixed', 'unknown')),
            size INTEGER NOT NULL, admitted INTEGER NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '',
            proven INTEGER NOT NULL DEFAULT 0,
            intended_at INTEGER NOT NULL, given_up_at INTEGER
        ) STRICT
        """
    )
    db.execute(
        """
        CREATE TABLE tokens (
            store TEXT NOT NULL, name BLOB NOT NULL, token TEXT NOT NULL,
            PRIMARY KEY (store, name)
        ) STRICT, WITHOUT ROWID
        """
    )
    db.execute(
        """
        CREATE TABLE settlements (
            id INTEGER PRIMARY KEY,
            at INTEGER NOT NULL, row_table TEXT NOT NULL, key TEXT NOT NULL,
            decision TEXT NOT NULL, by TEXT NOT NULL, detail TEXT NOT NULL
        ) STRICT
        """
    )

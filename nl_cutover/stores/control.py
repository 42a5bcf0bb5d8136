"""The planted store of each invocation: a count of one that must come back as one, through the code that counts."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ..contract.rows import DDL, TABLES
from ..errors import UnmeasurableError
from .failures import name_of
from .holders import UNKNOWN
from .identity import Located, resolve
from .paths import shown
from .private import private_folder
from .reader import Limits, read_store
from .report import Control
from .tables import walk


def planted_control(limits: Limits) -> Control:
    """Plant one row in each table of a fresh store and measure it the way every other store is measured."""
    try:
        with private_folder() as folder:
            path = folder.resolve() / "control.sqlite"
            _plant(path)
            found = resolve(path)
            if not isinstance(found, Located):
                return Control(False, f"the planted control store is not a plain file: {found.reason}")
            tables, _ = read_store(
                found,
                UNKNOWN,
                lambda opened: [walk(opened.connection, name) for name in TABLES],
                limits=limits,
            )
    except (OSError, sqlite3.Error, UnmeasurableError) as error:
        why = name_of(error) if isinstance(error, sqlite3.Error) else str(error)
        return Control(False, f"the planted control store could not be measured ({shown(why)})")
    if [(table.rows, table.unaccounted) for table in tables] != [(1, 1)] * len(TABLES):
        return Control(False, "the planted control rows were not found: this reading cannot be trusted")
    return Control(True)


def _plant(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN")
        for name in TABLES:
            connection.execute(DDL[name])
        connection.execute(
            "INSERT INTO nl_action_log (id, agent_id, sequence_id, timestamp, tool, args) "
            "VALUES ('control', '', '', 0, '', '')"
        )
        connection.execute(
            "INSERT INTO nl_transaction_archive (archive_id, source_tx_id, origin_writer, archived_at, ops) "
            "VALUES ('control', '', '', 0, '')"
        )
        connection.execute("COMMIT")
    finally:
        connection.close()

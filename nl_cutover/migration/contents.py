"""Which contents stand under which key, on disk: memory stays flat, whatever the number of rows."""

from __future__ import annotations

import sqlite3


class Contents:
    """The contents that a walk over the stores has met."""

    def __init__(self) -> None:
        # "" is a temporary file of SQLite's own, without a name, of which a few pages stay in memory.
        self._connection = sqlite3.connect("", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("CREATE TABLE met (key TEXT, content TEXT, UNIQUE (key, content))")

    def __enter__(self) -> Contents:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def meet(self, key: str, content: str) -> list[str]:
        """The contents that were met under this key before, in the order in which they came."""
        ask = self._connection.execute
        before = [known for (known,) in ask("SELECT content FROM met WHERE key = ? ORDER BY rowid", (key,))]
        if content not in before:
            ask("INSERT INTO met VALUES (?, ?)", (key, content))
        return before

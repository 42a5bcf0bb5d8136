"""Walking one table: every row and every column, and what is odd about them. Shared by measuring, snapshot and seal.

A count that an index answers is not enough: pages of the table may be lost under it. Reading `length()` or `typeof()`
of a column does not load its overflow pages either, so every value is handed to a function.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence

import msgspec

from ..contract.rows import COLUMNS, KEY, Text, Value, row_digest
from ..verdicts import Absent, Measured, Measurement, Unmeasurable
from .paths import shown

Accounts = Callable[[str, Value, str], bool]
"""Whether a row is accounted for: table, key, `row_digest` over `COLUMNS[table]` (missing columns as None)."""

LATENT = "latent: a recorder creates it on first use"
TIMES = {"nl_action_log": ("timestamp",), "nl_transaction_archive": ("committed_at", "archived_at", "last_replayed_at")}

_MS = (100_000_000_000, 100_000_000_000_000)  # 1973 to 5138; smaller numbers are seconds, larger ones microseconds
_ARGUMENTS = 100  # of one SQL function; SQLite allows 127
_NAMED = 5  # keys named in a warning


class Table(msgspec.Struct, frozen=True):
    """An ordinary table as it stands in `main`. `spelling` is the stored name; columns map the contract's to stored."""

    name: str
    spelling: str
    columns: dict[str, str]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    has_rowid: bool

    @property
    def source(self) -> str:
        return f"main.{quoted(self.spelling)}"

    @property
    def selected(self) -> str:
        """SQL for `COLUMNS[name]` in order, NULL for a column that an older schema lacks."""
        return ", ".join(quoted(self.columns[c]) if c in self.columns else "NULL" for c in COLUMNS[self.name])


class Walk(msgspec.Struct, frozen=True):
    """What a table holds. `invalid` are keys (as shown) of rows whose TEXT is not UTF-8, at most a few of them."""

    measurement: Measurement
    null_keys: int = 0
    odd_keys: int = 0
    duplicate_keys: int = 0
    invalid_text: int = 0
    invalid: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def find(connection: sqlite3.Connection, name: str) -> Table | Absent | Unmeasurable:
    """The table of that name in any letter case, of whatever type: a view or a virtual table is not a count."""
    found = connection.execute(
        "SELECT type, name, rootpage FROM main.sqlite_master WHERE lower(name) = ? ORDER BY name", (name,)
    ).fetchall()
    if not found:
        return Absent(f"no table {name} in this store; {LATENT}")
    if len(found) > 1:
        names = ", ".join(f"{row[0]} {shown(row[1])}" for row in found)
        return Unmeasurable(f"{name} stands {len(found)} times in the schema: {names}", "ask who altered this store")
    kind, spelling, root = found[0]
    if kind == "table" and not root:
        kind = "virtual table"
    if kind != "table":
        return Unmeasurable(
            f"{shown(spelling)} is a {kind}, not an ordinary table; its count says nothing about stored rows",
            "find the table behind it and ask who altered this store",
        )
    stored = [(str(row[1]), int(row[6])) for row in connection.execute(f"PRAGMA main.table_xinfo({quoted(spelling)})")]
    columns = {column.lower(): column for column, hidden in stored if not hidden}
    return Table(
        name=name,
        spelling=spelling,
        columns=columns,
        missing=tuple(column for column in COLUMNS[name] if column not in columns),
        extra=tuple(shown(column) for lower, column in columns.items() if lower not in COLUMNS[name]),
        has_rowid=_has_rowid(connection, spelling),
    )


def _has_rowid(connection: sqlite3.Connection, spelling: str) -> bool:
    # In a WITHOUT ROWID table the primary key is the table: its index has the table's own root page, hence no entry.
    keys = [row[1] for row in connection.execute(f"PRAGMA main.index_list({quoted(spelling)})") if row[3] == "pk"]
    return all(
        connection.execute("SELECT count(*) FROM main.sqlite_master WHERE type='index' AND name=?", (key,)).fetchone()[
            0
        ]
        for key in keys
    )


def walk(connection: sqlite3.Connection, name: str, accounts: Accounts | None = None) -> Walk:
    """Read every row of table `name` inside the caller's transaction.

    Without `accounts` every row is unaccounted for. A damaged table is Unmeasurable; BUSY and interrupts are raised.
    """
    table = find(connection, name)
    if not isinstance(table, Table):
        return Walk(table)
    facts = _facts(connection, table, seen=accounts is None)
    invalid: list[str] = []
    invalid_text = unaccounted = 0
    if facts is None:  # no accounts, and a TEXT value that is not UTF-8: find out which
        facts = _facts(connection, table, seen=False)
        assert facts is not None
        accounts = _none
    if accounts is None:
        unaccounted = facts.rows
    else:
        rows = 0
        for values, valid in _typed(connection, table):
            rows += 1
            if not valid:
                invalid_text += 1
                if len(invalid) < _NAMED:
                    invalid.append(_key_shown(values, table))
            if accounts is _none or not accounts(name, _key(values, table), row_digest(COLUMNS[name], values)):
                unaccounted += 1
        if rows != facts.rows:
            return Walk(_lost(table, rows, facts.rows))
    indexed = connection.execute(f"SELECT count(*) FROM {table.source}").fetchone()[0]
    if indexed != facts.rows:
        return Walk(_lost(table, facts.rows, indexed))
    return Walk(
        Measured(facts.rows, unaccounted=unaccounted),
        null_keys=facts.null_keys,
        odd_keys=facts.odd_keys,
        duplicate_keys=_duplicates(connection, table),
        invalid_text=invalid_text,
        invalid=tuple(invalid),
        missing=table.missing,
        extra=table.extra,
        warnings=_time_warnings(connection, table, facts.odd_times),
    )


class _Facts(msgspec.Struct, frozen=True):
    rows: int
    null_keys: int
    odd_keys: int
    odd_times: tuple[int, ...]


def _none(*_: object) -> bool:
    return False


def _facts(connection: sqlite3.Connection, table: Table, *, seen: bool) -> _Facts | None:
    """Counts of one full walk, done inside SQLite. None when a value is not UTF-8 and `seen` made every one be read."""
    key = quoted(table.columns[KEY[table.name]]) if KEY[table.name] in table.columns else "'-'"
    low, high = _MS
    times = [quoted(table.columns[c]) for c in TIMES[table.name] if c in table.columns]
    counted = [
        "count(*)",
        f"count(*) - count({key})",
        f"count(CASE WHEN typeof({key}) NOT IN ('text', 'null') THEN 1 END)",
        *(
            f"count(CASE WHEN typeof({c}) <> 'null' AND (typeof({c}) <> 'integer' OR {c} NOT BETWEEN {low} AND {high})"
            " THEN 1 END)"
            for c in times
        ),
    ]
    if seen:
        # Python decodes each TEXT argument and refuses what is not UTF-8; a builtin keeps the call itself cheap.
        connection.create_function("nl_cutover_seen", -1, "".format)
        every = [quoted(column) for column in table.columns.values()]
        groups = [every[at : at + _ARGUMENTS] for at in range(0, len(every), _ARGUMENTS)]
        counted += [f"count(nl_cutover_seen({', '.join(group)}))" for group in groups]
    try:
        row = connection.execute(f"SELECT {', '.join(counted)} FROM {table.source} NOT INDEXED").fetchone()
    except sqlite3.OperationalError as error:
        if seen and str(error) == "user-defined function raised exception":
            return None
        raise
    return _Facts(row[0], row[1], row[2], tuple(row[3 : 3 + len(times)]))


def _typed(connection: sqlite3.Connection, table: Table) -> Iterator[tuple[tuple[Value, ...], bool]]:
    extra = [quoted(column) for lower, column in table.columns.items() if lower not in COLUMNS[table.name]]
    selected = ", ".join([table.selected, *extra])
    width = len(COLUMNS[table.name])
    cursor = connection.cursor()
    previous, connection.text_factory = connection.text_factory, Text
    try:
        for row in cursor.execute(f"SELECT {selected} FROM {table.source} NOT INDEXED"):
            yield row[:width], all(_is_utf8(value) for value in row if isinstance(value, Text))
    finally:
        connection.text_factory = previous
        cursor.close()


def _is_utf8(value: bytes) -> bool:
    if value.isascii():
        return True
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _key(values: Sequence[Value], table: Table) -> Value:
    return values[COLUMNS[table.name].index(KEY[table.name])]


def _key_shown(values: Sequence[Value], table: Table) -> str:
    key = _key(values, table)
    return shown(key.decode("utf-8", "surrogateescape")) if isinstance(key, bytes) else f"({type(key).__name__})"


def _lost(table: Table, walked: int, counted: int) -> Unmeasurable:
    return Unmeasurable(
        f"{shown(table.spelling)}: {walked} rows could be walked, its index counts {counted}: pages are lost",
        "restore the store from a backup; neither number can be trusted",
    )


def _duplicates(connection: sqlite3.Connection, table: Table) -> int:
    """Rows that share their key with an earlier one; NULL keys are counted apart."""
    if KEY[table.name] not in table.columns:
        return 0
    key = table.columns[KEY[table.name]]
    for row in connection.execute(f"PRAGMA main.index_list({quoted(table.spelling)})").fetchall():
        columns = [part[2] for part in connection.execute(f"PRAGMA main.index_info({quoted(row[1])})")]
        if row[2] and not row[4] and columns == [key]:
            return 0  # a UNIQUE index over the key alone, over all rows
    column = quoted(key)
    found = connection.execute(
        f"SELECT count({column}) - count(DISTINCT typeof({column}) || ':' || hex({column})) FROM {table.source}"
    ).fetchone()
    return int(found[0])


def _time_warnings(connection: sqlite3.Connection, table: Table, odd: tuple[int, ...]) -> tuple[str, ...]:
    """Units that do not look like milliseconds, with counts; nothing is converted."""
    columns = [c for c in TIMES[table.name] if c in table.columns]
    return tuple(_time_warning(connection, table, column) for column, count in zip(columns, odd, strict=True) if count)


def _time_warning(connection: sqlite3.Connection, table: Table, name: str) -> str:
    c, (low, high) = quoted(table.columns[name]), _MS
    number = f"typeof({c}) IN ('integer', 'real')"
    kinds = {
        "not a number": f"typeof({c}) IN ('text', 'blob')",
        "looking like seconds": f"{number} AND {c} > 0 AND {c} < {low}",
        "looking like microseconds": f"{number} AND {c} > {high}",
        "zero or negative": f"{number} AND {c} <= 0",
        "stored as a real number": f"typeof({c}) = 'real' AND {c} BETWEEN {low} AND {high}",
    }
    sums = ", ".join(f"count(CASE WHEN {test} THEN 1 END)" for test in kinds.values())
    counts = connection.execute(f"SELECT {sums} FROM {table.source} NOT INDEXED").fetchone()
    words = ", ".join(f"{count} {kind}" for kind, count in zip(kinds, counts, strict=True) if count)
    return f"{name}: {words}; the others are milliseconds, and every value is kept as it is"

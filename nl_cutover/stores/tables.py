"""Walking one table: every row and every column, and what is odd about them. Shared by measuring, snapshot and seal.

A count that an index answers is not enough: pages of the table may be lost under it. Reading `length()` or `typeof()`
of a column does not load its overflow pages either, so every value is handed to a function.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence

import msgspec

from ..contract.rows import COLUMNS, KEY, Text, Twins, Value, row_digest
from ..verdicts import Absent, Unmeasurable
from ..wording import counted
from .paths import shown
from .report import TableReport

Accounts = Callable[[str, Value, str], bool]
"""Whether a row is accounted for: table, key, `row_digest` over `COLUMNS[table]` (missing columns as None) with `Twins`."""

LATENT = "latent: a recorder creates it on first use"
TIMES = {"nl_action_log": ("timestamp",), "nl_transaction_archive": ("committed_at", "archived_at", "last_replayed_at")}

_MS = (100_000_000_000, 100_000_000_000_000)  # 1973 to 5138; smaller numbers are seconds, larger ones microseconds
_ARGUMENTS = 100  # of one SQL function; SQLite allows 127
_UNITS = (
    "not a number",
    "looking like seconds",
    "looking like microseconds",
    "zero or negative",
    "stored as a real number",
)
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


def walk(connection: sqlite3.Connection, name: str, accounts: Accounts | None = None) -> TableReport:
    """Read every row of table `name` inside the caller's transaction; the kind of a zero is the caller's to tell.

    Without `accounts` every row is unaccounted for. Raises sqlite3.DatabaseError for a damaged table.
    """
    table = find(connection, name)
    if isinstance(table, Absent):
        return TableReport(name, "absent", reason=table.reason)
    if isinstance(table, Unmeasurable):
        return refused(name, table.reason, table.hint)
    totals = _count(connection, table, seen=accounts is None)
    invalid: list[str] = []
    invalid_text = unaccounted = 0
    if totals is None:  # no accounts, and a TEXT value that is not UTF-8: find out which
        totals, accounts = _count(connection, table, seen=False), _none
    assert totals is not None
    rows, odd = totals
    if accounts is None:
        unaccounted = rows
    else:
        walked, twins = 0, Twins()
        for values, valid in typed(connection, table):
            walked += 1
            if not valid:
                invalid_text += 1
                if len(invalid) < _NAMED:
                    invalid.append(_key_shown(values, table))
            if accounts is _none:
                unaccounted += 1
                continue
            key = _key(values, table)
            unaccounted += not accounts(name, key, twins.tell(key, row_digest(COLUMNS[name], values)))
        if walked != rows:
            return _lost(table, walked, rows)
    indexed = connection.execute(f"SELECT count(*) FROM {table.source}").fetchone()[0]
    if indexed != rows:
        return _lost(table, rows, indexed)
    null_keys, odd_keys, odd_times = _oddities(connection, table) if odd else (0, 0, [])
    shared = _duplicates(connection, table)
    said = (
        (null_keys, counted(null_keys, "row|s has|have a NULL key: it|they cannot be migrated")),
        (odd_keys, counted(odd_keys, "row|s has|have a key that is not text: it|they cannot be migrated")),
        (shared, counted(shared, "row|s shares|share its|their key with another")),
        (
            invalid_text,
            f"{counted(invalid_text, 'row|s holds|hold')} text that is not UTF-8; the first keys: {', '.join(invalid)}",
        ),
        (table.missing, f"an older schema: it lacks {', '.join(table.missing)}"),
        (table.extra, f"columns this tool does not know: {', '.join(table.extra)}"),
    )
    return TableReport(
        name,
        "measured",
        rows=rows,
        unaccounted=unaccounted,
        null_keys=null_keys,
        odd_keys=odd_keys,
        duplicate_keys=shared,
        invalid_text=invalid_text,
        invalid=tuple(invalid),
        missing_columns=table.missing,
        extra_columns=table.extra,
        warnings=(*odd_times, *(words for any_, words in said if any_)),
    )


def refused(name: str, reason: str, hint: str) -> TableReport:
    return TableReport(name, "unmeasurable", reason=reason, hint=hint)


def _none(*_: object) -> bool:
    return False


def _count(connection: sqlite3.Connection, table: Table, *, seen: bool) -> tuple[int, int] | None:
    """Rows of one full walk inside SQLite, and how many of them are odd.

    With `seen` every value is read; None when one of them is TEXT that is not UTF-8.
    """
    plain = [f"typeof({c}) = 'text'" for c in _stored(table, (KEY[table.name],))]
    for c in _stored(table, TIMES[table.name]):
        plain.append(f"({c} BETWEEN {_MS[0]} AND {_MS[1]} AND typeof({c}) = 'integer' OR {c} IS NULL)")
    counted = ["count(*)", f"count(CASE WHEN {' AND '.join(plain) or 1} THEN 1 END)"]
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
    return row[0], row[0] - row[1]


def _stored(table: Table, names: tuple[str, ...]) -> list[str]:
    return [quoted(table.columns[name]) for name in names if name in table.columns]


def _oddities(connection: sqlite3.Connection, table: Table) -> tuple[int, int, list[str]]:
    """NULL keys, keys that are not text, and times whose unit does not look like milliseconds; nothing is converted."""
    tests: list[str] = ["0", "0"]
    for c in _stored(table, (KEY[table.name],)):
        tests = [f"{c} IS NULL", f"typeof({c}) NOT IN ('text', 'null')"]
    times = _stored(table, TIMES[table.name])
    for c in times:
        number, (low, high) = f"typeof({c}) IN ('integer', 'real')", _MS
        tests += [
            f"typeof({c}) IN ('text', 'blob')",
            f"{number} AND {c} > 0 AND {c} < {low}",
            f"{number} AND {c} > {high}",
            f"{number} AND {c} <= 0",
            f"typeof({c}) = 'real' AND {c} BETWEEN {low} AND {high}",
        ]
    sums = ", ".join(f"count(CASE WHEN {test} THEN 1 END)" for test in tests)
    nulls, odd, *counts = connection.execute(f"SELECT {sums} FROM {table.source} NOT INDEXED").fetchone()
    warnings = []
    for at, c in enumerate(times):
        found = zip(counts[at * len(_UNITS) :], _UNITS, strict=False)
        words = ", ".join(f"{count} {unit}" for count, unit in found if count)
        if words:
            warnings.append(f"{c[1:-1]}: {words}; the others are milliseconds, and every value is kept as it is")
    return nulls, odd, warnings


def typed(connection: sqlite3.Connection, table: Table) -> Iterator[tuple[tuple[Value, ...], bool]]:
    """Every row: its values in `COLUMNS[table.name]`, and whether all its text, unknown columns included, is UTF-8."""
    extra = [quoted(column) for lower, column in table.columns.items() if lower not in COLUMNS[table.name]]
    selected = ", ".join([table.selected, *extra])
    width = len(COLUMNS[table.name])
    cursor = connection.cursor()
    previous, connection.text_factory = connection.text_factory, Text
    try:
        for row in cursor.execute(f"SELECT {selected} FROM {table.source} NOT INDEXED"):
            valid = True
            for value in row:
                if type(value) is Text and not value.isascii() and not _is_utf8(value):
                    valid = False
            yield row[:width], valid
    finally:
        connection.text_factory = previous
        cursor.close()


def _is_utf8(value: bytes) -> bool:
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


def _lost(table: Table, walked: int, indexed: int) -> TableReport:
    return refused(
        table.name,
        f"{shown(table.spelling)}: {counted(walked, 'row|s')} could be walked, its index counts {indexed}: pages are lost",
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

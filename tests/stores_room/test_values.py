"""Odd values, odd schemas, odd keys: counted, told apart, never altered, never printed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nl_cutover.contract.rows import ACTIONS, ARCHIVES, COLUMNS, DDL, Text, Value, row_digest
from nl_cutover.stores.report import TableReport

from .zoo import INSERT_ACTION, INSERT_ARCHIVE, MS, counts, execute, plant, store


def _archives(path: Path, *statements: str) -> TableReport:
    execute(path, *statements)
    return store(path).table(ARCHIVES)


def test_invalid_utf8_is_counted_and_named_by_key(tmp_path: Path) -> None:
    """F23, F25: a lone surrogate as WTF-8 is one kind of it."""
    path = plant(tmp_path / "a.sqlite", archives=3, actions=1)
    found = _archives(
        path,
        f"UPDATE {ARCHIVES} SET ops = cast(x'5b22ff225d' AS text) WHERE archive_id = 'a00001'",
        f"UPDATE {ARCHIVES} SET name = cast(x'eda080' AS text) WHERE archive_id = 'a00002'",
    )
    assert (found.rows, found.unaccounted, found.invalid_text) == (3, 3, 2)
    assert found.invalid == ("a00001", "a00002")
    assert "2 rows hold text that is not UTF-8" in "".join(found.warnings)


def test_only_a_few_keys_are_named(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=30)
    found = _archives(path, f"UPDATE {ARCHIVES} SET ops = cast(x'ff' AS text)")
    assert (found.invalid_text, len(found.invalid)) == (30, 5)


def test_an_invalid_key_is_shown_escaped(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=1)
    assert _archives(path, f"UPDATE {ARCHIVES} SET archive_id = cast(x'61ff0a62' AS text)").invalid == ("a\\xff\\nb",)


def test_a_blob_is_not_invalid_text(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=1)
    assert _archives(path, f"UPDATE {ARCHIVES} SET ops = x'ff'").invalid_text == 0


def test_digests_are_over_type_and_every_byte(tmp_path: Path) -> None:
    """F24, F26, F28: NUL bytes, '007' against 7, integers past 2^53."""
    path = plant(tmp_path / "a.sqlite", archives=1)
    values: dict[str, tuple[str, Value]] = {
        "name": ("'a' || char(0) || 'b'", Text(b"a\0b")),
        "ops": ("'007'", Text(b"007")),
        "app_session_id": ("x'303037'", b"007"),
        "committed_at": ("9007199254740993", 9007199254740993),
        "replay_count": ("1.5", 1.5),
        "last_replayed_at": ("NULL", None),
    }
    execute(path, f"UPDATE {ARCHIVES} SET " + ", ".join(f"{name} = {sql}" for name, (sql, _) in values.items()))
    seen: list[tuple[str, Value, str]] = []

    def accounts(table: str, key: Value, digest: str) -> bool:
        seen.append((table, key, digest))
        return True

    found = store(path, accounts=accounts).table(ARCHIVES)
    assert (found.rows, found.unaccounted) == (1, 0)
    with closing(sqlite3.connect(path)) as connection:
        stored = dict(zip(COLUMNS[ARCHIVES], connection.execute(f"SELECT * FROM {ARCHIVES}").fetchone(), strict=True))
    row: list[Value] = [
        values[name][1] if name in values else Text(v.encode()) if isinstance(v := stored[name], str) else v
        for name in COLUMNS[ARCHIVES]
    ]
    assert seen == [(ARCHIVES, Text(b"a00000"), row_digest(COLUMNS[ARCHIVES], row))]


def test_unaccounted_rows(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=5, actions=4)
    found = store(path, accounts=lambda table, key, digest: table == ARCHIVES and key != b"a00003")
    assert (found.table(ARCHIVES).unaccounted, found.table(ACTIONS).unaccounted) == (1, 4)
    assert (found.table(ARCHIVES).rows, found.table(ACTIONS).rows) == (5, 4)


def test_infinity_is_counted(tmp_path: Path) -> None:
    """F29: SQLite stores it as REAL, NaN as NULL."""
    path = plant(tmp_path / "a.sqlite", actions=2)
    execute(path, f"UPDATE {ACTIONS} SET reward = 9e999, timestamp = -9e999")
    found = store(path).table(ACTIONS)
    assert found.rows == 2
    (warning,) = found.warnings
    assert warning.startswith("timestamp: 2 zero or negative; the others are milliseconds")


def test_units_of_time_are_told_apart_and_kept(tmp_path: Path) -> None:
    """F36: nothing here may raise, not even the smallest integer."""
    path = plant(tmp_path / "a.sqlite", actions=8)
    times = [MS, "'soon'", 1_780_000_000, 1_780_000_000_000_000, -(2**63), f"{MS}.5", "x'00'", 0]
    for n, value in enumerate(times):
        execute(path, f"UPDATE {ACTIONS} SET timestamp = {value} WHERE id = 'l{n:05}'")
    (warning,) = store(path).table(ACTIONS).warnings
    execute(path, f"UPDATE {ACTIONS} SET timestamp = {MS}.5")
    assert store(path).table(ACTIONS).warnings[0].startswith("timestamp: 8 stored as a real number; the others")
    assert warning.startswith(
        "timestamp: 2 not a number, 1 looking like seconds, 1 looking like microseconds, 2 zero or negative, "
        "1 stored as a real number"
    )


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        (f"CREATE VIEW {ARCHIVES} AS SELECT 1 AS archive_id WHERE 0", "view"),
        (f"CREATE VIRTUAL TABLE {ARCHIVES} USING fts5(ops)", "virtual table"),
    ],
)
def test_a_name_that_is_no_ordinary_table(tmp_path: Path, statement: str, kind: str) -> None:
    """F30: a view counts 0 over a table with rows."""
    path = plant(tmp_path / "a.sqlite", tables=False)
    execute(path, DDL[ACTIONS], statement)
    found = store(path)
    assert f"is a {kind}, not an ordinary table" in found.table(ARCHIVES).reason
    assert found.table(ACTIONS).rows == 0


def test_another_letter_case(tmp_path: Path) -> None:
    """F30: the catalogue look-up by name says nothing is there."""
    path = plant(tmp_path / "a.sqlite", tables=False)
    execute(path, DDL[ARCHIVES].replace(ARCHIVES, '"NL_Transaction_Archive"'), DDL[ACTIONS])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(INSERT_ARCHIVE, ("a",))
    assert counts(store(path)) == (1, 0)


def test_a_name_that_stands_twice(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=1)
    execute(path, f"CREATE TRIGGER NL_Transaction_Archive AFTER INSERT ON {ARCHIVES} BEGIN SELECT 1; END")
    assert "stands 2 times in the schema" in store(path).table(ARCHIVES).reason


def test_a_temporary_table_shadows_nothing(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", archives=2)
    execute(path, f"CREATE TEMP TABLE {ARCHIVES} (x)")
    assert counts(store(path)) == (2, 0)


def test_an_older_and_a_wider_schema(tmp_path: Path) -> None:
    """F33: no `select *` by position; missing and unknown columns are listed."""
    path = plant(tmp_path / "a.sqlite", tables=False)
    execute(
        path,
        f'CREATE TABLE {ACTIONS} (mood TEXT, args TEXT, "a\nb", id TEXT PRIMARY KEY, double AS (args || args))',
        f"INSERT INTO {ACTIONS} (mood, args, id) VALUES ('odd', '{{}}', 'one')",
    )
    seen: list[str] = []
    found = store(path, accounts=lambda table, key, digest: not seen.append(digest))
    table = found.table(ACTIONS)
    assert (table.rows, table.extra_columns) == (1, ("mood", "a\\nb"))
    assert table.missing_columns == tuple(c for c in COLUMNS[ACTIONS] if c not in ("id", "args"))
    row: dict[str, Value] = {"id": Text(b"one"), "args": Text(b"{}")}
    assert seen == [row_digest(COLUMNS[ACTIONS], [row.get(column) for column in COLUMNS[ACTIONS]])]
    assert found.table(ARCHIVES).state == "absent"


def test_a_table_without_its_key(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", tables=False)
    execute(path, f"CREATE TABLE {ARCHIVES} (id, payload)", f"INSERT INTO {ARCHIVES} VALUES (1, 2), (1, 3)")
    table = store(path).table(ARCHIVES)
    assert (table.rows, table.null_keys, table.duplicate_keys) == (2, 0, 0)
    assert "archive_id" in table.missing_columns


def test_a_very_wide_table(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", tables=False)
    columns = ", ".join(f"c{n} DEFAULT 'é'" for n in range(500))
    execute(path, f"CREATE TABLE {ARCHIVES} (archive_id TEXT, {columns})", f"INSERT INTO {ARCHIVES} (c0) VALUES (1)")
    assert store(path).table(ARCHIVES).rows == 1
    execute(path, f"UPDATE {ARCHIVES} SET c499 = cast(x'ff' AS text)")
    assert store(path).table(ARCHIVES).invalid_text == 1


def test_keys_that_are_null_twins_or_no_text(tmp_path: Path) -> None:
    """F34: SQLite lets a TEXT primary key be NULL many times; composed and decomposed letters are two keys."""
    path = plant(tmp_path / "a.sqlite", archives=1)
    found = _archives(
        path,
        *(INSERT_ARCHIVE.replace("?", key) for key in ("NULL", "NULL", "'e\u0301'", "'\u00e9'", "x'61'")),
    )
    assert (found.rows, found.null_keys, found.odd_keys, found.duplicate_keys) == (6, 2, 1, 0)
    assert len(found.warnings) == 2


def test_twin_keys_without_a_unique_index(tmp_path: Path) -> None:
    path = plant(tmp_path / "a.sqlite", tables=False)
    execute(path, DDL[ARCHIVES].replace(" PRIMARY KEY", ""), "CREATE INDEX k ON nl_transaction_archive(archive_id)")
    found = _archives(path, *(INSERT_ARCHIVE.replace("?", key) for key in ("'a'", "'a'", "'A'", "1", "'1'", "NULL")))
    assert (found.rows, found.duplicate_keys, found.null_keys) == (6, 1, 1)
    execute(path, "CREATE UNIQUE INDEX u ON nl_transaction_archive(archive_id, name)")
    assert store(path).table(ARCHIVES).duplicate_keys == 1


def test_without_rowid(tmp_path: Path) -> None:
    """F34."""
    path = plant(tmp_path / "a.sqlite", tables=False)
    execute(path, DDL[ARCHIVES] + " WITHOUT ROWID", DDL[ACTIONS], INSERT_ARCHIVE.replace("?", "'a'"))
    assert counts(store(path)) == (1, 0)
    assert store(path, accounts=lambda *_: True).table(ARCHIVES).unaccounted == 0


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_a_utf16_store(tmp_path: Path, encoding: str) -> None:
    """F35: digests are over the text as UTF-8, so they equal those of an UTF-8 store."""
    digests: dict[str, list[str]] = {}
    for name, pragma in (("wide", encoding), ("plain", "UTF-8")):
        path = tmp_path / name / "a.sqlite"
        path.parent.mkdir()
        execute(path, f"PRAGMA encoding='{pragma}'", *DDL.values(), INSERT_ACTION.replace("?", "'hé😀'"))
        seen = digests.setdefault(name, [])
        assert counts(store(path, accounts=lambda t, k, d, seen=seen: not seen.append(d))) == (0, 1)
        assert counts(store(path)) == (0, 1)
    assert digests["wide"] == digests["plain"]
    assert digests["wide"]


def test_absent_tables_are_latent(tmp_path: Path) -> None:
    found = store(plant(tmp_path / "a.sqlite", tables=False))
    assert [table.state for table in found.tables] == ["absent", "absent"]
    assert all("latent" in table.reason and table.rows is None for table in found.tables)


def test_no_value_of_a_row_is_ever_said(tmp_path: Path) -> None:
    """Python's own message for undecodable text quotes the text."""
    path = plant(tmp_path / "a.sqlite", archives=2)
    execute(path, f"UPDATE {ARCHIVES} SET ops = 'SECRET' || cast(x'ff' AS text), source_tx_id = x'00'")
    assert "SECRET" not in repr(store(path))

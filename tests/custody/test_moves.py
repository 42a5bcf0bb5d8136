"""The state machine of `custody.states` is the only way to another state."""

import re
from pathlib import Path

import pytest

import nl_cutover
from nl_cutover.custody.entries import ActionEntry, ArchiveEntry
from nl_cutover.custody.ledger import Ledger, move_rows
from nl_cutover.custody.states import MOVES
from nl_cutover.errors import CustodyError

PACKAGE = Path(nl_cutover.__file__).parent
CHANGES_STATE = re.compile(
    r"UPDATE\s+(?:archives|actions|batches|\{\w+\})\s[^;]*?\bSET\b(?:(?!WHERE|CASE|;).)*?\bstate\s*=", re.S
)


def test_no_statement_changes_a_state_past_the_table():
    assert CHANGES_STATE.search('Change("UPDATE actions "\n "SET state = \'x\' WHERE 1")'), "the control"
    found = [
        f"{file.name}: {match.group()[:60]}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for match in CHANGES_STATE.finditer(file.read_text())
    ]
    assert found == ["ledger.py: UPDATE {table} SET state ="]


def test_every_state_of_the_table_is_one_that_the_ledger_knows():
    schema = (PACKAGE.parent / "migrations" / "ledger.py").read_text()
    for table, moves in MOVES.items():
        made = schema[schema.index(f"CREATE TABLE {table}") :]
        known = set(re.findall(r"'(\w[\w-]*)'", made[made.index("state IN") : made.index("))")]))
        assert set(moves) | set().union(*moves.values()) <= known


@pytest.mark.parametrize(
    ("table", "to", "left"), [("archives", "confirmed", "pending"), ("actions", "admitted", "pending")]
)
def test_a_move_of_many_rows_touches_only_those_that_may_go(tmp_path, table, to, left):
    with Ledger(tmp_path / "custody", lambda: 7) as ledger:
        ledger.add_archives([ArchiveEntry("k", "c", "d", "s")])
        ledger.add_actions([ActionEntry("k", "d", "s")])
        ledger.commit(move_rows(table, to, "1"))
        assert ledger.read(f"SELECT state FROM {table}") == [(left,)]
        with pytest.raises(CustodyError, match="state machine"):
            ledger.commit(move_rows(table, to, "1", rows=1))

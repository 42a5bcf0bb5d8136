"""Stores made by chance, in every state a writer can leave them: the count is the writer's own, nothing is touched."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nl_cutover.contract.rows import ACTIONS, ARCHIVES, DDL
from nl_cutover.stores.seal import Fence, unseal
from nl_cutover.stores.snapshot import rows, snapshot

from .zoo import INDICES, counts, folder, store, writer

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
VALUES = st.one_of(TEXT, st.integers(-(2**63), 2**63 - 1), st.floats(), st.none(), st.just("x" * 9000))
ROWS = st.lists(st.tuples(TEXT, VALUES, VALUES), max_size=12)


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, object]:
    return {
        "wal": draw(st.booleans()),
        "page_size": draw(st.sampled_from([512, 1024, 4096, 65536])),
        "encoding": draw(st.sampled_from(["UTF-8", "UTF-16le", "UTF-16be"])),
        "auto_vacuum": draw(st.sampled_from([0, 1, 2])),
        "indices": draw(st.booleans()),
        "before": draw(ROWS),
        "after": draw(ROWS),
        "deleted": draw(st.integers(0, 3)),
        "checkpoint": draw(st.sampled_from(["", "PASSIVE", "FULL", "RESTART", "TRUNCATE"])),
        "ending": draw(st.sampled_from(["up", "stop", "kill", "kill, no -shm"])),
    }


def _insert(key: str, ops: object, result: object) -> list[tuple[str, list[object]]]:
    # ASCII JSON carries everything but NaN; SQLite stores NaN as NULL, which these columns refuse.
    ops, result = ("nan" if value != value else value for value in (ops, result))
    return [
        (
            f"INSERT OR REPLACE INTO {ARCHIVES} (archive_id, source_tx_id, origin_writer, archived_at, ops) "
            "VALUES (?, '', '{}', 1, ifnull(?, ''))",
            [key, ops],
        ),
        (
            f"INSERT OR REPLACE INTO {ACTIONS} (id, agent_id, sequence_id, timestamp, tool, args, result) "
            "VALUES (?, '', '', 1, '', '', ?)",
            [key, result],
        ),
    ]


@settings(
    max_examples=int(os.environ.get("NL_CUTOVER_EXAMPLES", "25")), deadline=None, suppress_health_check=[*HealthCheck]
)
@given(shapes())
def test_any_store_in_any_state(shape: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as made:
        path = Path(made).resolve() / "s" / "a.sqlite"
        path.parent.mkdir()
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for pragma in ("page_size", "encoding", "auto_vacuum"):
                connection.execute(f"PRAGMA {pragma}='{shape[pragma]}'")
            connection.execute(f"PRAGMA journal_mode={'wal' if shape['wal'] else 'delete'}")
            for sql in (*DDL.values(), *(INDICES if shape["indices"] else ())):
                connection.execute(sql)
        with writer(path) as w:
            w.run(*_insert("kept", "", ""))  # a log that takes every row away is taken for another store's
            for phase in ("before", "after"):
                for row in shape[phase]:  # type: ignore[attr-defined]
                    w.run(*_insert(*row))
                if phase == "before" and shape["checkpoint"]:
                    w.run(f"PRAGMA wal_checkpoint({shape['checkpoint']})")
            w.run(f"DELETE FROM {ARCHIVES} WHERE rowid <= {shape['deleted']} AND archive_id <> 'kept'")
            truth = tuple(w.run(f"SELECT count(*) FROM {table}")[0][0][0] for table in (ARCHIVES, ACTIONS))
            if shape["ending"] == "stop":
                w.stop()
            elif shape["ending"] != "up":
                w.kill()
            if "no -shm" in str(shape["ending"]) and os.path.exists(f"{path}-shm"):
                os.unlink(f"{path}-shm")
            before = folder(path.parent)
            digests: list[str] = []
            found = store(path, accounts=lambda table, key, digest: not digests.append(digest))
            assert counts(found) == truth
            assert counts(store(path)) == truth
            copy = snapshot(found, Path(made))
            assert sorted(r.digest for table in (ACTIONS, ARCHIVES) for r in rows(copy, table)) == sorted(digests)
            assert folder(path.parent) == before
            with Fence(path, found.identity, url="u") as fence:
                assert fence.plant().complete
                fence.commit()
            assert counts(store(path)) == truth
            unseal(path, found.identity)
            assert (counts(store(path)), store(path).seal.sealed) == (truth, ())

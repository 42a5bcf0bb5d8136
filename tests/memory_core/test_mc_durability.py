"""What is answered is on disk, what fails says so, and no mark is lost."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from nl_cutover.testing import EmbeddedMemoryCore, embedded_memory_core

from .mcp_caller import Connect

MARKS = int(os.environ.get("NL_CUTOVER_MARKS", "400"))
IN_FLIGHT = 8


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMemoryCore]:
    directory = tmp_path_factory.mktemp("impatient")
    with embedded_memory_core(directory, tokens="local-token", busy_timeout_ms=50) as core:
        yield core


def test_an_answered_save_survives_kill_9(tmp_path: Path, connect: Connect) -> None:
    with embedded_memory_core(tmp_path, tokens="local-token") as core:
        caller = connect(core)
        archive_id = caller.save()
        caller.mark(archive_id)
        core.kill()
        core.restart()
        assert caller.post('{"jsonrpc":"2.0","id":1,"method":"ping"}').json() == {"error": "Session not found"}
        caller.open()
        assert caller.get(archive_id)["replayCount"] == 1
        started = time.monotonic()
        core.stop()
        assert core.process.returncode == 0
        assert time.monotonic() - started < 5


def test_a_locked_database_is_a_result_with_a_reason(connect: Connect, impatient: EmbeddedMemoryCore) -> None:
    reason = "archive-store-unavailable: database is locked"
    token = "11111111-1111-4111-8111-111111111111"
    caller = connect(impatient)
    archive_id = caller.save()
    with locked(impatient.db):
        transaction = {"status": "committed", "originWriter": {"agentId": 7, "sessionId": "s"}, "ops": [1]}
        assert caller.call("save_nl_transaction", {"transaction": transaction}) == {"saved": False, "reason": reason}
        unavailable = {"updated": False, "status": "unavailable", "reason": reason}
        assert caller.mark(archive_id) == unavailable
        assert caller.call("admit_nl_actions", {"actions": [{"sequenceId": token}, {}]}) == {
            "admitted": 0,
            "refused": 2,
        }


def test_a_failed_mark_has_counted_in_memory_and_a_second_one_writes_both(
    connect: Connect, impatient: EmbeddedMemoryCore
) -> None:
    caller = connect(impatient)
    archive_id = caller.save(name="kept")
    with locked(impatient.db):
        assert caller.mark(archive_id)["updated"] is False
    assert caller.get(archive_id)["replayCount"] == 1
    with closing(sqlite3.connect(impatient.db)) as graph:
        on_disk = "SELECT json_extract(data, '$.properties.replayCount') FROM Nodes WHERE id = ?"
        node_id = f"nl-transaction-archive:{archive_id}"
        assert graph.execute(on_disk, (node_id,)).fetchone() == (0,)
        assert caller.mark(archive_id)["replayCount"] == 2
        assert graph.execute(on_disk, (node_id,)).fetchone() == (2,)


def test_a_failed_save_leaves_nothing(connect: Connect, impatient: EmbeddedMemoryCore) -> None:
    caller = connect(impatient)
    count = "SELECT count(*) FROM Nodes"
    with closing(sqlite3.connect(impatient.db)) as graph:
        before = graph.execute(count).fetchone()
        with locked(impatient.db), pytest.raises(AssertionError, match="database is locked"):
            caller.save()
        assert graph.execute(count).fetchone() == before


def test_a_locked_database_does_not_stop_the_server_from_ending(tmp_path: Path, connect: Connect) -> None:
    with embedded_memory_core(tmp_path, tokens="local-token", busy_timeout_ms=600) as core:
        caller = connect(core)
        archive_id = caller.save()
        with locked(core.db), ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(caller.mark, archive_id)
            # Another session is answered while the mark waits for the lock.
            started = time.monotonic()
            assert connect(core).post('{"jsonrpc":"2.0","id":1,"method":"ping"}').status_code == 200
            assert time.monotonic() - started < 0.5
            assert waiting.result()["status"] == "unavailable"
        core.stop()
        assert core.process.returncode == 0


def test_concurrent_marks_are_all_counted(connect: Connect, core: EmbeddedMemoryCore) -> None:
    archive_id = connect(core).save()
    callers = [connect(core) for _ in range(IN_FLIGHT)]

    def work(caller: object) -> list[int]:
        return [caller.mark(archive_id)["replayCount"] for _ in range(MARKS // IN_FLIGHT)]  # type: ignore[attr-defined]

    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        counts = [count for part in pool.map(work, callers) for count in part]
    total = MARKS // IN_FLIGHT * IN_FLIGHT
    assert sorted(counts) == list(range(1, total + 1))
    assert connect(core).get(archive_id)["replayCount"] == total

"""Retention that Memory Core itself enforces: by a frozen clock, a bounded part a pass, never without a cutoff."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from nl_cutover.contract.surface import derive_tools
from nl_cutover.contract.wire import ADMIT, GET, HEALTH, RETENTION_MS, SAVE
from nl_cutover.errors import UsageError
from nl_cutover.memory_core.auth import Identity
from nl_cutover.memory_core.graph import open_graph
from nl_cutover.memory_core.jsontext import parse
from nl_cutover.memory_core.operations import Operations, Plane
from nl_cutover.memory_core.retention import PERIOD_MS, Retention, keep
from nl_cutover.memory_core.surface import load_document
from nl_cutover.testing import FixedClock, embedded_memory_core

from .mcp_caller import Connect

NOW = 1_800_000_000_000
DAY_MS = 24 * 60 * 60 * 1000
TOKEN = "00000000-0000-4000-8000-000000000001"


class Bench:
    def __init__(self, folder: Path, **options: Any) -> None:
        self.path = folder / "graph.sqlite"
        self.clock = FixedClock(NOW)
        self.graph = open_graph(self.path, busy_timeout_ms=50)
        self.retention = Retention(self.graph, clock=self.clock, **options)
        self.operations = Operations(
            self.graph,
            derive_tools(load_document()),
            Plane("p", "/"),
            clock=self.clock,
            new_id=lambda: str(uuid4()),
            retention=self.retention,
        )

    def call(self, tool: str, arguments: Any) -> Any:
        return parse(self.operations.call(tool, arguments, Identity()).structured or "null")

    def admit(self, *timestamps: float | None) -> None:
        actions = [{"sequenceId": TOKEN, "success": True, "tool": "t", "timestamp": at} for at in timestamps]
        assert self.call(ADMIT, {"actions": actions})["admitted"] == len(timestamps)

    def left(self) -> list[float | None]:
        with closing(sqlite3.connect(self.path)) as graph:
            rows = graph.execute("SELECT data FROM Nodes WHERE id LIKE 'nl-action-telemetry:%' ORDER BY rowid")
            return [json.loads(data)["properties"]["timestamp"] for (data,) in rows]

    def health(self) -> Any:
        return self.call(HEALTH, {})


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    made = Bench(tmp_path)
    yield made
    made.graph.close()


def test_a_frozen_clock_sees_it_happen(bench: Bench) -> None:
    edge = NOW - RETENTION_MS
    bench.admit(edge - 1, edge, NOW, None, 0, -1.5)
    saved = bench.call(SAVE, {"transaction": {"status": "committed", "ops": [{}], "originWriter": {"agentId": "a", "sessionId": "s"}}})  # fmt: skip
    done = bench.retention.run()
    assert (done.status, done.deleted, done.cutoff, done.more) == ("pruned", 3, edge, False)
    assert bench.left() == [edge, NOW, None]
    bench.clock.advance(1)
    assert bench.retention.run().deleted == 1
    bench.clock.advance(15 * DAY_MS)
    assert bench.retention.run().deleted == 1
    assert bench.left() == [None], "a row without a timestamp is never taken"
    assert bench.call(GET, {"archiveId": saved["archiveId"]})["status"] == "found", "an archive has no such end"


def test_a_missing_cutoff_never_means_all(bench: Bench) -> None:
    bench.admit(1, 2, None)
    done = bench.retention.prune(None)
    assert (done.status, done.reason, done.deleted) == ("skipped", "no-cutoff", 0)
    assert len(bench.left()) == 3
    assert bench.retention.prune(2).deleted == 1


def test_a_pass_is_bounded_and_takes_the_oldest(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limit=3)
    bench.admit(5, 1, 4, 2, 3, 0)
    first = bench.retention.run()
    assert (first.deleted, first.more) == (3, True)
    assert sorted(bench.left()) == [3, 4, 5]
    assert [bench.retention.run().deleted, bench.retention.run().deleted] == [3, 0]
    bench.graph.close()


def test_text_and_foreign_nodes_are_never_taken(bench: Bench) -> None:
    """A timestamp that is no number compares as greater in SQLite; a row of another label is not telemetry."""
    bench.graph.upsert("nl-action-telemetry:text", "nl-action-telemetry", "t", 1, {"timestamp": "1"}, user=None)
    bench.graph.upsert("nl-action-telemetry:foreign", "MEMORY", "t", 1, {"timestamp": 1}, user=None)
    bench.graph.upsert("memory:1", "nl-action-telemetry", "t", 1, {"timestamp": 1}, user=None)
    bench.admit(1)
    assert bench.retention.run().deleted == 1
    assert bench.graph.node("nl-action-telemetry:text", None) is not None


def test_a_row_that_is_not_json_hinders_no_pass(bench: Bench) -> None:
    bench.admit(1, NOW)
    with closing(sqlite3.connect(bench.path)) as graph, graph:
        graph.execute("INSERT INTO Nodes (id, data) VALUES ('nl-action-telemetry:torn', '{')")
    done = bench.retention.run()
    assert (done.status, done.deleted) == ("pruned", 1)
    with closing(sqlite3.connect(bench.path)) as graph:
        assert graph.execute("SELECT count(*) FROM Nodes").fetchone() == (2,)


def test_a_look_back_of_more_digits_than_a_database_holds_fails_visibly(tmp_path: Path) -> None:
    bench = Bench(tmp_path, lookback_ms=10**30)
    assert bench.retention.run().status == "failed"
    bench.graph.close()


def test_a_pruned_row_is_gone_from_the_cache_too(bench: Bench) -> None:
    bench.graph.upsert("nl-action-telemetry:x", "nl-action-telemetry", "t", 1, {"timestamp": 1}, user=None)
    assert bench.graph.node("nl-action-telemetry:x", None) is not None
    bench.retention.run()
    assert bench.graph.node("nl-action-telemetry:x", None) is None


def test_the_healthcheck_reports_the_last_pass(bench: Bench) -> None:
    assert bench.health()["retention"]["lastPass"] is None
    bench.admit(1)
    bench.retention.run()
    told = bench.health()["retention"]
    assert (told["lookbackMs"], told["periodMs"], told["overdue"]) == (RETENTION_MS, PERIOD_MS, False)
    assert told["lastPass"] == {
        "at": NOW,
        "status": "pruned",
        "deleted": 1,
        "cutoff": NOW - RETENTION_MS,
        "reason": "",
        "more": False,
    }


def test_a_memory_core_whose_retention_nobody_calls_is_unhealthy(bench: Bench) -> None:
    bench.clock.advance(2 * PERIOD_MS)
    assert bench.health()["status"] == "healthy"
    bench.clock.advance(1)
    assert (bench.health()["status"], bench.health()["retention"]["overdue"]) == ("unhealthy", True)
    bench.retention.run()
    assert bench.health()["status"] == "healthy"


def test_a_pass_that_fails_says_so_and_counts_for_nothing(bench: Bench) -> None:
    bench.admit(1)
    with closing(sqlite3.connect(bench.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        bench.clock.advance(3 * PERIOD_MS)
        failed = bench.retention.run()
        assert (failed.status, failed.reason, failed.deleted) == ("failed", "database is locked", 0)
        assert bench.health()["status"] == "unhealthy"
    assert bench.retention.run().deleted == 1
    assert bench.health()["status"] == "healthy"


def test_a_period_is_never_longer_than_the_look_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path, lookback_ms=60_000, period_ms=10**15)
    assert bench.retention.period_ms == 60_000
    bench.graph.close()


@pytest.mark.parametrize("times", [{"lookback_ms": 0}, {"lookback_ms": -1}, {"period_ms": 0}])
def test_a_configuration_that_keeps_nothing_or_calls_nobody_is_refused(tmp_path: Path, times: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="nobody calls"):
        Bench(tmp_path, **times)


@pytest.mark.parametrize("wrong", [("--lookback-ms", "0"), ("--retention-period-ms", "0"), ("--lookback-ms", "")])
def test_serve_refuses_to_start_so(tmp_path: Path, wrong: tuple[str, str]) -> None:
    (tmp_path / "tokens").write_text("t\n")
    command = [sys.executable, "-m", "nl_cutover", "mc", "serve", "--db", tmp_path / "g", "--port", "0"]
    done = subprocess.run(
        [*command, "--token-file", tmp_path / "tokens", *wrong], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert not (tmp_path / "g").exists()


def test_the_schedule_calls_it_and_goes_on_at_once_while_there_is_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nl_cutover.memory_core.retention._NEXT_PART_S", 0.0)
    bench = Bench(tmp_path, limit=2, period_ms=60_000)
    bench.admit(1, 2, 3, 4, 5)

    async def until_pruned() -> None:
        with ThreadPoolExecutor(1) as worker:
            task = asyncio.create_task(keep(bench.retention, worker))
            async with asyncio.timeout(10):
                while bench.left():
                    await asyncio.sleep(0.01)
            task.cancel()

    asyncio.run(until_pruned())
    assert bench.retention.last is not None
    assert bench.retention.last.deleted == 1
    bench.graph.close()


def test_a_served_memory_core_prunes_by_itself(tmp_path: Path, connect: Connect) -> None:
    """Three rows, kept by a long look-back; served with the usual one, those that are older are gone soon."""
    with embedded_memory_core(tmp_path, tokens="t") as core:
        now = time.time_ns() // 1_000_000
        rows = [{"sequenceId": TOKEN, "success": True, "timestamp": at} for at in (now - 15 * DAY_MS, now, None)]
        caller = connect(core)
        assert caller.call(ADMIT, {"actions": rows}) == {"admitted": 3, "refused": 0}
        assert caller.call(HEALTH, {})["retention"]["lastPass"]["deleted"] == 0
        core.lookback_ms = RETENTION_MS
        core.restart()
        caller.open()
        end = time.monotonic() + 20
        while (last := caller.call(HEALTH, {})["retention"]["lastPass"]) is None:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert (last["status"], last["deleted"]) == ("pruned", 1)
        with closing(sqlite3.connect(core.db)) as graph:
            left = graph.execute("SELECT data FROM Nodes WHERE id LIKE 'nl-action-telemetry:%'").fetchall()
        assert sorted(json.loads(d)["properties"]["timestamp"] or 0 for (d,) in left) == [0, now]

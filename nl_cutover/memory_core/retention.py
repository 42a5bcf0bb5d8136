"""Telemetry older than the digest's look-back is deleted by Memory Core itself, on a schedule, a bounded part a pass.

Rules: neo#16202 (`nlActionDigestLookbackMs`). A row without a timestamp is never taken; no cutoff never means all.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import msgspec

from ..contract.wire import RETENTION_MS
from ..errors import UsageError
from .graph import Graph

TELEMETRY = "nl-action-telemetry"
LIMIT = 5_000  # rows of one pass
PERIOD_MS = 60 * 60 * 1000
_NEXT_PART_S = 1.0


class Pass(msgspec.Struct, frozen=True, rename="camel"):
    """What one pass came to. `at`, `cutoff`: ms since epoch."""

    at: int
    status: str  # pruned | skipped | failed
    deleted: int = 0
    cutoff: int | None = None
    reason: str = ""
    more: bool = False  # the limit ended it


class Retention:
    """One graph's retention. `clock`: ms since epoch. Raises UsageError for times that would keep nothing or all."""

    def __init__(
        self,
        graph: Graph,
        *,
        clock: Callable[[], int],
        lookback_ms: int = RETENTION_MS,
        period_ms: int = PERIOD_MS,
        limit: int = LIMIT,
    ) -> None:
        if lookback_ms <= 0 or period_ms <= 0:
            raise UsageError(
                "a Memory Core whose retention looks back over no time, or that nobody calls, is not served",
                "leave --lookback-ms and --retention-period-ms out, or give them a number above 0",
            )
        self._graph, self._clock, self._lookback_ms, self._limit = graph, clock, lookback_ms, limit
        # A period beyond the look-back would be nearly as if nobody called.
        self.period_ms = max(min(period_ms, lookback_ms), 1_000)
        self._done = clock()  # when the last pass that did its work ended; at first, the start
        self.last: Pass | None = None

    def run(self) -> Pass:
        """One pass, by the look-back."""
        now = self._clock()
        self.last = self.prune(now - self._lookback_ms)
        if self.last.status == "pruned":
            self._done = now
        return self.last

    def prune(self, older_than: int | None) -> Pass:
        """Delete what is older than a time (ms since epoch), oldest first, up to the limit."""
        now = self._clock()
        if older_than is None:
            return Pass(now, "skipped", reason="no-cutoff")
        try:
            deleted = self._graph.prune(TELEMETRY, older_than, self._limit)
        except (sqlite3.Error, OverflowError) as failure:  # a look-back of more digits than SQLite holds
            return Pass(now, "failed", cutoff=older_than, reason=str(failure))
        return Pass(now, "pruned", deleted, older_than, more=deleted == self._limit)

    @property
    def overdue(self) -> bool:
        """Whether nobody calls it: two periods went by without a pass that did its work."""
        return self._clock() - self._done > 2 * self.period_ms

    def report(self) -> dict[str, Any]:
        """What the healthcheck tells of it."""
        last = None if self.last is None else msgspec.to_builtins(self.last)
        return {"lookbackMs": self._lookback_ms, "periodMs": self.period_ms, "overdue": self.overdue, "lastPass": last}


async def keep(retention: Retention, worker: Executor) -> None:
    """Run a pass now and after each period, in the thread in which the calls run."""
    while True:
        done = await asyncio.get_running_loop().run_in_executor(worker, retention.run)
        await asyncio.sleep(_NEXT_PART_S if done.more else retention.period_ms / 1000)

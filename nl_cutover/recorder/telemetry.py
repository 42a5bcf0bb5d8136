"""Telemetry: optional, write-only, never in the way of the tool call that it tells of.

`record` takes a snapshot, appends it to a bounded queue and returns; one daemon thread projects, batches and sends.
What could not be sent yet is tried again; what may have been stored is not, because MC knows no duplicates.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import msgspec

from ..contract.telemetry import Action, batches
from ..contract.wire import BATCH_LIMIT
from ..ingress.session import Session
from ..verdicts import Delivered, NotSent, Refused
from .aggregate import Aggregate
from .connection import Connection, after_fork
from .projection import Snapshot, Tokens, project, snapshot

CAPACITY = 10_000  # records that may wait
HELD_LIMIT = 8 << 20  # characters that may wait
LINGER_S = 0.1  # how long the first record of a batch waits for others
EXIT_S = 2.0
_PAUSES_S = (0.5, 30.0)  # between two tries while MC is away: the first, the longest
_LATER = ("unreachable", "session-lost", "busy")  # kinds of NotSent that another try may end otherwise
_OVERHEAD = 500  # characters that a record counts as, beside its strings


def random_token() -> str:
    return str(uuid4())


class Stats(msgspec.Struct, frozen=True):
    """recorded = admitted + refused + dropped + failed + pending, at any moment."""

    recorded: int = 0
    admitted: int = 0
    refused: int = 0  # by MC, or before sending because MC would have
    dropped: int = 0  # the queue was full, or closed
    failed: int = 0  # sent without a known outcome, or kept out for a reason that does not pass; never sent again
    pending: int = 0


class Telemetry:
    """`enabled` False: nothing is kept, started, connected or counted.

    `capacity` bounds the records that wait. In a forked child everything starts anew and empty: what waited is its
    parent's to send, the aggregate is its parent's to write. A child that ends without atexit has to `close`.
    """

    def __init__(
        self,
        connect: Callable[[], Session],
        *,
        enabled: bool,
        aggregate: Aggregate | None = None,
        capacity: int = CAPACITY,
        new_token: Callable[[], str] = random_token,
    ) -> None:
        self.enabled = enabled
        self._connection = Connection(connect)
        self._aggregate, self._capacity, self._new_token = aggregate, capacity, new_token
        self._fresh()
        after_fork(self._forked)

    def _fresh(self) -> None:
        self._lock = threading.RLock()  # a signal handler or a finalizer may record in the midst of a record
        self._work, self._idle = threading.Condition(self._lock), threading.Condition(self._lock)
        self._queue: deque[Snapshot] = deque()
        self._held = self._in_flight = self._flushing = 0
        self._recorded = self._admitted = self._refused = self._dropped = self._failed = 0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._tokens = Tokens(self._new_token)

    def record(self, entry: Mapping[str, Any]) -> None:
        """Record one tool call (`projection` says what of it). Never raises, never waits for MC.

        What `entry` says at this moment is what is sent: the host may change it afterwards.
        """
        if not self.enabled:
            return
        try:
            held = snapshot(entry)
            if self._aggregate is not None and held.tool is not None:
                self._aggregate.add(held.tool, held.success, held.duration_ms)
        except Exception:  # whatever a host's objects raise must not cost it the call
            held = None
        with self._lock:
            self._recorded += 1
            if held is None:
                self._refused += 1
                return
            size = held.size + _OVERHEAD
            waiting = len(self._queue)
            if self._closed or waiting >= self._capacity or self._held + size > HELD_LIMIT or not self._running():
                self._dropped += 1
                return
            self._queue.append(held)
            self._held += size
            if waiting in (0, BATCH_LIMIT - 1):
                self._work.notify()

    def stats(self) -> Stats:
        with self._lock:
            known = (self._recorded, self._admitted, self._refused, self._dropped, self._failed)
            return Stats(*known, len(self._queue) + self._in_flight)

    @property
    def refused_server_requests(self) -> int:
        """How many requests that the server initiated were refused."""
        return self._connection.refused_server_requests

    def flush(self, timeout: float) -> bool:
        """Wait until nothing is pending, at most `timeout` seconds. Brings the aggregate's file up to date."""
        with self._lock:
            self._flushing += 1
            self._work.notify()
            done = self._idle.wait_for(lambda: not self._queue and not self._in_flight, timeout)
            self._flushing -= 1
        if self._aggregate is not None:
            self._aggregate.write()
        return done

    def close(self, timeout: float = EXIT_S) -> Stats:
        """Flush, then give up what still waits. Called at exit by itself; records after it are dropped."""
        self.flush(timeout)
        with self._lock:
            self._closed = True
            self._dropped += len(self._queue)
            self._queue.clear()
            self._held = 0
            self._work.notify()
        atexit.unregister(self.close)
        return self.stats()

    def _forked(self) -> None:
        self._fresh()
        self._aggregate = None

    def _running(self) -> bool:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="nl-telemetry", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # no threads left, or the interpreter is ending
                self._thread = None
                return False
            atexit.register(self.close)
        return True

    def _run(self) -> None:
        while batch := self._take():
            try:
                if self._aggregate is not None:
                    self._aggregate.write()
                self._deliver(batch)
            except Exception:  # a fault of ours must end neither the thread nor the sum
                with self._lock:
                    self._failed += self._in_flight
                    self._in_flight = 0
                    self._idle.notify_all()
        self._connection.close()

    def _take(self) -> list[Snapshot]:
        """The next records, once they are many or old enough; none when it is time to end."""
        with self._lock:
            self._work.wait_for(lambda: self._queue or self._closed)
            self._work.wait_for(
                lambda: len(self._queue) >= BATCH_LIMIT or self._flushing or self._closed, timeout=LINGER_S
            )
            taken = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_LIMIT))]
            self._held -= sum(one.size + _OVERHEAD for one in taken)
            self._in_flight = len(taken)
            return taken

    def _deliver(self, taken: list[Snapshot]) -> None:
        projected = [project(one) for one in taken]
        actions = [(self._tokens.of(one.sequence), one) for one in projected if isinstance(one, Action)]
        self._settle(refused=len(taken) - len(actions))
        for batch in batches(actions):
            count, tries = len(batch), 0
            while isinstance(outcome := self._connection.admit(batch), NotSent) and outcome.kind in _LATER:
                if not self._rest(tries):
                    break
                tries += 1
            match outcome:
                case Delivered(result=result):
                    admitted = min(max(int(result["admitted"]), 0), count)
                    self._settle(admitted=admitted, refused=count - admitted)
                case Refused():
                    self._settle(refused=count)
                case _:
                    self._settle(failed=count)

    def _rest(self, tries: int) -> bool:
        """Wait before another try; False when there is none."""
        with self._lock:
            first, longest = _PAUSES_S
            self._work.wait_for(lambda: self._flushing or self._closed, min(first * 2 ** min(tries, 10), longest))
            if self._flushing and not self._closed:
                self._work.wait_for(lambda: self._closed, first / 2)
            return not self._closed

    def _settle(self, *, admitted: int = 0, refused: int = 0, failed: int = 0) -> None:
        with self._lock:
            self._admitted += admitted
            self._refused += refused
            self._failed += failed
            self._in_flight -= admitted + refused + failed
            if not self._in_flight and not self._queue:
                self._idle.notify_all()

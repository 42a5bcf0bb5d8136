"""A run: rows enter the ledger, workers carry them, a receipt is left. The same call resumes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping

import msgspec

from ..custody.entries import ActionEntry, ArchiveEntry
from ..custody.journal import Change
from ..custody.ledger import OPEN_ARCHIVES, Ledger, move_rows
from ..errors import CutoverError, InterruptedRunError
from ..ingress.session import Session
from ..ingress.sessions import Sessions
from ..wording import counted
from .archives import ArchiveRoad
from .lives import Lives, lives_of
from .policy import Policy, TelemetryMode
from .progress import Barrier, Progress, no_barrier
from .source import Source
from .stop import Stop
from .telemetry import TelemetryRoad

_HELD = "id IN (SELECT row_id FROM origins WHERE row_table = 'actions' AND store IN (SELECT value FROM json_each(?)))"


class RunOutcome(msgspec.Struct, frozen=True):
    """`sent` counts the writing calls that left; `recovered` the rows that an earlier process left in flight.

    `waited` is in seconds, for a busy server, summed over the workers; `taken_up` counts the actions that an earlier
    command had discarded.
    """

    sent: int
    recovered: int
    stopped: CutoverError | None
    refused_server_requests: int
    waited: float = 0.0
    taken_up: int = 0


class Run:
    """Carries the rows of `source` that `ledger` still has open, with `workers` threads, one session each."""

    def __init__(
        self,
        ledger: Ledger,
        source: Source,
        policy: Policy,
        *,
        new_session: Callable[[], Session],
        identities: Mapping[str, Callable[[], Session]],
        new_token: Callable[[], str],
        progress: Progress,
        workers: int = 8,
        barrier: Barrier = no_barrier,
    ) -> None:
        self._ledger, self._source, self._policy = ledger, source, policy
        self._identities: dict[str, Callable[[], Session]] = {"": new_session, **identities}
        self._new_token, self._progress = new_token, progress
        self._workers, self._barrier = workers, barrier
        self._stop = Stop()
        self._lock = threading.Lock()
        self._sent = self._refused_requests = 0
        self._taken_up = 0
        self._waited = 0.0

    def enter(self, entries: Iterable[ArchiveEntry | ActionEntry]) -> int:
        """Bring the rows into the ledger and settle what a dead process left. Returns the rows that were in flight.

        A row that was changed on the host after it was sent is refused by name; the others are carried.
        """
        recovered = self._ledger.recover()
        self._ledger.reopen_refused()
        self._take_up_discarded()
        self._ledger.forget_unsent(self._source.stores)
        archives: list[ArchiveEntry] = []
        actions: list[ActionEntry] = []
        for entry in entries:
            if isinstance(entry, ArchiveEntry):
                archives.append(entry)
            else:
                actions.append(entry)
            if len(archives) + len(actions) >= 5000:
                self._add(archives, actions)
        self._add(archives, actions)
        self._ledger.drop_vanished()
        self._ledger.refuse_changed()
        self._ledger.refuse_absent(self._source.stores)
        self._apply_telemetry_policy()
        return recovered

    def carry(self, recovered: int = 0) -> RunOutcome:
        """Carry every open row. Ends early at a wall, or on Ctrl-C.

        The first Ctrl-C lets the calls in hand end and be journalled, and ends waits for a busy server. A second one
        waits for nothing: their rows stay intended in the ledger, which is how a killed process leaves them, and are
        in doubt until they are settled.
        """
        try:
            self._carry_archives()
            if not self._stop and self._policy.telemetry.mode is TelemetryMode.ADMIT:
                self._carry_telemetry()
        except KeyboardInterrupt:
            self._stop.set(InterruptedRunError("interrupted; what was in hand was finished and journalled"))
        self._forget_tokens()
        return RunOutcome(
            self._sent, recovered, self._stop.reason, self._refused_requests, self._waited, self._taken_up
        )

    def _forget_tokens(self) -> None:
        """Erase the token map once no row can be sent, or settled, by it any more."""
        open_rows = "state IN ('pending', 'left', 'intended', 'unknown') OR (state = 'refused' AND batch IS NOT NULL)"
        if not self._ledger.read(f"SELECT 1 FROM actions WHERE {open_rows} LIMIT 1"):
            self._ledger.commit(
                Change("DELETE FROM tokens", (), None),
                Change("UPDATE actions SET token = NULL, sent_digest = NULL WHERE token IS NOT NULL", (), None),
            )

    def _add(self, archives: list[ArchiveEntry], actions: list[ActionEntry]) -> None:
        self._ledger.add_archives(archives)
        self._ledger.add_actions(actions)
        archives.clear()
        actions.clear()

    def _apply_telemetry_policy(self) -> None:
        match self._policy.telemetry.mode:
            case TelemetryMode.ADMIT:
                to, which = "pending", "state = 'left'"
            case TelemetryMode.LEAVE:
                to, which = "left", "state = 'pending'"
            case TelemetryMode.DISCARD:
                to, which = "discarded", "(state <> 'refused' OR batch IS NULL)"
        # Only rows of the stores that this run was given: the operator counted no others.
        self._ledger.commit(move_rows("actions", to, f"{which} AND {_HELD}", self._held))

    def _take_up_discarded(self) -> None:
        """What an earlier command discarded was never sent: another word of the operator about it is heard."""
        if self._policy.telemetry.mode is TelemetryMode.DISCARD:
            return
        which = f"state = 'discarded' AND {_HELD}"
        self._taken_up = self._ledger.read(f"SELECT count(*) FROM actions WHERE {which}", self._held)[0][0]
        if self._taken_up:
            self._ledger.commit(move_rows("actions", "refused", which, self._held))  # entering decides what they are
            self._progress.note(
                counted(self._taken_up, "action|s that an earlier command discarded is|are taken up again")
            )

    @property
    def _held(self) -> tuple[str]:
        return (json.dumps(list(self._source.stores)),)

    def _carry_archives(self) -> None:
        work = self._ledger.archive_work(self._source.stores)
        lock = threading.Lock()
        total = self._ledger.read(f"SELECT count(*) FROM archives a WHERE {OPEN_ARCHIVES}")[0][0]
        self._progress.stage("archives", total)

        def worker(sessions: Sessions) -> None:
            road = ArchiveRoad(self._ledger, self._source, sessions.operations, self._stop, self._barrier)
            try:
                while not self._stop:
                    with lock:
                        item = next(work, None)
                    if item is None:
                        break
                    road.carry(item)
                    self._progress.advance()
            finally:
                road.flush()
                with self._lock:
                    self._sent += road.sent

        self._in_threads(worker, total)

    def _carry_telemetry(self) -> None:
        total = self._ledger.read("SELECT count(*) FROM actions WHERE state = 'pending'")[0][0]
        self._progress.stage("telemetry", total)
        road = TelemetryRoad(self._ledger, self._source, self.lives(), self._stop, self._new_token, self._barrier)

        def worker(sessions: Sessions) -> None:
            operations = sessions.operations("")
            while not self._stop and (done := road.carry(operations)) is not None:
                self._progress.advance(done[0])
                with self._lock:
                    self._sent += done[1]

        self._in_threads(worker, (total + 99) // 100)

    def lives(self) -> Lives:
        """Where the process lives of the telemetry begin, by this run's policy."""
        return lives_of(self._source, self._policy.life_gap_hours)

    def _in_threads(self, worker: Callable[[Sessions], None], jobs: int) -> None:
        faults: list[BaseException] = []
        ended = [threading.Event() for _ in range(min(self._workers, jobs))]

        def guarded(end: threading.Event) -> None:
            try:
                with Sessions(self._identities, self._stop.wait) as sessions:
                    try:
                        worker(sessions)
                    finally:
                        with self._lock:
                            self._refused_requests += sessions.refused_server_requests
                            self._waited += sessions.waited
            except CutoverError as error:
                self._stop.set(error)
            except BaseException as error:
                faults.append(error)
                self._stop.set(InterruptedRunError("a fault of this program stopped the run"))
            finally:
                end.set()

        for number, end in enumerate(ended):
            threading.Thread(target=guarded, args=(end,), name=f"nl-cutover-{number}", daemon=True).start()
        try:
            _wait(ended)
        except KeyboardInterrupt:
            try:  # from here on the next one may come at any line
                self._stop.set(InterruptedRunError("interrupted; what was in hand was finished and journalled"))
                self._progress.note("interrupted: finishing the calls in hand, then stopping; again: stop at once")
                _wait(ended)
            except KeyboardInterrupt:
                left = sum(not end.is_set() for end in ended)
                self._stop.reason = InterruptedRunError(
                    "interrupted twice; "
                    + counted(left, "worker|s was|were left in its|their call, and what became of that is unknown")
                )
        if faults:
            raise faults[0]


def _wait(ended: list[threading.Event]) -> None:
    # Events, not Thread.join: a join that Ctrl-C interrupts takes a running thread for stopped (CPython 3.11).
    for end in ended:
        while not end.wait(0.2):  # a bounded wait, so that Ctrl-C is heard
            pass

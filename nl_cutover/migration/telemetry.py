"""The road of the telemetry: batches under random tokens, each intended before it leaves. Nothing is ever read back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from ..contract.rows import ACTIONS
from ..contract.telemetry import Action, admit_arguments, batches, project
from ..custody.journal import Change
from ..custody.ledger import ActionWork, Ledger
from ..ingress.operations import Operations
from ..verdicts import Delivered, NotSent, Refused, Unknown
from .lives import Lives
from .progress import Barrier, no_barrier
from .source import Source
from .stop import Stop

Batch = list[tuple[ActionWork, Action]]


class Tokens:
    """One random token for each (store, process life, host sequence), stable over resumes, known to the ledger alone.

    A row without a sequence is a group of its own, named by its key.
    """

    def __init__(self, ledger: Ledger, lives: Lives, new_token: Callable[[], str]) -> None:
        self._lives, self._new_token = lives, new_token
        self._known: dict[tuple[str, bytes], str] = {
            (store, bytes(name)): token for store, name, token in ledger.read("SELECT store, name, token FROM tokens")
        }

    def known(self, work: ActionWork, action: Action) -> str | None:
        """The token that this row was, or would have been, sent under; None when it never was."""
        return self._known.get((work.store, self._name(work, action)))

    def of(self, batch: Batch) -> tuple[list[str], list[Change]]:
        """The tokens of a batch in order, and the changes that make new ones durable."""
        tokens, changes = [], []
        for work, action in batch:
            name = (work.store, self._name(work, action))
            if (token := self._known.get(name)) is None:
                token = self._known[name] = self._new_token()
                changes.append(Change("INSERT INTO tokens (store, name, token) VALUES (?, ?, ?)", (*name, token)))
            tokens.append(token)
        return tokens, changes

    def _name(self, work: ActionWork, action: Action) -> bytes:
        if action.sequence is None:
            return b"row:" + work.key.encode("utf-8", "surrogatepass")
        life = self._lives.of(work.store, action.sequence, action.timestamp)
        return b"life:%d:" % life + action.sequence


class TelemetryRoad:
    """Hands out batches to workers and journals what became of them."""

    def __init__(
        self,
        ledger: Ledger,
        source: Source,
        lives: Lives,
        stop: Stop,
        new_token: Callable[[], str],
        barrier: Barrier = no_barrier,
    ) -> None:
        self._ledger, self._source, self._stop, self._barrier = ledger, source, stop, barrier
        self._tokens = Tokens(ledger, lives, new_token)
        self._lock = threading.Lock()
        self._batches = batches(self._projected())
        self._next = int(ledger.read("SELECT coalesce(max(id), 0) + 1 FROM batches")[0][0])

    def carry(self, operations: Operations) -> int | None:
        """Send the next batch. Returns its size, or None when there is none left."""
        with self._lock:
            batch = next(self._batches, None)
            if batch is None:
                return None
            tokens, changes = self._tokens.of(batch)
            number, self._next = self._next, self._next + 1
        rows = f"WHERE id IN ({', '.join('?' * len(batch))})"
        ids = tuple(work.id for work, _ in batch)
        self._ledger.commit(
            *changes,
            Change(
                "INSERT INTO batches (id, state, size, intended_at) VALUES (?, 'intended', ?, ?)",
                (number, len(batch), self._ledger.now()),
            ),
            Change(
                f"UPDATE actions SET state = 'intended', batch = ?, reason = '' {rows} AND state = 'pending'",
                (number, *ids),
                len(batch),
            ),
        )
        arguments = admit_arguments((token, action) for token, (_, action) in zip(tokens, batch, strict=True))
        self._barrier("after batch intent")
        outcome = operations.admit(arguments, len(batch))
        self._barrier("after batch answer")
        state, to, admitted, reason = _verdict(outcome, len(batch))
        self._ledger.commit(
            Change(
                "UPDATE batches SET state = ?, admitted = ?, reason = ? WHERE id = ? AND state = 'intended'",
                (state, admitted, reason, number),
            ),
            Change(
                f"UPDATE actions SET state = ?, reason = ?, batch = {'NULL' if to == 'pending' else 'batch'} {rows} "
                "AND state = 'intended'",
                (to, reason, *ids),
                len(batch),
            ),
        )
        if isinstance(outcome, NotSent):
            self._stop.at_wall(outcome)
        return len(batch)

    def _projected(self) -> Iterator[tuple[ActionWork, Action]]:
        for work in self._ledger.action_work():
            action = project(self._source.fetch(work.store, ACTIONS, work.key, work.digest))
            if isinstance(action, Action):  # what cannot be sent was refused by the plan and is not pending
                yield work, action


def _verdict(outcome: Delivered | Refused | NotSent | Unknown, size: int) -> tuple[str, str, int, str]:
    """(state of the batch, state of its rows, admitted, reason)"""
    match outcome:
        case Delivered(result=result):
            admitted = int(result["admitted"])
            if admitted == size:
                return "admitted", "admitted", size, ""
            if admitted == 0:
                return "refused", "refused", 0, "MC refused every row of the batch"
            return "mixed", "unknown", admitted, f"MC refused {size - admitted} of {size} and does not say which"
        case Refused(reason=reason) | NotSent(kind="too-large", reason=reason):
            return "refused", "refused", 0, reason
        case NotSent(reason=reason):
            return "not-sent", "pending", 0, reason
        case Unknown(reason=reason):
            return "unknown", "unknown", 0, reason

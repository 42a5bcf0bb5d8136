"""The road of the telemetry: batches under random tokens, each intended before it leaves. Nothing is ever read back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from ..contract import javascript as js
from ..contract.rows import ACTIONS
from ..contract.telemetry import Action, action_digest, admit_arguments, batches, project
from ..custody.entries import ActionWork
from ..custody.journal import Change
from ..custody.ledger import Ledger, move_action, move_rows
from ..errors import RefusedError
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

    def carry(self, operations: Operations) -> tuple[int, bool] | None:
        """Send the next batch. Returns its size and whether it left, or None when there is none to send."""
        with self._lock:  # held over the commit: no batch leaves under a token that another commit has yet to keep
            batch = next(self._batches, None)
            if batch is None:
                return None
            number, self._next = self._next, self._next + 1
            tokens = self._intend(number, batch)
        rows = f"id IN ({', '.join('?' * len(batch))})"
        ids = tuple(work.id for work, _ in batch)
        arguments = admit_arguments((token, action) for token, (_, action) in zip(tokens, batch, strict=True))
        self._barrier("after batch intent")
        outcome = operations.admit(arguments, len(batch))
        self._barrier("after batch answer")
        state, to, admitted, reason = _verdict(outcome, len(batch))
        proven = outcome.proven if isinstance(outcome, Refused) else not isinstance(outcome, Unknown)
        self._ledger.commit(
            move_rows(
                "batches",
                state,
                "id = ? AND state = 'intended'",
                (admitted, reason, int(proven), self._ledger.now(), number),
                also="admitted = ?, reason = ?, proven = ?, given_up_at = ?",
                rows=1,
            ),
            move_rows(
                "actions",
                to,
                f"{rows} AND state = 'intended'",
                (reason, *ids),
                also=f"reason = ?, batch = {'NULL' if to == 'pending' else 'batch'}",
                rows=len(batch),
            ),
        )
        if isinstance(outcome, NotSent):
            self._stop.at_wall(outcome)
        return len(batch), not isinstance(outcome, NotSent)

    def _intend(self, number: int, batch: Batch) -> list[str]:
        """Make the intent durable: the batch, its rows, and under which token and with which content each leaves."""
        tokens, changes = self._tokens.of(batch)
        changes.append(
            Change(
                "INSERT INTO batches (id, state, size, intended_at) VALUES (?, 'intended', ?, ?)",
                (number, len(batch), self._ledger.now()),
            )
        )
        for token, (work, action) in zip(tokens, batch, strict=True):
            sent = {
                "batch": number,
                "reason": "",
                "token": token,
                "sent_digest": action_digest(js.parse(action.encode(token))),
            }
            changes.append(move_action(work.id, "intended", **sent))
        self._ledger.commit(*changes)
        return tokens

    def _projected(self) -> Iterator[tuple[ActionWork, Action]]:
        for work in self._ledger.action_work(self._source.stores):
            try:
                action = project(self._source.fetch(work.store, ACTIONS, work.key, work.digest))
            except RefusedError:
                continue  # the host took it back; it stays pending and is named there
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

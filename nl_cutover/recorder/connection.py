"""One session to the ingress for several threads: opened when it is first needed, by one of them, within 5 seconds."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping

from ..contract.telemetry import Action, admit_arguments
from ..contract.wire import DEFAULT_TOKEN_ENV, DEFAULT_URL
from ..errors import CutoverError
from ..ingress.endpoint import Endpoint, token_from_environment
from ..ingress.operations import Operations
from ..ingress.session import Session
from ..verdicts import Delivery, NotSent

CONNECT_S = 5.0
_OF_THE_CALL = ("too-large", "busy")  # kinds of NotSent that tell nothing about the next call


def connector(
    environ: Mapping[str, str],
    *,
    url: str = DEFAULT_URL,
    slot: str = DEFAULT_TOKEN_ENV,
    cleartext: bool = False,
    call_timeout: float = 30.0,
) -> Callable[[], Session]:
    """What makes a session with the token that stands in `slot` then; until it is called, no token is needed."""

    def connect() -> Session:
        token = token_from_environment(environ, slot)
        endpoint = Endpoint(
            url,
            token,
            cleartext=cleartext,
            connect_timeout=CONNECT_S,
            call_timeout=call_timeout,
            wait_budget=CONNECT_S,
        )
        return Session(endpoint, open_timeout=CONNECT_S)

    return connect


class Connection:
    """Calls run one at a time. A failed connect is shared by those who waited for it, and by nobody later.

    What a signal handler or a finalizer asks in the midst of a call of its own thread is NotSent; a close waits for the
    end of that call.
    """

    def __init__(self, connect: Callable[[], Session]) -> None:
        self._connect = connect
        self._fresh()
        after_fork(self._fresh)

    def _fresh(self) -> None:
        # In a forked child the session is its parent's, and the lock may be held by a thread that is not there.
        self._lock = threading.RLock()  # its owner may come a second time, see the class
        self._calling = self._closing = False
        self._session: Session | None = None
        self._failures = self._refused_before = 0
        self._failure = NotSent("unreachable", "")

    def call(self, do: Callable[[Operations], Delivery]) -> Delivery:
        """What became of one call. A missing credential is NotSent, like everything that happens before sending."""
        seen = self._failures
        with self._lock:
            if self._calling:
                return NotSent("busy", "asked in the midst of another call of the same thread")
            if self._failures != seen:
                return self._failure
            self._calling = True
            try:
                return self._called(do)
            finally:
                self._calling = False
                if self._closing:
                    self._closing = False
                    self._end()

    def _called(self, do: Callable[[Operations], Delivery]) -> Delivery:
        try:
            if self._session is None:
                self._session = self._connect()
            outcome = do(Operations(self._session))
            if _refuses_the_token(outcome):  # it was not executed: what stands in the slot by now may be another
                outworn = self._session.endpoint.token.reveal()
                self._end()
                self._session = self._connect()
                if self._session.endpoint.token.reveal() != outworn:
                    outcome = do(Operations(self._session))
        except CutoverError as error:
            outcome = NotSent("credentials", error.message)
        if isinstance(outcome, NotSent) and outcome.kind not in _OF_THE_CALL:
            self._failure = outcome
            self._failures += 1
            if _refuses_the_token(outcome):
                self._end()  # the next call takes the token that stands in the slot then
        return outcome

    def admit(self, batch: list[tuple[str, Action]]) -> Delivery:
        """Admit (token, action) pairs that fit into one request."""
        arguments = admit_arguments(batch)
        return self.call(lambda to: to.admit(arguments, len(batch)))

    @property
    def refused_server_requests(self) -> int:
        """How many requests that the server initiated were refused."""
        session = self._session
        return self._refused_before + (session.refused_server_requests if session is not None else 0)

    def close(self) -> None:
        with self._lock:
            if self._calling:
                self._closing = True
            else:
                self._end()

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._refused_before += session.refused_server_requests
            session.close()


def _refuses_the_token(outcome: Delivery) -> bool:
    return isinstance(outcome, NotSent) and outcome.kind == "credentials"


def after_fork(method: Callable[[], None]) -> None:
    """Call a bound method in every child that this process forks, as long as its object lives."""
    weak = weakref.WeakMethod(method)

    def run() -> None:
        if (bound := weak()) is not None:
            bound()

    os.register_at_fork(after_in_child=run)

"""One flag for all workers: why the run ends early, and that it does."""

from __future__ import annotations

import threading

from ..errors import CredentialsError, CutoverError, RefusedError, UnreachableError
from ..verdicts import NotSent

# After one of these every further row would meet the same wall.
_WALLS = frozenset({"credentials", "unreachable", "host", "redirect", "session-lost", "busy"})


class Stop:
    """Set once; the first reason wins. Workers finish the row in hand and take no other."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self.reason: CutoverError | None = None

    def __bool__(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait that long, or until it is set. Whether it is."""
        return self._event.wait(seconds)

    def set(self, reason: CutoverError) -> None:
        with self._lock:
            if self.reason is None:
                self.reason = reason
        self._event.set()

    def at_wall(self, failure: NotSent) -> bool:
        """Whether this failure ends the run; if so, it does."""
        if failure.kind not in _WALLS:
            return False
        match failure.kind:
            case "credentials":
                hint = "put a token of the same identity into its slot"
                self.set(CredentialsError(f"the ingress no longer takes the token: {failure.reason}", hint))
            case "host" | "redirect":
                self.set(RefusedError(f"the ingress refuses the request: {failure.reason}"))
            case _:
                hint = "see why Memory Core does not answer, and start it"
                self.set(UnreachableError(f"the ingress cannot be reached any more: {failure.reason}", hint))
        return True

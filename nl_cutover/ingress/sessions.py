"""One session an identity, for one thread: MC makes an archive private to the bearer that saved it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..errors import CredentialsError
from .operations import Operations
from .session import Session


class Sessions:
    """Opens the session of a credential slot when it is first needed; "" is the default token.

    `sleep` is how they wait for a busy server, see `Session`.
    """

    def __init__(
        self, factories: Mapping[str, Callable[[], Session]], sleep: Callable[[float], object] | None = None
    ) -> None:
        self._factories, self._sleep = factories, sleep
        self._open: dict[str, Session] = {}

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._open.values():
            session.close()

    def operations(self, identity: str) -> Operations:
        """The four operations under an identity. Raises CredentialsError for a slot that nobody named."""
        if identity not in self._factories:
            raise CredentialsError(
                f"rows were saved under the credential slot {identity}, which is not named any more",
                "put it back under [identities] in the settings",
            )
        if identity not in self._open:
            session = self._open[identity] = self._factories[identity]()
            session.sleep = self._sleep or session.sleep
        return Operations(self._open[identity])

    @property
    def waited(self) -> float:
        """Seconds spent on waiting for a busy server."""
        return sum(session.waited for session in self._open.values())

    @property
    def refused_server_requests(self) -> int:
        return sum(session.refused_server_requests for session in self._open.values())

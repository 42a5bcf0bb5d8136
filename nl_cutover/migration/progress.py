"""The one protocol by which a run tells how far it is. `output` implements it; the library never prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

# A named point of the road, told when it is reached. Tests end the process there; nothing else needs it.
Barrier = Callable[[str], None]


def no_barrier(_: str) -> None:
    pass


class Progress(Protocol):
    def stage(self, name: str, total: int) -> None:
        """A stage begins; `total` rows are ahead."""

    def advance(self, rows: int = 1) -> None:
        """Rows of the stage that are done, whatever became of them. Called from any thread."""

    def note(self, sentence: str) -> None:
        """Something that an operator should read now."""


class Silent:
    """Progress that nobody watches."""

    def stage(self, name: str, total: int) -> None:
        pass

    def advance(self, rows: int = 1) -> None:
        pass

    def note(self, sentence: str) -> None:
        pass

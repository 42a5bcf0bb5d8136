"""Process lives: the host's turn counter starts anew with each process, so one sequence id can name two turns.

They are told apart by a gap in time: rows of one sequence that lie further apart than the gap are of two lives. The gap
is the operator's to choose: too small splits a turn, too large merges strangers. Times that are no milliseconds of this
century say nothing and split nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from .source import Source

GAP_HOURS = 96


class Lives:
    """Where the lives of each (store, sequence) begin; sequences of a single life are not kept."""

    def __init__(self, begins: Mapping[tuple[str, bytes], Sequence[float]]) -> None:
        self._begins = begins

    @property
    def split(self) -> int:
        """How many sequences were told apart."""
        return len(self._begins)

    def of(self, store: str, sequence: bytes, timestamp: float | None) -> int:
        """The number of the life, from 0. A row without a time belongs to the first."""
        begins = self._begins.get((store, sequence), ())
        if timestamp is None:
            return 0
        at = bisect_left(begins, timestamp)
        return at + 1 if at < len(begins) and begins[at] == timestamp else at


def lives_of(source: Source, gap_hours: float) -> Lives:
    """Find the gaps in every snapshot; memory grows with the number of split sequences alone."""
    begins: dict[tuple[str, bytes], list[float]] = {}
    for store in source.stores.values():
        for sequence, at in source.gaps(store, gap_hours * 3_600_000):
            begins.setdefault((store.id, sequence), []).append(at)
    return Lives(begins)

"""What MC holds, as evidence: an interface, and the reader for a graph file that can be reached read-only.

Nothing of MC's own code is run, because importing it opens and stamps the graph. Node layout: GraphService (neo#16202).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from ..contract import javascript as js
from ..contract.archives import COMPARED
from ..contract.telemetry import action_digest
from ..errors import UnmeasurableError
from ..stores.holders import UNKNOWN, holders_of
from ..stores.identity import Located, resolve
from ..stores.reader import Opened, read_store

ARCHIVE_LABEL = "nl-transaction-archive"
ACTION_LABEL = "nl-action-telemetry"
T = TypeVar("T")


class StoredArchive(msgspec.Struct, frozen=True):
    """An archive node. `digest` is over the fields that a save carries; `stored_at` is MC's clock, ms since epoch."""

    archive_id: str
    source_tx_id: str | None
    digest: str
    stored_at: float
    replays: int


class Evidence(Protocol):
    """Where outcomes can be looked up. `words` names it in receipts.

    `tied`: it is known to be the graph behind the run's ingress, whatever it holds.
    """

    @property
    def tied(self) -> bool: ...

    @property
    def words(self) -> str: ...

    @property
    def as_of(self) -> float:
        """The moment up to which an absence may be believed, by this host's clock, ms since epoch."""
        ...

    def archives(self) -> Iterable[StoredArchive]:
        """Every archive node, whoever owns it. Walked once."""
        ...

    def actions(self, tokens: Collection[str]) -> Counter[str]:
        """The admitted rows under these tokens, as a multiset of `action_digest`s."""
        ...


class GraphFile:
    """Evidence from the graph's SQLite file: an embedded MC's, or a consistent copy of one. Any plane's, as it stands."""

    tied = False

    def __init__(self, path: Path, clock: Callable[[], float] = lambda: time.time() * 1000) -> None:
        located = resolve(path)
        if not isinstance(located, Located):
            raise UnmeasurableError(f"the graph {path}: {located.reason}", "name a graph file that is there")
        self._located, self._clock = located, clock
        self.words = f"graph file {path}"

    @property
    def as_of(self) -> float:
        """Now, while a process holds the file; else when it was last written: an old copy tells nothing of a later call."""
        if holders_of([self._located])[self._located.identity.id].processes:
            return self._clock()
        times = [os.stat(self._located.path).st_mtime_ns]
        for suffix in ("-wal", "-shm"):
            try:
                times.append(os.stat(f"{self._located.path}{suffix}").st_mtime_ns)
            except FileNotFoundError:
                pass
        return max(times) / 1_000_000

    def archives(self) -> list[StoredArchive]:
        # A reading may begin anew, so nothing is handed out before it has ended; digests stand for the ops.
        return self._read(
            lambda opened: [stored_archive(properties) for properties in _properties(opened, ARCHIVE_LABEL)]
        )

    def actions(self, tokens: Collection[str]) -> Counter[str]:
        wanted = set(tokens)
        return self._read(
            lambda opened: Counter(
                action_digest(properties)
                for properties in _properties(opened, ACTION_LABEL)
                if properties.get("sequenceId") in wanted
            )
        )

    def _read(self, work: Callable[[Opened], T]) -> T:
        return read_store(self._located, UNKNOWN, work)[0]


def _properties(opened: Opened, label: str) -> Iterator[dict[str, Any]]:
    opened.connection.text_factory = str
    for (data,) in opened.connection.execute(
        "SELECT data FROM main.Nodes WHERE CASE WHEN json_valid(data) THEN json_extract(data, '$.label') END = ?",
        (label,),
    ):
        node = js.parse(data)
        if isinstance(node, dict) and isinstance(node.get("properties"), dict):
            yield node["properties"]


def stored_archive(properties: dict[str, Any]) -> StoredArchive:
    """From an archive node's properties."""
    fields = {name: properties.get(name) for name in COMPARED}
    if properties.get("name") == properties.get("archiveId"):
        fields["name"] = None  # a mark named it (GraphService.upsertNode)
    return StoredArchive(
        archive_id=str(properties.get("archiveId")),
        source_tx_id=properties.get("sourceTxId"),
        digest=js.digest(fields),
        stored_at=float(properties.get("archivedAt") or 0),
        replays=int(properties.get("replayCount") or 0),
    )

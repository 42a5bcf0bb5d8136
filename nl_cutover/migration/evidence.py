"""What MC holds, as evidence: an interface, and the reader for a graph file that can be reached read-only.

Nothing of MC's own code is run, because importing it opens and stamps the graph. Node layout: GraphService (neo#16202).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from ..contract import javascript as js
from ..contract.archives import COMPARED
from ..errors import UnmeasurableError
from ..stores.holders import UNKNOWN
from ..stores.identity import Located, resolve
from ..stores.reader import Opened, read_store

ARCHIVE_LABEL = "nl-transaction-archive"
ACTION_LABEL = "nl-action-telemetry"
ACTION_FIELDS = ("sequenceId", "sessionId", "timestamp", "tool", "success", "durationMs", "appName", "targets")
T = TypeVar("T")


class StoredArchive(msgspec.Struct, frozen=True):
    """An archive node. `digest` is over the fields that a save carries; `stored_at` is MC's clock, ms since epoch."""

    archive_id: str
    source_tx_id: str | None
    digest: str
    stored_at: float
    replays: int


class Evidence(Protocol):
    """Where outcomes can be looked up. `words` names it in receipts."""

    @property
    def words(self) -> str: ...

    def archives(self, source_tx_ids: Collection[str]) -> list[StoredArchive]:
        """Every archive node with one of these `sourceTxId`s, whoever owns it."""
        ...

    def actions(self, tokens: Collection[str]) -> Counter[str]:
        """The admitted rows under these tokens, as a multiset of `action_digest`s."""
        ...


def action_digest(fields: dict[str, Any]) -> str:
    """SHA-256 of an admitted row's eight fields; an absent one is null, as MC stores it."""
    return js.digest({name: fields.get(name) for name in ACTION_FIELDS})


class GraphFile:
    """Evidence from the graph's SQLite file: an embedded MC's, or a consistent copy of one."""

    def __init__(self, path: Path) -> None:
        located = resolve(path)
        if not isinstance(located, Located):
            raise UnmeasurableError(f"the graph {path}: {located.reason}", "name a graph file that is there")
        self._located = located
        self.words = f"graph file {path}"

    def archives(self, source_tx_ids: Collection[str]) -> list[StoredArchive]:
        wanted = set(source_tx_ids)
        return [
            _stored(properties)
            for properties in self._read(lambda opened: _properties(opened, ARCHIVE_LABEL))
            if properties.get("sourceTxId") in wanted
        ]

    def actions(self, tokens: Collection[str]) -> Counter[str]:
        wanted = set(tokens)
        return Counter(
            action_digest(properties)
            for properties in self._read(lambda opened: _properties(opened, ACTION_LABEL))
            if properties.get("sequenceId") in wanted
        )

    def _read(self, work: Callable[[Opened], T]) -> T:
        return read_store(self._located, UNKNOWN, work)[0]


def _properties(opened: Opened, label: str) -> list[dict[str, Any]]:
    opened.connection.text_factory = str
    found = opened.connection.execute(
        "SELECT data FROM main.Nodes WHERE json_extract(data, '$.label') = ?", (label,)
    ).fetchall()
    nodes = [js.parse(data) for (data,) in found]
    return [node["properties"] for node in nodes if isinstance(node, dict) and isinstance(node.get("properties"), dict)]


def _stored(properties: dict[str, Any]) -> StoredArchive:
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

"""Where sessions and memories come from: Chroma through its own client, or JSON lines for those without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ..errors import UnmeasurableError, UnreachableError, UsageError
from .ingestion import Metadata, Row, Unreadable

SESSIONS = "neo-agent-sessions"  # the collections' names in a Memory Core (neo#10143)
MEMORIES = "neo-agent-memory"

_PAGE = 1_000  # rows of one request to Chroma


def read_jsonl(path: Path) -> Iterator[Row | Unreadable]:
    """One row a line: `{"kind": "session" | "memory", "id": CHROMA_ID, "metadata": {...}}`; blank lines are skipped.

    Raises UnmeasurableError when the file cannot be read.
    """
    decoder = msgspec.json.Decoder(Row)
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    yield decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
                    yield Unreadable(f"line {number}", str(failure))
    except OSError as failure:
        raise UnmeasurableError(f"{path} cannot be read: {failure.strerror}") from None


def read_chroma(url: str, *, sessions: str = SESSIONS, memories: str = MEMORIES) -> Iterator[Row | Unreadable]:
    """The rows of both collections, metadata alone.

    Raises UsageError without the extra `nl-cutover[chroma]`, UnreachableError when Chroma or a collection does not
    answer, UnmeasurableError when a collection changed while it was read.
    """
    try:
        import chromadb
        from chromadb.config import Settings
    except ImportError:
        raise UsageError("reading Chroma needs its client", "pip install 'nl-cutover[chroma]'") from None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url} is no URL of a Chroma server", "use a URL like http://127.0.0.1:8000")
    try:
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        settings = Settings(anonymized_telemetry=False)
        client = chromadb.HttpClient(parts.hostname, port, secure, settings=settings)
        for kind, name in (("session", sessions), ("memory", memories)):
            yield from _collection(client.get_collection(name, embedding_function=None), kind)
    except UnmeasurableError:
        raise
    except Exception as failure:  # its client raises what httpx, requests or the server made of it
        raise UnreachableError(
            f"Chroma at {url}: {failure}", "check the URL and the names of the collections"
        ) from None


def _collection(collection: Any, kind: str) -> Iterator[Row | Unreadable]:
    expected, read = collection.count(), 0
    while (page := collection.get(limit=_PAGE, offset=read, include=["metadatas"]))["ids"]:
        for row_id, metadata in zip(page["ids"], page["metadatas"], strict=True):
            yield Row(kind, row_id, msgspec.convert(metadata or {}, Metadata))
        read += len(page["ids"])
    if not expected == read == collection.count():
        raise UnmeasurableError(f"the collection {collection.name} changed while it was read", "run the command again")

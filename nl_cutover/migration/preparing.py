"""From a measurement to private snapshots; and the facts that every receipt states."""

from __future__ import annotations

import platform
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from .. import __version__
from ..errors import UnmeasurableError
from ..stores.private import private_folder
from ..stores.report import Report
from ..stores.snapshot import snapshot
from .source import Source, SourceStore


def utc(ms: int) -> str:
    """ISO 8601, UTC, with milliseconds."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def require_measured(report: Report) -> None:
    """Raises UnmeasurableError naming the first checkout, store or table that could not be read."""
    for checkout in report.checkouts:
        if checkout.state == "unmeasurable":
            raise UnmeasurableError(
                f"checkout {checkout.seat} ({checkout.path}): {checkout.reason}",
                "nothing was sent; mend it, then again",
            )
    for store in report.stores:
        for table in store.tables:
            if table.state == "unmeasurable":
                raise UnmeasurableError(
                    f"{table.name} in store {store.path}: {table.reason}", "nothing was sent; mend it, then again"
                )
    if not report.stores:
        raise UnmeasurableError(
            "no store was found in any checkout", "name checkouts that hold .neo-ai-data, or their store files"
        )


@contextmanager
def source_of(report: Report) -> Iterator[Source]:
    """Private snapshots of the measured stores, gone afterwards. Raises UnmeasurableError when one cannot be taken."""
    require_measured(report)
    with private_folder() as folder:
        stores = [SourceStore(store.path, snapshot(store, folder)) for store in report.stores]
        with Source(stores) as source:
            yield source


def measured_facts(report: Report) -> dict[str, Any]:
    """What a receipt keeps of a measurement: which physical files, by which names, how read, how many rows."""
    return {
        "checkouts": [{"seat": c.seat, "path": c.path, "state": c.state, "store": c.store} for c in report.checkouts],
        "stores": [
            {
                "id": s.id,
                "path": s.path,
                "aliases": list(s.aliases),
                "open_mode": s.open_mode,
                "seal": msgspec.to_builtins(s.seal),
                "tables": [
                    {
                        "name": t.name,
                        "state": t.state,
                        "rows": t.rows,
                        "zero": t.zero and str(t.zero),
                        "unaccounted": t.unaccounted,
                    }
                    for t in s.tables
                ],
            }
            for s in report.stores
        ],
    }


def tool_facts() -> dict[str, str]:
    return {
        "name": "nl-cutover",
        "version": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "platform": sys.platform,
        "host": socket.gethostname(),
    }

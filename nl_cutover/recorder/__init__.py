"""The steady state: what a host records after the cut. It keeps no store and offers no way to read telemetry.

Two contracts, kept apart (neo#16202): `Telemetry` is optional, gated off by default and write-only; `Archive` is
mandatory and never gated. Both speak to Memory Core's ingress and to nothing else; neither falls back to a local file.

    connect = connector(os.environ)
    telemetry = Telemetry(connect, enabled=logging_enabled(os.environ))
    archive = Archive(connect)
"""

from .aggregate import Aggregate, Counted, disposable_aggregate, read_aggregate
from .archive import Archive, Found, Marked, NotFound, NotMarked, Refused, Saved, Unavailable
from .connection import connector
from .policy import logging_enabled
from .telemetry import Stats, Telemetry

__all__ = [
    "Aggregate",
    "Archive",
    "Counted",
    "Found",
    "Marked",
    "NotFound",
    "NotMarked",
    "Refused",
    "Saved",
    "Stats",
    "Telemetry",
    "Unavailable",
    "connector",
    "disposable_aggregate",
    "logging_enabled",
    "read_aggregate",
]

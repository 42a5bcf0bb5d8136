"""The gate: telemetry is a seat's declared intent (neo#16207)."""

from __future__ import annotations

from collections.abc import Mapping

from ..contract.leaves import ACTION_LOGGING, switch


def logging_enabled(environ: Mapping[str, str]) -> bool:
    """Whether `NEO_NL_ACTION_LOGGING` says outright that it is on. Unset, empty and unreadable mean off."""
    return switch(environ.get(ACTION_LOGGING)) is True

"""Configuration leaves that both sides of the cut read, and how a boolean one is said (neo#16202, PR#16209)."""

from __future__ import annotations

ACTION_LOGGING = "NEO_NL_ACTION_LOGGING"
DIGEST_LOOKBACK_MS = "NEO_NL_ACTION_DIGEST_LOOKBACK_MS"

_OFF = frozenset({"0", "false", "off", "no"})
_ON = frozenset({"1", "true", "on", "yes"})


def switch(value: str | None) -> bool | None:
    """A boolean leaf: True and False when it is said outright, None when it is unset or anything else."""
    word = (value or "").strip().lower()
    return False if word in _OFF else True if word in _ON else None

"""Sentences that agree with the number in them."""

from __future__ import annotations

import re

_PAIR = re.compile(r"(\w+)\|(\w+)")


def fitted(count: float | None, words: str) -> str:
    """`words` with the left of each `one|many` where `count` is 1, else the right; `row|s` is short for `row|rows`.

    For words of this program alone.
    """
    return _PAIR.sub(lambda pair: pair[1] if count == 1 else pair[1] + "s" if pair[2] == "s" else pair[2], words)


def counted(count: float | None, words: str) -> str:
    """The count before what `fitted` says: `counted(1, "row|s has|have a key")` is "1 row has a key"."""
    return f"{count} {fitted(count, words)}"

"""One id, two contents: which of them is sent is the operator's word, `ARCHIVE=STORE`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from ..contract.rows import ARCHIVES
from ..errors import RefusedError, UsageError
from .source import Source


class Left(msgspec.Struct, frozen=True):
    """A row that was not chosen: it stays on the host and is accounted for. `content` is its content digest."""

    store: str
    content: str


class Choice(msgspec.Struct, frozen=True):
    """The archive `key` is sent as `store` holds it, with the content digest `content`."""

    key: str
    store: str
    content: str
    left: list[Left] = []


def parse_choices(words: Sequence[str]) -> dict[str, str]:
    """`ARCHIVE=STORE` each. Raises UsageError."""
    choices: dict[str, str] = {}
    for word in words:
        key, _, store = word.rpartition("=")
        if not key or not store:
            raise UsageError(f"--choose takes ARCHIVE=STORE, not {word!r}", "STORE as `nl-cutover measure` prints it")
        if choices.setdefault(key, store) != store:
            raise UsageError(f"--choose names two stores for archive {key}", "choose one")
    return choices


def chosen(source: Source, choices: Mapping[str, str]) -> dict[str, Choice]:
    """By key, what is sent. Raises UsageError for a store that is not one of the source, or not one alone.

    Raises RefusedError for a store that does not hold the archive once.
    """
    made = {}
    for key, word in choices.items():
        store = _store(source, word)
        try:
            rows = source.find(store, ARCHIVES, key)
        except ValueError:
            rows = []
        if len(rows) != 1:
            raise RefusedError(
                f"store {store} holds archive {key} {len(rows)} times: it cannot be chosen there", "nothing was sent"
            )
        made[key] = Choice(key, store, rows[0].content_digest)
    return made


def with_left(made: Mapping[str, Choice], left: Mapping[str, list[Left]]) -> list[Choice]:
    """The choices with the rows that each leaves behind. Raises RefusedError where there was nothing to choose."""
    for key in made:
        if key not in left:
            raise RefusedError(
                f"archive {key} has one content in all stores of this run: there is nothing to choose",
                "leave that --choose out, or name the checkout of the other store too",
            )
    return [msgspec.structs.replace(choice, left=left[key]) for key, choice in sorted(made.items())]


def _store(source: Source, word: str) -> str:
    path = os.path.realpath(word)
    found = [s.id for s in source.stores.values() if word in (s.id, s.path) or s.path == path]
    found = found or [name for name in source.stores if name.startswith(word)]
    if len(found) != 1:
        what = "no store of this run" if not found else f"several stores: {', '.join(sorted(found))}"
        raise UsageError(
            f"--choose: {word} names {what}", f"the stores are {', '.join(sorted(source.stores))}, or their paths"
        )
    return found[0]

"""What is written down of a file: its loads, and the code within its strings."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from .folding import Folder, Values
from .rules import Loaders
from .source import Chain, Source


class Load(NamedTuple):
    """One place that loads. `what`: module, native, binding, script, typed or code; code that is known is not listed,
    but what it loads. `texts` are what may be loaded, `complete` says that nothing else is."""

    line: int
    last_line: int
    form: str
    what: str
    texts: tuple[str, ...] = ()
    complete: bool = False
    literal: bool = False


class Code(NamedTuple):
    line: int
    last_line: int
    form: str
    source: Source


class Loads:
    """Collects the loads of one file; `todo` are values that can load and have not been followed yet."""

    def __init__(self, source: Source, loaders: Loaders) -> None:
        self.source, self.loaders = source, loaders
        self.folder = Folder(source)
        self.loads: list[Load] = []
        self.code: list[Code] = []
        self.todo: list[tuple[Chain, str]] = []
        self.seen: set[tuple[int, str]] = set()
        self.called: set[int] = set()

    def push(self, chain: Chain, value: str) -> None:
        key = (chain[-1].id, value)
        if key not in self.seen:
            self.seen.add(key)
            self.todo.append((chain, value))

    def import_value(self, specifier: str) -> str | None:
        """The value that importing a module gives."""
        return self.loaders.imports.get(specifier.removeprefix("node:"))

    def run(self, form: str, call: Chain, code: Values) -> None:
        """Code as text: known code is probed like a file, unknown code is a sink."""
        lines = self._lines(call)
        for text in code.texts:
            source = Source(self.source.path, text.encode("utf-8", "replace"), "javascript")
            self.code.append(Code(*lines, form, source))
        if not code.complete:
            self.load(form, call, "code", code)

    def module(self, form: str, chain: Chain, texts: Values, what: str = "module") -> None:
        """A module or script by its specifier; a data URL is code."""
        plain = []
        for text in texts.texts:
            if text.startswith("data:"):
                self.run(form, chain, Values((_data(text),), True))
            else:
                plain.append(text)
        if plain or not texts.complete:
            self.load(form, chain, what, texts._replace(texts=tuple(plain)))

    def load(self, form: str, chain: Chain, what: str, texts: Values) -> None:
        self.loads.append(Load(*self._lines(chain), form, what, texts.texts, texts.complete, texts.literal))

    def _lines(self, chain: Chain) -> tuple[int, int]:
        return self.source.line(chain[-1].start_byte), self.source.line(chain[-1].end_byte)


def _data(url: str) -> str:
    head, _, body = url.partition(",")
    raw = unquote_to_bytes(body)
    if head.endswith(";base64"):
        try:
            raw = base64.b64decode(raw + b"=" * (-len(raw) % 4))
        except binascii.Error:
            return body
    return raw.decode("utf-8", "replace")


Places = Mapping[bytes, Sequence[int]]  # where each word begins; a word that does not occur is not in it


class Words:
    """Finds many words in bytes in one pass, each wherever it begins."""

    def __init__(self, words: Iterable[bytes]) -> None:
        import ahocorasick_rs

        self._words = [*dict.fromkeys(words)]
        self._automaton = ahocorasick_rs.BytesAhoCorasick(self._words, implementation=ahocorasick_rs.Implementation.DFA)

    def places(self, code: bytes) -> Places:
        found: dict[bytes, list[int]] = {}
        for number, start, _ in self._automaton.find_matches_as_indexes(code, overlapping=True):
            found.setdefault(self._words[number], []).append(start)
        return found


class Texts:
    """Finds texts in bytes: an expression, tried only where the shortest pieces of them occur at all."""

    def __init__(self, texts: Iterable[str], around: str = "%s") -> None:
        known = sorted(set(texts), key=len)
        pieces: list[str] = []
        for text in known:
            if not any(piece in text for piece in pieces):
                pieces.append(text)
        self.pieces = frozenset(piece.encode() for piece in pieces)
        self._pattern = re.compile((around % "|".join(map(re.escape, known))).encode())

    def finditer(self, code: bytes, places: Places | None = None) -> Iterator[re.Match[bytes]]:
        """`places` are those of the code, if they are known."""
        hit = any(piece in code for piece in self.pieces) if places is None else not self.pieces.isdisjoint(places)
        return self._pattern.finditer(code) if hit else iter(())

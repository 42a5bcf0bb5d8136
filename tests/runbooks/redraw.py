"""Printed output as a paper shows it: placeholders where it varies, columns as narrow as that makes them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

import msgspec

from tests.runbooks.papers import ELISION, KINDS, OF_THE_MACHINE, Command, Line, compare, logical, matches, printed

_CELLS = {"held by": "<holders>", "wal bytes": "<bytes>"}


class Place(msgspec.Struct, frozen=True):
    """What is known of the scene: its folder, the ids of its stores in the order of its seats, the port of its core."""

    folder: str
    stores: tuple[str, ...]
    port: int


def redraw(command: Command, output: str, place: Place) -> list[str]:
    """The lines a paper should show under `command`; those it shows already if they are right."""
    shown = [line.text for line in command.shown]
    if compare(None, command, output, {}) is None:
        return shown
    old = [line for line in logical(command.shown) if line.text != ELISION]
    fresh = [_kept(line, old) for line in _drawn(output, place)]
    return _elided(fresh, logical(command.shown)) if ELISION in shown else fresh


def _kept(text: str, old: Sequence[Line]) -> str:
    """What a person wrote for such a line (`<n>` for a number, say) stays."""
    return next((line.text for line in old if text and matches(line.text, text, {})), text)


def _elided(fresh: Sequence[str], shown: Sequence[Line]) -> list[str]:
    """Leave out what was left out before, by the first word of each line; everything stays when a word is gone."""
    made: list[str] = []
    at = 0
    for line in shown:
        if line.text == ELISION:
            made.append(ELISION)
            continue
        found = next((i for i in range(at, len(fresh)) if _head(fresh[i]) == _head(line.text)), None)
        if found is None:
            return list(fresh)
        made.append(fresh[found])
        at = found + 1
    return made


def _head(text: str) -> str:
    return "---" if set(text) <= {"-", " "} else re.split(r" {2,}|: ", text.strip())[0]


def _drawn(output: str, place: Place) -> list[str]:
    lines = [line.text.rstrip() for line in printed(output)]
    markdown = bool(lines) and lines[0].startswith("**")
    made: list[str] = []
    at = 0
    while at < len(lines):
        if at + 1 < len(lines) and re.fullmatch(r"-{2,}(?: +-{2,})*", lines[at + 1]):
            end = next((i for i in range(at, len(lines)) if not lines[i]), len(lines))
            made += _table(lines[at:end], place)
            at = end
            continue
        end = at + 1
        while end < len(lines) and lines[end].startswith("  " if lines[at].startswith("- ") else "    "):
            end += 1
        sentence = " ".join(line.strip() if i else line for i, line in enumerate(lines[at:end]))
        if not OF_THE_MACHINE.fullmatch(sentence):
            made += _wrapped(typed(sentence, place, whole_paths=markdown))
        at = end
    return _single_blanks(made)


def _single_blanks(lines: Sequence[str]) -> list[str]:
    kept = [line for i, line in enumerate(lines) if line or (i and lines[i - 1])]
    while kept and not kept[-1]:
        kept.pop()
    return kept


def _wrapped(text: str) -> list[str]:
    if text.startswith("- "):
        return textwrap.wrap(text, 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    if text.startswith("! "):
        return textwrap.wrap(text, 100, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return [text]


def _table(lines: Sequence[str], place: Place) -> list[str]:
    spans = [match.span() for match in re.finditer("-+", lines[1])]
    spans[-1] = (spans[-1][0], max(map(len, lines)))
    cells = [[line[a:b].strip() for a, b in spans] for line in (lines[0], *lines[2:])]
    headers = cells[0]
    rows = [
        [
            _CELLS[header] if header in _CELLS and cell not in ("0", "-") else typed(cell, place)
            for header, cell in zip(headers, row, strict=True)
        ]
        for row in cells[1:]
    ]
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    drawn = [headers, ["-" * width for width in widths], *rows]
    return ["  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in drawn]


def typed(text: str, place: Place, *, whole_paths: bool = False) -> str:
    """Text with a placeholder for everything that another run or machine would print otherwise."""
    text = re.sub(re.escape(place.folder) + (r"[^\s,]*" if whole_paths else ""), "<path>", text)
    text = re.sub(r"/[^\s,]*…[^\s,]*", "<path>", text)
    for kind in ("time", "run", "id"):
        text = re.sub(rf"(?<![\w-]){KINDS[kind]}", f"<{kind}>", text)
    for number, store in enumerate(place.stores, start=1):
        text = re.sub(rf"(?<![\w-]){re.escape(store)}(?![\w-])", f"<store-{number}>", text)
    text = re.sub(rf"(?<![\w.-])(?:{KINDS['digest']})(?![\w-])", "<digest>", text)
    text = re.sub(rf":{place.port}/", ":<port>/", text)
    text = re.sub(KINDS["holders"], "<holders>", text)
    text = re.sub(KINDS["errno"], "<errno>", text)
    text = re.sub(r"\b\d+\.\d s\b", "<seconds> s", text)
    text = re.sub(rf"nl-cutover {KINDS['version']}", "nl-cutover <version>", text)
    return re.sub(r"^( *(?:- )?host(?:: | {2,}))\S+$", r"\1<host>", text)

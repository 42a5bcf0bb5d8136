"""One shape for everything that is printed: a verdict, facts, tables, and what to do next."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

import msgspec
from tabulate import tabulate

from ..wording import counted

_WIDTH = 80
_MARKDOWN_LIMIT = 1990  # characters of a block that an incident channel takes whole
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Table(msgspec.Struct, frozen=True):
    title: str
    headers: list[str]
    rows: list[list[str]]


class Document(msgspec.Struct, frozen=True):
    """`facts` are (name, value) pairs; values are text already."""

    title: str
    verdict: str
    exit_code: int
    meaning: str
    facts: list[tuple[str, str]]
    tables: list[Table]
    notes: list[str]
    next_steps: list[str]


def visible(text: str) -> str:
    """Text that cannot forge a line or hide a part: control and direction characters stand as escapes."""
    return (
        _CONTROL.sub(lambda m: m.group().encode("unicode_escape").decode("ascii"), text)
        .encode("utf-8", "backslashreplace")
        .decode("utf-8")
    )


def shorten(text: str, width: int) -> str:
    """Keep both ends of a long name."""
    if len(text) <= width:
        return text
    head = (width - 1) // 3
    return text[:head] + "…" + text[-(width - 1 - head) :]


def as_table(document: Document) -> str:
    """For a person at a terminal. Ids are never read as numbers."""
    parts = [f"{document.title}: {document.verdict.upper()} (exit {document.exit_code}: {document.meaning})"]
    if document.facts:
        width = max(len(name) for name, _ in document.facts)
        parts.append("\n".join(f"  {name:<{width}}  {visible(value)}" for name, value in document.facts))
    for table in document.tables:
        rows = [[visible(cell) for cell in row] for row in table.rows]
        body = tabulate(rows, headers=table.headers, tablefmt="simple", disable_numparse=True)
        parts.append(f"{table.title}\n{body}" if table.title else body)
    if document.notes:
        parts.append("\n".join(_wrapped(f"! {note}", 100) for note in document.notes))
    if document.next_steps:
        parts.append("next:\n" + "\n".join(_wrapped(f"  {step}", 100) for step in document.next_steps))
    return "\n\n".join(parts) + "\n"


def as_markdown(document: Document) -> str:
    """For an incident channel: one fact a line, 80 columns, under 2,000 characters, no colour, no box drawing."""
    head = f"**{document.title}: {document.verdict.upper()}** (exit {document.exit_code})\n"
    body = [f"{name}: {value}" for name, value in document.facts] + document.notes
    body += [_row_sentence(table, row) for table in document.tables for row in table.rows]
    tail = _fitting([f"next: {step}" for step in document.next_steps], _MARKDOWN_LIMIT // 3)
    kept = _fitting(body, _MARKDOWN_LIMIT - sum(len(line) + 1 for line in (head, *tail)))
    return "\n".join((head, *kept, *tail)) + "\n"


def _fitting(texts: Sequence[str], room: int) -> list[str]:
    """As many bullets as there is room for, and a line that counts the others."""
    kept: list[str] = []
    room -= _WIDTH
    for number, text in enumerate(texts):
        line = _bullet(text)
        room -= len(line) + 1
        if room < 0:
            return [*kept, f"- and {counted(len(texts) - number, 'more line|s')}: --format json has them all"]
        kept.append(line)
    return kept


def _row_sentence(table: Table, row: Sequence[str]) -> str:
    return f"{row[0]}: " + ", ".join(
        f"{header} {cell}" for header, cell in zip(table.headers[1:], row[1:], strict=True) if cell
    )


def _bullet(text: str) -> str:
    words = " ".join(word if len(word) <= 66 else shorten(word, 60) for word in shorten(visible(text), 500).split(" "))
    return textwrap.fill(
        words, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False, break_long_words=True
    )


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(visible(text), width, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)

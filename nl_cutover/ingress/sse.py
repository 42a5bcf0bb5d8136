"""Server-sent events, read from bytes: lines end at LF, CRLF or CR only, never at U+2028 (HTML standard, 9.2.6)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_LINE = re.compile(rb"\r\n|\n|\r")


def events(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The data of each event, multi-line data joined by LF. Comments, other fields and empty data are skipped.

    An event that the stream ends within is not dispatched: half an answer is no answer.
    """
    data: list[bytes] = []
    for line in _lines(chunks):
        if not line:
            if payload := b"\n".join(data):
                yield payload
            data = []
        elif line.startswith(b"data"):
            field, colon, value = line.partition(b":")
            if field == b"data" and colon:
                data.append(value.removeprefix(b" "))


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = bytearray()
    first = True
    for chunk in chunks:
        scanned = max(len(rest) - 1, 0)
        rest += chunk
        start = 0
        for match in _LINE.finditer(rest, scanned):
            if match.group() == b"\r" and match.end() == len(rest):
                break  # its LF may stand at the head of the next chunk
            line = bytes(rest[start : match.start()])
            yield line.removeprefix(b"\xef\xbb\xbf") if first else line
            first, start = False, match.end()
        del rest[:start]
    if rest.endswith(b"\r"):
        yield bytes(rest[:-1])

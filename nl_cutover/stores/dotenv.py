"""A checkout's `.env`, read as Node's dotenv reads it: nothing is expanded, the last assignment wins."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from ..verdicts import Unmeasurable
from .paths import shown

_LINE = re.compile(
    r"""^[^\S\n]*(?:export[^\S\n]+)?([\w.-]+)(?:[^\S\n]*=[^\S\n]*|:[^\S\n]+)"""
    r"""('(?:\\'|[^'])*'|"(?:\\"|[^"])*"|`(?:\\`|[^`])*`|[^#\n]*)[^\S\n]*(?:\#.*)?$""",
    re.MULTILINE,
)


def parse(text: str) -> dict[str, str]:
    """`KEY=value`, `export KEY=value`, `KEY: value`; three kinds of quotes; `#` comments; values may span lines."""
    values: dict[str, str] = {}
    for name, raw in _LINE.findall(text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")):
        value = raw.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"`":
            quote, value = value[0], value[1:-1]
            if quote == '"':
                value = value.replace("\\n", "\n").replace("\\r", "\r")
        values[name] = value
    return values


def read(path: Path) -> dict[str, str] | Unmeasurable:
    """The assignments of a `.env`; empty when there is none, Unmeasurable when there is one that cannot be read."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for for ever
            return Unmeasurable(f"{shown(path)} is not a regular file", "make it one, or leave this checkout out")
        return parse(os.fsdecode(path.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        return Unmeasurable(
            f"{shown(path)} cannot be read ({error.strerror}), so it is not known which store its recorder writes",
            "run as the owner of that checkout",
        )

"""SQLite values as the JSON a JavaScript recorder would have sent for them, or a reason why there is none."""

from __future__ import annotations

import math

from .javascript import NotFaithful, encode_number, encode_string
from .rows import Row, Text

NULL = "null"


def text(row: Row, column: str) -> str | None:
    """The column decoded strictly, or None for NULL. Raises NotFaithful naming the column, never the value."""
    value = row[column]
    if value is None:
        return None
    if not isinstance(value, Text):
        raise NotFaithful(f"{column} is {storage(value)}, not text")
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise NotFaithful(f"{column} is not valid UTF-8") from None


def required_text(row: Row, column: str) -> str:
    value = text(row, column)
    if value is None:
        raise NotFaithful(f"{column} is NULL")
    return value


def number(row: Row, column: str) -> float | None:
    """The column as a double, or None for NULL. Raises NotFaithful where a double cannot carry it."""
    value = row[column]
    if value is None:
        return None
    if not isinstance(value, int | float):
        raise NotFaithful(f"{column} is {storage(value)}, not a number")
    if not math.isfinite(value):
        raise NotFaithful(f"{column} is infinite, which JSON cannot carry")
    if isinstance(value, int) and int(float(value)) != value:
        raise NotFaithful(f"{column} has more digits than a double holds")
    return float(value)


def json_text(value: str | None) -> str:
    return NULL if value is None else encode_string(value)


def json_number(value: float | None) -> str:
    return NULL if value is None else encode_number(value)


def storage(value: object) -> str:
    """The name of a value's SQLite storage class, for sentences."""
    match value:
        case None:
            return "NULL"
        case Text():
            return "text"
        case bytes():
            return "a blob"
        case int():
            return "an integer"
        case _:
            return "a real number"

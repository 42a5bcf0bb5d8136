"""Receipts: canonical JSON (RFC 8785), each bound to the one before it by SHA-256. No secret, no args, no ops."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import rfc8785

from ..durability import make_durable
from ..errors import CustodyError
from .directory import RECEIPTS

_NAME = re.compile(r"(\d{4})-([a-z]+)\.json")
_ROWS = '"id_map":['
_CHUNK = 1 << 16  # characters


class Link(msgspec.Struct, frozen=True):
    """A receipt on disk: its number in the chain, kind, path, SHA-256, and its body without the rows of its id map."""

    number: int
    kind: str
    path: Path
    sha256: str
    body: dict[str, Any]


def chain(directory: Path) -> list[Link]:
    """The receipts of a custody directory, checked: numbers without a gap, each naming its predecessor's digest.

    Raises CustodyError naming the first receipt that does not fit.
    """
    links: list[Link] = []
    for path in sorted((directory / RECEIPTS).glob("*.json")):
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        sha256, body = scan(path)
        link = Link(int(match[1]), match[2], path, sha256, body)
        previous = links[-1].sha256 if links else None
        if body.get("number") != link.number or link.number != len(links) + 1 or body.get("previous") != previous:
            raise CustodyError(
                f"receipt {path} does not follow the one before it: the chain is broken",
                "a receipt was changed, lost or added: bring the folder back from a backup",
            )
        links.append(link)
    return links


def read(path: Path) -> tuple[bytes, dict[str, Any]]:
    """The bytes and the parsed body, all of it. Raises CustodyError unless it is canonical JSON of an object."""
    try:
        body = path.read_bytes()
        parsed = _parsed(body)
    except OSError as error:
        raise CustodyError(f"receipt {path} cannot be read: {error.strerror}") from None
    except (ValueError, rfc8785.CanonicalizationError, RecursionError):
        raise _not_canonical(path) from None
    return body, parsed


def scan(path: Path, row: Callable[[dict[str, Any]], object] = lambda _: None) -> tuple[str, dict[str, Any]]:
    """The SHA-256 and the body with an empty id map, whose rows are handed to `row` one by one: flat in memory.

    Raises CustodyError unless the whole is canonical JSON of an object, which is known at the end alone.
    """
    digest, decode = hashlib.sha256(), json.JSONDecoder().raw_decode
    try:
        with open(path, encoding="utf-8", newline="") as file:

            def more(size: int) -> str:
                digest.update((read := file.read(size)).encode())
                return read

            text = ""
            while _ROWS not in text and (read := more(max(_CHUNK, len(text)))):
                text += read
            head, found, text = text.partition(_ROWS)
            text, at = text or more(_CHUNK), 0
            rows = bool(found) and not text.startswith("]")
            while rows:
                try:
                    entry, end = decode(text, at)
                    after = text[end]
                except (json.JSONDecodeError, IndexError):  # it goes on in the next chunk, or is no JSON
                    if not (read := more(max(_CHUNK, len(text) - at))):
                        raise
                    text, at = text[at:] + read, 0
                    continue
                if after not in ",]" or rfc8785.dumps(entry) != text[at:end].encode():
                    raise _not_canonical(path)
                row(entry)
                rows = after == ","
                at = end + rows
            body = _parsed((head + found + text[at:] + more(-1)).encode())
            if found and body.get("id_map") != []:
                raise _not_canonical(path)
    except OSError as error:
        raise CustodyError(f"receipt {path} cannot be read: {error.strerror}") from None
    except (ValueError, IndexError, rfc8785.CanonicalizationError, RecursionError):
        raise _not_canonical(path) from None
    return digest.hexdigest(), body


def _parsed(data: bytes) -> dict[str, Any]:
    body = msgspec.json.decode(data)
    if not isinstance(body, dict) or rfc8785.dumps(body) != data:
        raise ValueError
    return body


def _not_canonical(path: Path) -> CustodyError:
    return CustodyError(f"receipt {path} is not canonical JSON: it was changed or torn")


def write(
    directory: Path, kind: str, body: dict[str, Any], id_map: Callable[[], Iterable[msgspec.Struct]] | None = None
) -> Link:
    """Append a receipt to the chain, durably: temporary file, fsync, rename, directory fsync.

    The rows of `id_map` go from their source to the disk one by one, and never stand in memory together.
    """
    links = chain(directory)
    number = len(links) + 1
    complete = body | {"number": number, "kind": kind, "previous": links[-1].sha256 if links else None}
    digest = hashlib.sha256()
    path = directory / RECEIPTS / f"{number:04d}-{kind}.json"
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        with open(partial, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            for piece in _canonical(complete, id_map):
                digest.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)  # unlike a rename it never takes another receipt's place
        os.unlink(partial)
        make_durable(path.parent)
    except FileExistsError:
        partial.unlink()
        return write(directory, kind, body, id_map)  # another process was quicker: take the next number
    except OSError as error:
        raise CustodyError(
            f"the receipt {path} cannot be written: {error.strerror}",
            "make room or mend the permissions, then give the same command again: nothing is sent twice",
        ) from None
    return Link(number, kind, path, digest.hexdigest(), complete)


def _canonical(body: dict[str, Any], id_map: Callable[[], Iterable[msgspec.Struct]] | None) -> Iterator[bytes]:
    """What `rfc8785.dumps` makes of the body with the rows in it, in pieces."""
    if id_map is None:
        yield rfc8785.dumps(body)
        return
    before = rfc8785.dumps({key: value for key, value in body.items() if key < "id_map"})
    after = rfc8785.dumps({key: value for key, value in body.items() if key > "id_map"})
    yield before[:-1] + b"," * (before != b"{}") + _ROWS.encode()
    for number, entry in enumerate(id_map()):
        yield b"," * (number > 0) + rfc8785.dumps(msgspec.to_builtins(entry))
    yield b"]," + after[1:]


def moved(bodies: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """By old id: what the receipts, oldest first, last say of each archive that had it in some store.

    Two stores may hold different archives under one id; their content digests tell them apart.
    """
    latest = {(e["old"], e["content_digest"]): e for body in bodies for e in body.get("id_map", [])}
    found: dict[str, list[dict[str, Any]]] = {}
    for (old, _), entry in latest.items():
        found.setdefault(old, []).append(entry)
    return found


def aliases(bodies: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Old id to new, for ids that one archive alone had and that was read back equal: for `recorder.Archive`."""
    return {old: e[0]["new"] for old, e in moved(bodies).items() if len(e) == 1 and e[0]["confirmed"]}

"""Receipts: canonical JSON (RFC 8785), each bound to the one before it by SHA-256. No secret, no args, no ops."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import rfc8785

from ..errors import CustodyError
from .directory import RECEIPTS, sync_directory

_NAME = re.compile(r"(\d{4})-([a-z]+)\.json")


class Link(msgspec.Struct, frozen=True):
    """A receipt on disk: its number in the chain, kind, path and SHA-256."""

    number: int
    kind: str
    path: Path
    sha256: str


def chain(directory: Path) -> list[Link]:
    """The receipts of a custody directory, checked: numbers without a gap, each naming its predecessor's digest.

    Raises CustodyError naming the first receipt that does not fit.
    """
    links: list[Link] = []
    for path in sorted((directory / RECEIPTS).glob("*.json")):
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        body, parsed = read(path)
        link = Link(int(match[1]), match[2], path, hashlib.sha256(body).hexdigest())
        previous = links[-1].sha256 if links else None
        if parsed.get("number") != link.number or link.number != len(links) + 1 or parsed.get("previous") != previous:
            raise CustodyError(
                f"receipt {path} does not follow the one before it: the chain is broken",
                "a receipt was changed, lost or added: bring the folder back from a backup",
            )
        links.append(link)
    return links


def read(path: Path) -> tuple[bytes, dict[str, Any]]:
    """The bytes and the parsed body. Raises CustodyError unless it is canonical JSON of an object."""
    try:
        body = path.read_bytes()
        parsed = msgspec.json.decode(body)
        canonical = isinstance(parsed, dict) and rfc8785.dumps(parsed) == body
    except OSError as error:
        raise CustodyError(f"receipt {path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, rfc8785.CanonicalizationError, RecursionError):
        canonical = False
    if not canonical:
        raise CustodyError(f"receipt {path} is not canonical JSON: it was changed or torn")
    return body, parsed


def write(directory: Path, kind: str, body: dict[str, Any]) -> Link:
    """Append a receipt to the chain, durably: temporary file, fsync, rename, directory fsync."""
    links = chain(directory)
    number = len(links) + 1
    complete = body | {"number": number, "kind": kind, "previous": links[-1].sha256 if links else None}
    data = rfc8785.dumps(complete)
    path = directory / RECEIPTS / f"{number:04d}-{kind}.json"
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        with open(partial, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)  # unlike a rename it never takes another receipt's place
        os.unlink(partial)
        sync_directory(path.parent)
    except FileExistsError:
        partial.unlink()
        return write(directory, kind, body)  # another process was quicker: take the next number
    except OSError as error:
        raise CustodyError(
            f"the receipt {path} cannot be written: {error.strerror}",
            "make room or mend the permissions, then give the same command again: nothing is sent twice",
        ) from None
    return Link(number, kind, path, hashlib.sha256(data).hexdigest())


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

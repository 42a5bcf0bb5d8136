"""Stores that a running container has mounted: locks do not reach across a VM, so the host must not open them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from .identity import Identity, Located, identity_of


class ContainerMount(msgspec.Struct, frozen=True):
    """A bind mount of a running container: its name, and the host path that is its source."""

    container: str
    source: Path


def mounted_into(store: Located, mounts: Sequence[ContainerMount]) -> str | None:
    """The container that has the store or a folder above it mounted; compared by identity, not by name."""
    if not mounts:
        return None
    above = {_identity(path) for path in (store.path, *store.path.parents)} - {None}
    return next((mount.container for mount in mounts if _identity(mount.source) in above), None)


def _identity(path: Path) -> Identity | None:
    try:
        return identity_of(os.stat(path))
    except OSError:
        return None

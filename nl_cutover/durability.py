"""What is written must still be there after a power cut: one way to make it so, for every room that writes."""

from __future__ import annotations

import os
from pathlib import Path


def make_durable(path: Path) -> None:
    """fsync a file, or a folder after a rename in it. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

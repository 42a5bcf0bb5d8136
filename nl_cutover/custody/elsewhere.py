"""Which custody directories of this host carried a store.

Memory Core cannot be asked whether it holds a row. The ledger that knows must be found, also by a run that was given
another custody directory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from ..durability import make_durable
from ..errors import CustodyError
from .directory import default_custody, exists


def default_registry() -> Path:
    """Beside the default custody: one file a store, one custody directory a line, as a JSON string."""
    return default_custody().parent / "stores"


def others(registry: Path, stores: Iterable[str], custody: Path) -> list[Path]:
    """The other custody directories that carried one of these stores and are there. Raises CustodyError for one that
    lost its ledger, and where that cannot be read."""
    own = os.path.realpath(custody)
    named = dict.fromkeys(line for store in stores for line in _lines(registry / store))
    return [path for line in named if line != own and exists(path := Path(line))]


def remember(registry: Path, stores: Iterable[str], custody: Path) -> None:
    """Write down, durably, that this custody directory carries these stores. Raises OSError, CustodyError."""
    registry.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = os.path.realpath(custody)
    for store in stores:
        path = registry / store
        if own not in _lines(path):
            with path.open("a", encoding="ascii") as file:
                file.write(json.dumps(own) + "\n")
            make_durable(path)
    make_durable(registry)


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text("ascii")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError) as error:
        raise CustodyError(
            f"{path}, which tells other custody directories of this store, cannot be read: {error}",
            "mend it; by --afresh it is not asked, and what another run carried is sent again",
        ) from None
    return [json.loads(line) for line in text.split("\n")[:-1]]  # a torn last line was never acted upon

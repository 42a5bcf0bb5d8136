"""Copies of stores to rehearse on, reached by as many checkouts as the stores themselves."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import CustodyError, RefusedError
from .checkouts import CURRENT, DATA
from .paths import shown
from .report import Report
from .snapshot import snapshot


def copy_checkouts(report: Report, folder: Path) -> list[tuple[str, Path]]:
    """Each store once, as `<folder>/<store id>.sqlite`, and a checkout for each seat whose store is a link to it.

    Returns seats and their new checkouts; a seat without a store gets one without. Raises RefusedError when `folder`
    is not new, and whatever `snapshot` raises. The stores are only read.
    """
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise RefusedError(f"{shown(folder)} exists", "name a folder that does not exist yet") from None
    except OSError as error:
        raise CustodyError(f"{shown(folder)} cannot be made: {error.strerror}", "name another folder") from None
    copies = {store.id: snapshot(store, folder).path for store in report.stores}
    made: list[tuple[str, Path]] = []
    for number, checkout in enumerate(report.checkouts, start=1):
        path = folder / f"{number}-{re.sub(r'[^A-Za-z0-9._-]', '_', checkout.seat)}"
        link = path / DATA / CURRENT
        link.parent.mkdir(parents=True)
        if checkout.store is not None:
            link.symlink_to(os.path.relpath(copies[checkout.store], link.parent))
        made.append((checkout.seat, path))
    return made

"""What a measurement says, as data. Field names are the JSON contract of `measure`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..verdicts import Absent, Measured, Measurement, Unmeasurable, Zero
from .filesystems import Filesystem
from .holders import Holders
from .identity import Identity, StoreId
from .paths import from_report
from .sealing import SealState


class CheckoutReport(msgspec.Struct, frozen=True):
    """One row a checkout. `store`: the id of the store its recorder would use; `also`: others that it reaches.

    Paths are shown escaped, on one line; `path_b64` has the bytes of a path that had to be changed for that.
    """

    seat: str
    path: str
    state: str  # measured | absent | unmeasurable
    store: StoreId | None
    reason: str = ""
    hint: str = ""
    also: tuple[StoreId, ...] = ()
    path_b64: str | None = None


class TableReport(msgspec.Struct, frozen=True):
    """One table of one store. `rows` and `unaccounted` are None unless measured; `zero` is None unless `rows` is 0.

    `invalid` names (as shown) the first keys whose row is not UTF-8.
    """

    name: str
    state: str  # measured | absent | unmeasurable
    rows: int | None = None
    zero: Zero | None = None
    reason: str = ""
    unaccounted: int | None = None
    hint: str = ""
    null_keys: int = 0
    odd_keys: int = 0
    duplicate_keys: int = 0
    invalid_text: int = 0
    invalid: tuple[str, ...] = ()
    missing_columns: tuple[str, ...] = ()
    extra_columns: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def measurement(self) -> Measurement:
        if self.rows is not None:
            return Measured(self.rows, self.zero, self.unaccounted or 0)
        if self.state == "absent":
            return Absent(self.reason)
        return Unmeasurable(self.reason, self.hint)


class StoreReport(msgspec.Struct, frozen=True):
    """One physical store. `size` and `wal_bytes` in bytes; `aliases` are all names by which checkouts reach it.

    `version` changes with every commit and checkpoint and may be compared between processes; `changed`: somebody
    committed while it was read, so the counts are of the moment the reading began. `open_mode` is None when it was
    not opened; `reason` and `hint` are then why, and both tables carry them too.
    """

    id: StoreId
    path: str
    device: int
    inode: int
    aliases: tuple[str, ...]
    open_mode: str | None
    journal_mode: str | None
    wal_bytes: int
    holders: Holders
    tables: tuple[TableReport, ...]
    seats: tuple[str, ...] = ()
    filesystem: Filesystem | None = None
    seal: SealState = SealState()
    version: str = ""
    changed: bool = False
    size: int = 0
    owner: int = 0  # uid
    reason: str = ""
    hint: str = ""
    warnings: tuple[str, ...] = ()
    path_b64: str | None = None

    @property
    def location(self) -> Path:
        """The canonical path, to open it by."""
        return from_report(self.path, self.path_b64)

    @property
    def identity(self) -> Identity:
        return Identity(self.device, self.inode)

    def table(self, name: str) -> TableReport:
        return next(table for table in self.tables if table.name == name)


class Control(msgspec.Struct, frozen=True):
    """The planted store of this invocation: when it does not come back as one row a table, nothing is measured."""

    ok: bool
    reason: str = ""


class Report(msgspec.Struct, frozen=True):
    """`at` is UTC, RFC 3339 with milliseconds. There is no total and no verdict here: see `verdict.verdict_of`."""

    at: str
    checkouts: tuple[CheckoutReport, ...]
    stores: tuple[StoreReport, ...]
    control: Control
    sqlite_version: str
    warnings: tuple[str, ...] = ()
    containers: str = "not looked at"  # whose mounts were looked at, so that no mounted store was opened

    def store(self, store: StoreId) -> StoreReport:
        return next(report for report in self.stores if report.id == store)

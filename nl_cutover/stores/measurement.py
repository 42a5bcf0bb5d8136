"""Counting both tables in every physical store, once each, whatever number of checkouts reach it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ..contract.leaves import ACTION_LOGGING, switch
from ..contract.rows import ACTIONS, TABLES
from ..errors import UnmeasurableError
from ..verdicts import Absent, Unmeasurable, Zero
from . import filesystems
from .checkouts import Candidate, Checkout
from .control import planted_control
from .failures import explain, name_of
from .filesystems import Filesystem, Kind
from .holders import UNKNOWN, Holders, holders_of
from .identity import Located, Resolution, StoreId, resolve
from .logs import takes_every_row_away
from .mounts import ContainerMount, mounted_into
from .paths import in_base64, shown
from .reader import Limits, Opened, OpenMode, read_store
from .report import CheckoutReport, Control, Report, StoreReport, TableReport
from .sealing import SealState, seal_state
from .tables import Accounts, refused, walk


class Options(msgspec.Struct, frozen=True):
    """`acknowledged`: file system types (`nfs4`, `virtiofs`) on which the operator takes the risk of a count.

    `mounts`: bind mounts of running containers. `holders`: whether to look who has the stores open.
    """

    limits: Limits = Limits()
    acknowledged: frozenset[str] = frozenset()
    mounts: tuple[ContainerMount, ...] = ()
    holders: bool = True


class _Reached(msgspec.Struct):
    """A physical store and the ways to it."""

    located: Located
    aliases: list[str]
    folders: set[object]
    names: set[Path]
    checkouts: list[Checkout]
    candidates: list[Candidate]


def measure(
    checkouts: Sequence[Checkout],
    *,
    clock: Callable[[], datetime],
    environ: Mapping[str, str],
    accounts: Accounts | None = None,
    options: Options | None = None,
) -> Report:
    """Count both tables in every store that the checkouts reach. Reads only; never raises for a store's trouble.

    `accounts` says of a row whether it is accounted for; without it no row is. A store that is replaced while it is
    read is measured once more. Source of the kinds of zero: neo#16202.
    """
    options = options or Options()
    control = planted_control(options.limits)
    for _ in range(2):
        ways = [[(candidate, resolve(candidate.path)) for candidate in checkout.candidates] for checkout in checkouts]
        reached = _reached(checkouts, ways)
        holders = holders_of([way.located for way in reached.values()]) if options.holders else {}
        stores = {
            key: _store(way, holders.get(key, UNKNOWN), accounts, options, control, environ)
            for key, way in reached.items()
        }
        if not any(map(_moved, reached.values())):
            break
    return Report(
        at=clock().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        checkouts=tuple(_checkout(*pair, stores) for pair in zip(checkouts, ways, strict=True)),
        stores=tuple(stores.values()),
        control=control,
        sqlite_version=sqlite3.sqlite_version,
        warnings=engine_warnings(sqlite3.sqlite_version_info),
    )


def _reached(
    checkouts: Sequence[Checkout], ways: Iterable[Sequence[tuple[Candidate, Resolution]]]
) -> dict[StoreId, _Reached]:
    made: dict[StoreId, _Reached] = {}
    for checkout, found in zip(checkouts, ways, strict=True):
        for candidate, resolution in found:
            if not isinstance(resolution, Located):
                continue
            way = made.setdefault(resolution.identity.id, _Reached(resolution, [], set(), set(), [], []))
            way.folders.add(resolution.folder)
            way.names.add(resolution.path)
            way.candidates.append(candidate)
            if checkout not in way.checkouts:
                way.checkouts.append(checkout)
            for name in (shown(candidate.path), shown(resolution.path)):
                if name not in way.aliases:
                    way.aliases.append(name)
    return made


def _store(
    way: _Reached,
    holders: Holders,
    accounts: Accounts | None,
    options: Options,
    control: Control,
    environ: Mapping[str, str],
) -> StoreReport:
    located = way.located
    filesystem = filesystems.filesystem_of(located.path)
    warnings = _warnings(way, filesystem, holders, options)
    base = StoreReport(
        id=located.identity.id,
        path=shown(located.path),
        path_b64=in_base64(located.path),
        device=located.identity.device,
        inode=located.identity.inode,
        aliases=tuple(way.aliases),
        seats=tuple(checkout.seat for checkout in way.checkouts),
        open_mode=None,
        journal_mode=None,
        wal_bytes=_size(f"{located.path}-wal"),
        size=_size(located.path),
        owner=located.owner,
        holders=holders,
        filesystem=filesystem.shown,
        tables=(),
    )
    try:
        _permitted(way, filesystem, options, control)
        look_again = (lambda: holders_of([located])[located.identity.id]) if options.holders else None
        (tables, seal), opened = read_store(
            located,
            holders,
            lambda opened: _read(opened, located, way, holders, accounts, options),
            limits=options.limits,
            look_again=look_again,
        )
        moved = _moved(way)
        if moved is not None:
            raise UnmeasurableError(
                f"{moved} was replaced while it was read", "stop what replaces it, then measure again"
            )
    except UnmeasurableError as error:
        return msgspec.structs.replace(
            base,
            tables=tuple(refused(name, error.message, error.hint) for name in TABLES),
            reason=error.message,
            hint=error.hint,
            warnings=tuple(warnings),
        )
    if opened.changed:
        warnings.append("a writer committed while it was read: the counts are of the moment the reading began")
    return msgspec.structs.replace(
        base,
        open_mode=opened.mode.value,
        journal_mode=opened.journal_mode,
        wal_bytes=opened.facts.wal.size if opened.facts.wal else 0,
        size=opened.facts.main.size,
        version=opened.facts.version,
        changed=opened.changed,
        seal=seal,
        tables=tuple(_told(table, way, seal, environ, holders) for table in tables),
        warnings=tuple(warnings),
    )


def _permitted(way: _Reached, filesystem: Filesystem, options: Options, control: Control) -> None:
    """Raises UnmeasurableError for a store that must not be opened, or whose count could not be believed."""
    where = shown(way.located.path)
    if not control.ok:
        raise UnmeasurableError(f"{where} was not measured: {control.reason}", "check the temporary directory (TMPDIR)")
    container = mounted_into(way.located, options.mounts)
    if container is not None:
        raise UnmeasurableError(
            f"{where} is mounted into the running container {shown(container)}; opening it here may destroy it",
            "count it through the Memory Core, or stop the container first",
        )
    if (
        len(way.folders) > 1
        or len({path.name for path in way.names}) > 1
        or filesystem.mount_point == os.fspath(way.located.path)
    ):
        raise UnmeasurableError(
            f"{where} is mounted as a single file: its -wal stays beside the other name, so rows may be missing here",
            "mount the folder instead of the file, or name only the checkout that holds the file itself",
        )
    if filesystem.kind in (Kind.NETWORK, Kind.VIRTUAL) and filesystem.type not in options.acknowledged:
        raise UnmeasurableError(
            f"{where} lies on {filesystem.type}, where SQLite's locks and shared memory cannot be relied on",
            f"measure on the machine whose disk holds it, or acknowledge {filesystem.type}",
        )


def _moved(way: _Reached) -> str | None:
    """A name that no longer leads to the store."""
    for candidate in way.candidates:
        again = resolve(candidate.path)
        if not isinstance(again, Located) or again.identity != way.located.identity:
            return shown(candidate.path)
    return None


def _read(
    opened: Opened, located: Located, way: _Reached, holders: Holders, accounts: Accounts | None, options: Options
) -> tuple[list[TableReport], SealState]:
    if opened.mode is OpenMode.IMMUTABLE and all(one.bare and not one.closed for one in way.candidates):
        # A copy may have left its newest rows, or its whole schema, in a -wal elsewhere.
        raise UnmeasurableError(
            f"{shown(located.path)} is a WAL store handed over as a bare file without a -wal: "
            "its newest rows may be elsewhere",
            "name the checkout it belongs to, or state that it was cleanly closed",
        )
    connection = opened.connection
    tables: list[TableReport] = []
    for name in TABLES:
        try:
            tables.append(walk(connection, name, accounts))
        except sqlite3.DatabaseError as error:
            if name_of(error).startswith(("SQLITE_INTERRUPT", "SQLITE_BUSY")):
                raise
            # The other table may still be whole.
            failure = explain(error, located.path, holders, options.limits.max_seconds)
            tables.append(refused(name, f"{name}: {failure.message}", failure.hint))
    left_by_the_dead = opened.mode is OpenMode.COPY or (opened.mode is OpenMode.SHARED and not holders.processes)
    lost = takes_every_row_away(connection, located.path) if left_by_the_dead else None
    if lost is not None:
        raise UnmeasurableError(
            f"{shown(located.path)}: not one of the rows that {lost} has without its -wal is left with it; "
            "the -wal nobody holds open is another store's, or every row was deleted",
            "find the -wal that belongs to this store, or let its recorder open and close it",
        )
    return tables, seal_state(connection)


def _told(
    table: TableReport, way: _Reached, seal: SealState, environ: Mapping[str, str], holders: Holders
) -> TableReport:
    """The table with its kind of zero, when it is one."""
    if table.rows != 0:
        return table
    zero, reason = _zero(table.name, way, seal, environ, holders)
    return msgspec.structs.replace(table, zero=zero, reason=reason)


def _zero(name: str, way: _Reached, seal: SealState, environ: Mapping[str, str], holders: Holders) -> tuple[Zero, str]:
    """Why there are no rows. Only telemetry is gated, and only by a leaf that is set off wherever it is looked at."""
    if name in seal.sealed:
        return Zero.SEALED, "triggers in the store refuse every insert"
    leaves = [checkout.action_logging for checkout in way.checkouts]
    general = switch(environ.get(ACTION_LOGGING))
    told = [general if leaf is None else leaf for leaf in leaves]
    if name == ACTIONS and told and all(leaf is False for leaf in told) and general is not True:
        return Zero.GATED, f"{ACTION_LOGGING} is off in every checkout that reaches the store; a writer may turn it on"
    return Zero.LIVE, f"a writer can fire at any time: {holders.sentence()}"


def _warnings(way: _Reached, filesystem: Filesystem, holders: Holders, options: Options) -> list[str]:
    made: list[str] = []
    if filesystem.kind is Kind.UNKNOWN:
        made.append(f"file system: {filesystem.type}; whether locks work on it is not known")
    elif filesystem.kind is not Kind.LOCAL:
        made.append(f"file system: {filesystem.type} ({filesystem.options}), acknowledged by the operator")
    if way.located.owner != os.geteuid():
        made.append(f"read as uid {os.geteuid()}, but the store belongs to uid {way.located.owner}")
    if options.holders and not holders.processes and not holders.nobody:
        made.append(holders.sentence())
    return made


def _checkout(
    checkout: Checkout, found: Sequence[tuple[Candidate, Resolution]], stores: Mapping[StoreId, StoreReport]
) -> CheckoutReport:
    ids = list(dict.fromkeys(way.identity.id for _, way in found if isinstance(way, Located)))
    reached = tuple(ids)
    troubles = [checkout.trouble] if checkout.trouble else []
    troubles += [way for _, way in found if isinstance(way, Unmeasurable)]
    for key in ids:
        troubles += [
            Unmeasurable(table.reason, table.hint) for table in stores[key].tables if table.state == "unmeasurable"
        ]
    if troubles:
        state, reason, hint = "unmeasurable", troubles[0].reason, troubles[0].hint
    elif named := [(c, way) for c, way in found if c.source.endswith(" in .env")]:
        located = [way for _, way in named if isinstance(way, Located)]
        state, reason, hint = "measured", "", ""
        if not located:  # its recorder goes by the name, and makes the file on first use, whatever else is reached
            state, ids = "absent", []
            reason = f"{named[0][0].source}: {getattr(named[0][1], 'reason', '')}; latent: a recorder creates it on first use"
    elif ids:
        state, reason, hint = "measured", "", ""
    else:
        absent = next((way.reason for _, way in found if isinstance(way, Absent)), "no store")
        state, reason, hint = "absent", f"{absent}; latent: a recorder creates it on first use", ""
    return CheckoutReport(
        seat=checkout.seat,
        path=shown(checkout.path),
        path_b64=in_base64(checkout.path),
        state=state,
        store=ids[0] if ids else None,
        also=tuple(key for key in reached if key not in ids[:1]),
        reason=reason,
        hint=hint,
    )


def engine_warnings(version: tuple[int, int, int]) -> tuple[str, ...]:
    """Whether this SQLite has the log-reset race (3.7.0 to 3.51.2, fixed also in 3.50.7 and 3.44.6)."""
    fixed = version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)
    if fixed or version < (3, 7, 0):
        return ()
    return (
        f"SQLite {'.'.join(map(str, version))} can lose commits when a checkpoint races a log reset (fixed in 3.51.3); "
        "this tool never checkpoints a store, but a writer on the same version may",
    )


def _size(path: str | os.PathLike[str]) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0

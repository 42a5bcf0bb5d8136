"""Which checkouts there are, and which files a recorder in each of them may have written.

Paths and variables: neo#16202, brain#61 (`planeDataRoot`, `NEO_MEMORY_DB_PATH`, the older `neo-sqlite` and per-user
defaults). Test databases are left out on purpose.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from ..contract.leaves import ACTION_LOGGING, switch
from ..errors import RefusedError, UnmeasurableError
from ..verdicts import Absent, Unmeasurable
from ..wording import counted
from . import dotenv
from .finding import below, worktrees_of
from .identity import Identity, identity_of, resolve
from .paths import shown

DATA = ".neo-ai-data"
CURRENT = Path("sqlite/memory-core-graph.sqlite")
OLDER = Path("neo-sqlite/memory-core.sqlite")
PER_USER = Path(DATA) / "memory-core.sqlite"
STORE_PATH = "NEO_MEMORY_DB_PATH"
PLANE_ROOT = "NEO_PLANE_DATA_ROOT"
USER_SEAT = "(user)"

_UNTELLING = frozenset({"neo", "neomjs", "sqlite", "neo-sqlite", "worktrees", ".claude", DATA, "src", "git", "github"})


class Candidate(msgspec.Struct, frozen=True):
    """A path that may be a store, and where it was taken from.

    `bare`: handed over as a file, so nobody vouches for a `-wal`; `closed`: the operator says it was cleanly closed.
    """

    path: Path
    source: str
    bare: bool = False
    closed: bool = False


class Checkout(msgspec.Struct, frozen=True):
    """A clone or worktree. `trouble`: it cannot be looked at. `action_logging`: the leaf in `.env`, None if unset."""

    seat: str
    path: Path
    candidates: tuple[Candidate, ...]
    trouble: Unmeasurable | None = None
    action_logging: bool | None = None


def discover(
    paths: Sequence[Path],
    *,
    roots: Sequence[Path] = (),
    config_checkouts: Sequence[Path] = (),
    environ: Mapping[str, str],
    home: Path,
    git_worktrees: bool = True,
    closed: bool = False,
    expect: int | None = None,
) -> list[Checkout]:
    """Every checkout named, configured, found below `roots`, or known to git as a worktree of one of these.

    A path may be a bare SQLite file. `closed` states that bare files were cleanly closed. A named checkout that is
    not there stays in the list with its trouble. Worktrees count for `expect`, the per-user store does not.

    Raises UnmeasurableError when none or fewer than `expect` are found, RefusedError when there are more.
    """
    made: list[Checkout] = []
    seen: set[Identity] = set()
    # Two names of one directory are two seats when both were named, and one when it was merely found again.
    for path in dict.fromkeys(path.absolute() for path in (*paths, *config_checkouts)):
        made.append(_checkout(path, environ, closed, seen))
    for path, trouble in (hit for root in roots for hit in below(root)):
        if trouble is not None:
            made.append(Checkout(seat_of(path), path, (), trouble))
        elif not _is_seen(path, seen):
            made.append(_checkout(path, environ, closed, seen))
    if git_worktrees:
        for path in [path for checkout in made if not checkout.trouble for path in worktrees_of(checkout.path)]:
            if not _is_seen(path, seen):
                worktree = _checkout(path, environ, closed, seen)
                if worktree.trouble or any(map(_is_there, worktree.candidates)):
                    made.append(worktree)
    _pinned(made, expect)
    made = _unique(made)
    per_user = Candidate(home / PER_USER, "per-user default of older recorders")
    if _is_there(per_user):
        made.append(Checkout(USER_SEAT, home, (per_user,)))
    return made


def _pinned(made: list[Checkout], expect: int | None) -> None:
    if expect is None and made:
        return
    names = ", ".join(shown(checkout.path) for checkout in made)
    if not made:
        raise UnmeasurableError(
            "no checkout found: nothing was named, and nothing below the roots holds .neo-ai-data or is a Neo checkout",
            "name the checkouts, or a directory above them with --root",
        )
    if expect is not None and len(made) != expect:
        kind = UnmeasurableError if len(made) < expect else RefusedError
        raise kind(
            f"{counted(expect, 'checkout|s')} expected, {len(made)} found: {names}",
            "name the missing ones" if len(made) < expect else "expect this number, or leave the others out",
        )


def _is_there(candidate: Candidate) -> bool:
    """Whether something stands there, be it a dangling link or a closed door."""
    return not isinstance(resolve(candidate.path), Absent)


def _is_seen(path: Path, seen: set[Identity]) -> bool:
    try:
        return identity_of(os.stat(path)) in seen
    except OSError:
        return False


def _checkout(path: Path, environ: Mapping[str, str], closed: bool, seen: set[Identity]) -> Checkout:
    seat = seat_of(path)
    try:
        facts = os.stat(path)
        if stat.S_ISDIR(facts.st_mode):
            os.stat(f"{path}/.")  # the door: a directory that may be seen but not entered
    except OSError as error:
        return Checkout(seat, path, (), _closed(path, error))
    seen.add(identity_of(facts))
    if not stat.S_ISDIR(facts.st_mode):
        return Checkout(seat, path, (Candidate(path, "named", bare=True, closed=closed),))
    leaves = dotenv.read(path / ".env")
    if isinstance(leaves, Unmeasurable):
        return Checkout(seat, path, _candidates(path, {}, environ), leaves)
    candidates = _candidates(path, leaves, environ)
    return Checkout(seat, path, candidates, action_logging=switch(leaves.get(ACTION_LOGGING)))


def _candidates(path: Path, leaves: Mapping[str, str], environ: Mapping[str, str]) -> tuple[Candidate, ...]:
    """In the order of the recorder's own choice: an explicit file, an overridden plane root, the defaults."""
    made: list[Candidate] = []
    for origin, values in ((".env", leaves), ("environment", environ)):
        if values.get(STORE_PATH):
            made.append(Candidate(path / values[STORE_PATH], f"{STORE_PATH} in {origin}"))
    for origin, values in ((".env", leaves), ("environment", environ)):
        if values.get(PLANE_ROOT):
            root = path / values[PLANE_ROOT]
            made.append(Candidate(root / CURRENT, f"{PLANE_ROOT} in {origin}"))
            made.append(Candidate(root / OLDER, f"{PLANE_ROOT} in {origin}"))
    made.append(Candidate(path / DATA / CURRENT, "default"))
    made.append(Candidate(path / DATA / OLDER, "older default"))
    return tuple({candidate.path: candidate for candidate in reversed(made)}.values())[::-1]


def _closed(path: Path, error: OSError) -> Unmeasurable:
    where = shown(path)
    if isinstance(error, FileNotFoundError):
        if os.path.islink(path):
            return Unmeasurable(
                f"checkout {where}: dangling link, {shown(os.readlink(path))} does not exist",
                "its store went elsewhere: find it, or leave this checkout out",
            )
        return Unmeasurable(f"checkout {where} does not exist", "correct the path, or leave this checkout out")
    if isinstance(error, PermissionError):
        return Unmeasurable(
            f"checkout {where}: door closed, uid {os.geteuid()} may not enter it", "run as the owner of that checkout"
        )
    return Unmeasurable(f"checkout {where} cannot be entered ({error.strerror})", "correct the path")


def seat_of(path: Path) -> str:
    """The name of who uses a checkout: the last telling part, `codex` of `/Users/Shared/codex/neomjs/neo`."""
    parts = [part for part in path.parts if part not in (path.anchor, "..")]
    if path.suffix in (".sqlite", ".db", ".sqlite3") and len(parts) > 1:
        parts = parts[:-1]
    telling = [part for part in parts if part not in _UNTELLING]
    return shown((telling or parts or ["checkout"])[-1])


def _unique(made: Iterable[Checkout]) -> list[Checkout]:
    taken: set[str] = {USER_SEAT}
    result: list[Checkout] = []
    for checkout in made:
        seat, number = checkout.seat, 1
        while seat in taken:
            number += 1
            seat = f"{checkout.seat}-{number}"
        taken.add(seat)
        result.append(msgspec.structs.replace(checkout, seat=seat))
    return result

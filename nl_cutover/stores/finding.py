"""Looking for checkouts on the disk: below a root, and through git's own list of worktrees."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from ..verdicts import Unmeasurable
from .identity import Identity, identity_of
from .paths import shown

DEPTH = 5  # /Users/Shared/<seat>/neomjs/neo is 3 below /Users/Shared
_PACKAGES = frozenset({"neo.mjs", "neo-agent-brain"})
_SKIPPED = frozenset({"node_modules", ".git", ".venv", ".neo-ai-data"})


def below(root: Path, depth: int = DEPTH) -> list[tuple[Path, Unmeasurable | None]]:
    """Directories at most `depth` below `root` that hold a data folder or are Neo checkouts, in name order.

    A directory that cannot be listed may hide a checkout: it is returned with its trouble. Links are followed, each
    directory once. A home directory may hold a data folder and still have checkouts below it.
    """
    return list(_below(root.absolute(), depth, set()))


def _below(folder: Path, depth: int, seen: set[Identity]) -> Iterator[tuple[Path, Unmeasurable | None]]:
    try:
        identity = identity_of(os.stat(folder))
        if identity in seen:
            return
        seen.add(identity)
        with os.scandir(folder) as entries:
            names = {entry.name: _may_be_directory(entry) for entry in entries}
    except OSError as error:
        yield (
            folder,
            Unmeasurable(
                f"{shown(folder)} cannot be searched for checkouts ({error.strerror})",
                "run as its owner, or name the checkouts instead of a root above them",
            ),
        )
        return
    checkout = names.get("package.json") is False and _is_neo(folder / "package.json")
    if checkout or any(os.path.lexists(folder / ".neo-ai-data" / name) for name in ("sqlite", "neo-sqlite")):
        yield folder, None
    if depth and not checkout and ".git" not in names:
        for name in sorted(name for name, directory in names.items() if directory and name not in _SKIPPED):
            yield from _below(folder / name, depth - 1, seen)


def _may_be_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return True  # a closed door: the visit says so


def _is_neo(package: Path) -> bool:
    try:
        manifest = json.loads(package.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.get("name") in _PACKAGES


def worktrees_of(checkout: Path) -> list[Path]:
    """Worktrees of the same repository that are still there, `checkout` included, and what `.claude/worktrees` holds.

    `.git` may be a directory or a file. Git's files are read as `git worktree list` reads them; git itself is not
    started: it refuses repositories of other users, and a repository's configuration may name programs to run.
    """
    found = [*_listed_by_git(checkout), *_in_claude(checkout)]
    return [path for path in dict.fromkeys(found) if os.path.lexists(path)]


def _in_claude(checkout: Path) -> list[Path]:
    try:
        with os.scandir(checkout / ".claude" / "worktrees") as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir())
    except OSError:
        return []


def _listed_by_git(checkout: Path) -> list[Path]:
    common = _common_directory(checkout)
    if common is None:
        return []
    found = [common.parent] if common.name == ".git" else []
    try:
        names = sorted(os.listdir(common / "worktrees"))
    except OSError:
        return found
    for name in names:
        pointer = _line(common / "worktrees" / name / "gitdir")
        if pointer is not None:
            found.append(Path(os.path.normpath(common / "worktrees" / name / pointer)).parent)
    return found


def _common_directory(checkout: Path) -> Path | None:
    git = checkout / ".git"
    if os.path.isdir(git):
        return git
    pointer = _line(git)
    if pointer is None or not pointer.startswith("gitdir: "):
        return None
    own = checkout / pointer.removeprefix("gitdir: ")
    common = _line(own / "commondir")
    return Path(os.path.normpath(own / common)) if common is not None else own


def _line(path: Path) -> str | None:
    try:
        return os.fsdecode(path.read_bytes()).removesuffix("\n")
    except OSError:
        return None

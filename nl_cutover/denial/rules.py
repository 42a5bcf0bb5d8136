"""What is forbidden, and which forms of loading there are: both are data, in `checks/*.toml`."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import msgspec

from ..errors import UnmeasurableError, UsageError
from ..resources import resource

_T = TypeVar("_T")


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that a host surface may not load.

    `packages` are exact package names (a sub-path of one counts), `builtins` are modules of the runtime, `natives` are
    names of compiled addons, `modules` are files of the tree by the end of their path without extension, `paths` are
    texts that no string may contain. `surfaces` are globs; they are used by `check` and may be replaced by `--surface`.
    """

    name: str
    why: str
    origin: str
    control: str
    surfaces: list[str]
    packages: list[str] = []
    builtins: list[str] = []
    natives: list[str] = []
    modules: list[str] = []
    paths: list[str] = []


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What calling a value does. `argument` is the index of what decides; `gives` is what comes back."""

    form: str
    action: str
    argument: int = 0
    gives: str = ""


class Loaders(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ways to load code, as a graph of values.

    `globals` name the values that every script finds, `imports` those that a module gives, `members` lead from
    `value.property` to a value, `calls` say what calling one does. A value in `escapes` may not leave sight.
    `interpreters` are commands that run JavaScript, `shells` those that run a command line.
    """

    globals: dict[str, str]
    imports: dict[str, str]
    members: dict[str, str]
    calls: dict[str, Call]
    escapes: list[str]
    interpreters: list[str]
    shells: list[str]

    @property
    def leads(self) -> tuple[str, ...]:
        """The properties that lead from one value to another."""
        return (*sorted({member.partition(".")[2] for member in self.members}), "call", "apply", "bind", "then")


class Allowed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One place that may stay undecided. `sha256`: of the line's text, at least 12 digits; a changed line drops it."""

    path: str
    line: int
    sha256: str
    why: str


class Allowances(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allow: list[Allowed] = []


class Rules(msgspec.Struct, frozen=True):
    rules: tuple[Rule, ...]
    loaders: Loaders


def load_rules() -> Rules:
    """All of `checks/rules/*.toml`, and the loaders. Raises UnmeasurableError naming the file that does not read."""
    rules = tuple(read_toml(path, Rule) for path in sorted(resource("checks", "rules").glob("*.toml")))
    if not rules:
        raise UnmeasurableError("there is no rule in checks/rules", "a check without a rule would find nothing")
    return Rules(rules, read_toml(resource("checks", "loaders.toml"), Loaders))


def load_allowances(path: Path) -> list[Allowed]:
    """The allow list. Raises UsageError for an entry without a reason or with too short a digest."""
    allowed = read_toml(path, Allowances).allow
    for entry in allowed:
        if len(entry.sha256) < 12 or not entry.why.strip():
            raise UsageError(
                f"{path}: {entry.path}:{entry.line} needs a reason and at least 12 digits of its line's sha256",
                "nl-cutover check static prints the digest of each line",
            )
    return allowed


def read_toml(path: Path, shape: type[_T]) -> _T:
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), shape)
    except OSError as error:
        raise UnmeasurableError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UnmeasurableError(
            f"{path}: {error}", "each file is documented where its fields are: denial/rules.py"
        ) from None


def line_digest(line: bytes) -> str:
    """What an allowance holds on to: sha256 of the line without its indentation and line end."""
    return hashlib.sha256(line.strip()).hexdigest()


def covers(globs: Sequence[str], path: str) -> bool:
    """Whether a path is in one of the surfaces. `**/` is any depth, none too; a name without a slash is found anywhere;
    a glob that names a folder takes all of it."""
    return any(_glob(glob).fullmatch(path) is not None for glob in globs)


@lru_cache
def _glob(glob: str) -> re.Pattern[str]:
    glob = glob.removeprefix("./").strip("/")
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\{[^{}]*\})", glob)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    made = "".join(
        "(?:" + "|".join(map(re.escape, part[1:-1].split(","))) + ")"
        if part.startswith("{") and part.endswith("}")
        else known.get(part, re.escape(part))
        for part in parts
    )
    return re.compile(("" if "/" in glob else "(?:.*/)?") + made + "(?:/.*)?", re.DOTALL)

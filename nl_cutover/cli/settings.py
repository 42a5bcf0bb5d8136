"""Settings: flags before `nl-cutover.toml` before defaults. A token is never a setting, only the name of its slot."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ..contract.wire import DEFAULT_TOKEN_ENV, DEFAULT_URL, PLANE_ID
from ..errors import UsageError

CONFIG_NAME = "nl-cutover.toml"
LONGEST = 1e6  # of seconds, minutes or hours; what counts them in ms has 31 bits somewhere


class ConfiguredCheckout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    seat: str | None = None


class ConfiguredPlane(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str = PLANE_ID
    data_root: str | None = None
    engine: str | None = None
    container: str | None = None
    project: str | None = None
    service: str | None = None


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`nl-cutover.toml`. Relative paths are taken from the file's folder."""

    url: str = DEFAULT_URL
    token_env: str = DEFAULT_TOKEN_ENV
    environment_proxies: bool = False
    wait: Annotated[float, msgspec.Meta(ge=0, le=LONGEST)] = 30.0  # seconds that one call may wait for a busy server
    custody: str | None = None
    owner: str | None = None
    plane: ConfiguredPlane = ConfiguredPlane()
    checkouts: list[ConfiguredCheckout | str] = []
    roots: list[str] = []
    identities: dict[str, str] = {}  # originWriter.agentId -> environment slot of its token


class Settings(msgspec.Struct, frozen=True):
    """What a verb works with."""

    url: str
    token_env: str
    custody: Path
    owner: str | None
    plane_id: str
    data_root: str | None
    checkouts: list[tuple[Path, str | None]]
    roots: list[Path]
    identities: dict[str, str]
    environment_proxies: bool
    wait: float
    engine: str | None
    container: str | None
    project: str | None
    service: str | None


def load(
    *,
    config: Path | None,
    checkouts: list[Path] | None = None,
    roots: list[Path] | None = None,
    url: str | None = None,
    token_env: str | None = None,
    custody: Path | None = None,
    owner: str | None = None,
    plane: str | None = None,
    environment_proxies: bool | None = None,
    wait: float | None = None,
    engine: str | None = None,
    container: str | None = None,
    project: str | None = None,
    service: str | None = None,
) -> Settings:
    """Merge flags over the configuration file. Raises UsageError naming the file and the key."""
    from ..custody.directory import default_custody

    path = config if config is not None else Path(CONFIG_NAME)
    read = _read(path) if config is not None or path.is_file() else Config()
    base = path.parent
    listed: list[tuple[Path, str | None]] = [(p, None) for p in checkouts or []]
    found = list(roots or [])
    if not listed and not found:
        listed = [(base / c, None) if isinstance(c, str) else (base / c.path, c.seat) for c in read.checkouts]
        found = [base / r for r in read.roots]
    return Settings(
        url=url or read.url,
        token_env=token_env or read.token_env,
        custody=(custody or (base / read.custody if read.custody else default_custody())).absolute(),
        owner=owner or read.owner,
        plane_id=plane or read.plane.id,
        data_root=read.plane.data_root,
        checkouts=listed,
        roots=found,
        identities=read.identities,
        environment_proxies=read.environment_proxies if environment_proxies is None else environment_proxies,
        wait=read.wait if wait is None else wait,
        engine=engine or read.plane.engine,
        container=container or read.plane.container,
        project=project or read.plane.project,
        service=service or read.plane.service,
    )


def _read(path: Path) -> Config:
    try:
        raw: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
        return msgspec.convert(raw, Config)
    except OSError as error:
        raise UsageError(f"the configuration {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"the configuration {path} is not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the configuration {path} holds something unknown: {error}",
            f"known: {', '.join(Config.__struct_fields__)}",
        ) from None


def as_toml(
    *,
    url: str,
    custody: str,
    owner: str | None,
    plane: str,
    checkouts: list[tuple[str | None, str]],
    identities: dict[str, str],
) -> str:
    """A settings file; `checkouts` are seats and paths."""
    lines = [f"url = {_quoted(url)}", f"custody = {_quoted(custody)}"]
    lines += [f"owner = {_quoted(owner)}"] if owner else []
    named = [(f"seat = {_quoted(seat)}, " if seat else "") + f"path = {_quoted(path)}" for seat, path in checkouts]
    lines += ["checkouts = [", *(f"  {{ {entry} }}," for entry in named), "]", "", "[plane]", f"id = {_quoted(plane)}"]
    if identities:
        lines += ["", "[identities]", *(f"{_quoted(who)} = {_quoted(slot)}" for who, slot in identities.items())]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

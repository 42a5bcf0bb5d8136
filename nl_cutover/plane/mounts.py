"""What a container has mounted, where its graph lives, and how it is: pure functions over the engine's inspection."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from .engine import Engine

GRAPH = "/app/.neo-ai-data/sqlite/memory-core-graph.sqlite"  # where Neo's compose file puts it
_ANONYMOUS = re.compile(r"[0-9a-f]{64}")


class Home(msgspec.Struct, frozen=True):
    """Where a graph lives. kind: volume | bind | file | tmpfs | layer. `source`: the volume's name or the host's path.

    `host_path`: the graph's own file as the host spells it, for a bind mount.
    """

    path: str
    kind: str
    source: str | None = None
    host_path: str | None = None
    anonymous: bool = False
    removed_with_container: bool = False

    @property
    def words(self) -> str:
        match self.kind:
            case "volume":
                return f"the {'anonymous ' if self.anonymous else ''}volume {(self.source or '')[:24]}"
            case "bind":
                return f"the folder {self.source} of the host"
            case "file":
                return f"the single file {self.source} of the host"
            case "tmpfs":
                return "a tmpfs, which is memory"
            case _:
                return "the container's own layer"

    @property
    def refusal(self) -> str | None:
        """Why what is saved there is not preserved when the container is gone."""
        if self.kind == "file":
            return f"the graph is {self.words}: its -wal stays in the container's layer and is lost with it"
        if self.kind in ("layer", "tmpfs"):
            return f"the graph is on {self.words}: it is gone with the container"
        if self.anonymous:
            how = (
                "--rm removes it with the container"
                if self.removed_with_container
                else "a container made anew gets another"
            )
            return f"the graph is on {self.words}: {how}"
        return None


class Health(msgspec.Struct, frozen=True):
    """kind: none (no healthcheck) | starting | healthy | unhealthy | stopped. `said`: its last output, when unhealthy.

    `restarts`: how often the engine restarted it by itself.
    """

    kind: str
    said: str = ""
    restarts: int = 0
    looping: bool = False


class Mount(msgspec.Struct, frozen=True):
    type: str
    source: str
    target: str
    writable: bool


def mounts_of(facts: Mapping[str, Any]) -> list[Mount]:
    """Every mount, `--tmpfs` included, which the engine lists apart."""
    listed = [
        Mount(m["Type"], m.get("Name") or m.get("Source") or "", m["Destination"], bool(m.get("RW", True)))
        for m in facts.get("Mounts") or []
    ]
    return listed + [Mount("tmpfs", "", target, True) for target in facts["HostConfig"].get("Tmpfs") or {}]


def environ_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """The environment that the container was made with."""
    return dict(entry.partition("=")[::2] for entry in facts["Config"].get("Env") or [])


def home_of(facts: Mapping[str, Any]) -> Home:
    """Where the graph of NEO_MEMORY_DB_PATH lives: the mount with the longest target above it."""
    path = environ_of(facts).get("NEO_MEMORY_DB_PATH") or GRAPH
    path = posixpath.normpath(posixpath.join(facts["Config"].get("WorkingDir") or "/", path))
    above = [m for m in mounts_of(facts) if f"{path}/".startswith(m.target.rstrip("/") + "/")]
    if not above:
        return Home(path, "layer")
    mount = max(above, key=lambda m: len(m.target))
    removed = bool(facts["HostConfig"].get("AutoRemove"))
    match mount.type:
        case "volume":
            return Home(path, "volume", mount.source, None, bool(_ANONYMOUS.fullmatch(mount.source)), removed)
        case "bind" if posixpath.normpath(mount.target) == path:
            return Home(path, "file", mount.source, mount.source)
        case "bind":
            inside = posixpath.relpath(path, mount.target)
            return Home(path, "bind", mount.source, posixpath.join(mount.source, inside))
        case _:
            return Home(path, "tmpfs")


def health_of(facts: Mapping[str, Any]) -> Health:
    """The health's kind; a container that keeps being restarted is looping, whatever its last state."""
    state = facts["State"]
    restarts = int(facts.get("RestartCount") or 0)
    looping = bool(state.get("Restarting"))
    if not state.get("Running"):
        return Health("stopped", "killed for its memory" if state.get("OOMKilled") else "", restarts, looping)
    health = state.get("Health") or {}
    kind = health.get("Status") or "none"
    log = health.get("Log") or [{}]
    said = " ".join(str(log[-1].get("Output") or "").split())[-300:] if kind == "unhealthy" else ""
    return Health(kind, said, restarts, looping)


def sources_of_running(engine: Engine) -> list[tuple[str, str]]:
    """(container's name, host path) of every mount of every running container."""
    with engine.asking("the listing of containers") as api:
        listed: list[dict[str, Any]] = api.containers()
    return [
        # Docker Desktop prefixes the paths of its host.
        (str(one["Names"][0]).lstrip("/"), mount["Source"].removeprefix("/host_mnt"))
        for one in listed
        for mount in one.get("Mounts") or []
        if mount.get("Source")
    ]


def volume_trouble(engine: Engine, home: Home) -> str | None:
    """A named volume may be a tmpfs by its driver's options."""
    if home.kind != "volume":
        return None
    with engine.asking(f"the inspection of {home.words}") as api:
        options = (api.inspect_volume(home.source) or {}).get("Options") or {}
    return (
        f"{home.words} is a tmpfs by its options: it is gone with the container"
        if options.get("type") == "tmpfs"
        else None
    )

"""Which container is Memory Core: by name, by compose labels, or by the ingress's published port. One, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ..errors import RefusedError, UnreachableError
from .engine import Engine
from .mounts import Home, environ_of, home_of

PROJECT, SERVICE = "com.docker.compose.project", "com.docker.compose.service"
MC_SERVICE = "mc-server"  # what Neo's compose file calls it
REVISION = "org.opencontainers.image.revision"
PLANE = "nl-cutover.plane-id"
_ASIDE = "-before-"  # between name and id of a container that is set aside while it is made anew
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANY = ("", "0.0.0.0", "::")


class Wanted(msgspec.Struct, frozen=True):
    """What the operator named, and the ingress, whose published port leads to the container otherwise."""

    url: str
    container: str | None = None
    project: str | None = None
    service: str | None = None

    @property
    def named(self) -> bool:
        return self.container is not None or self.project is not None or self.service is not None


class Pin(msgspec.Struct, frozen=True):
    """One container, at one start. What of it must be the same at the cut stands in `moved`."""

    id: str
    name: str
    image: str
    image_id: str
    revision: str | None
    project: str | None
    service: str | None
    plane_id: str | None
    started_at: str
    state: str
    home: Home

    @property
    def words(self) -> str:
        return f"container {self.name} ({self.id[:12]})"

    def running(self) -> None:
        """Raises UnreachableError when nothing can be asked inside it: that is not the same as an answer of nothing."""
        if self.state != "running":
            raise UnreachableError(
                f"{self.words} is {self.state}: what it holds cannot be looked up", "start it, then again"
            )

    def moved(self, now: Pin) -> list[str]:
        """In what `now` is another container, start, image or graph."""
        found = [
            f"{name} was {getattr(self, name)}, is {getattr(now, name)}"
            for name in ("id", "started_at", "image_id")
            if getattr(self, name) != getattr(now, name)
        ]
        if (self.home.kind, self.home.source, self.home.path) != (now.home.kind, now.home.source, now.home.path):
            found.append(f"the graph was on {self.home.words}, is on {now.home.words}")
        return found


def locate(engine: Engine, wanted: Wanted) -> Pin:
    """Exactly one container. Raises RefusedError listing the candidates where there are several, UnreachableError for none."""
    if not engine.facts.local and not wanted.named:
        raise UnreachableError(
            f"the engine {engine.facts.url} is on another machine, where {wanted.url} leads elsewhere",
            "name the container: --container NAME",
        )
    with engine.asking("the listing of containers") as api:
        listed: list[dict[str, Any]] = api.containers(all=True)
    found, how = choose([one for one in listed if _set_aside(one) is None], wanted)
    if len(found) > 1:
        alive = [one for one in found if one["State"] == "running"]
        if len(alive) != 1:
            raise RefusedError(
                f"{len(found)} containers are {how}: {'; '.join(map(shown, found))}",
                "name one: --container NAME, or --project with --service",
            )
        found = alive
    if not found:
        if (left := _unfinished(listed)) is not None:
            raise UnreachableError(f"no container is {how}, and {left[0]}", left[1])
        raise UnreachableError(f"no container is {how}", "name it: --container NAME")
    if found[0]["State"] != "running" and (left := _unfinished(listed, _name(found[0]))) is not None:
        raise UnreachableError(*left)
    facts = raw(engine, found[0]["Id"])
    if not wanted.named and "NEO_MEMORY_DB_PATH" not in environ_of(facts):
        raise UnreachableError(
            f"what publishes the port of {wanted.url} is no Memory Core: {shown(found[0])} has no NEO_MEMORY_DB_PATH",
            "name the one behind it: --container NAME",
        )
    return pin_of(facts)


def finished(engine: Engine, pin: Pin) -> None:
    """Raises RefusedError where the container was made anew and the one before it is still there."""
    with engine.asking("the listing of containers") as api:
        left = _unfinished(api.containers(all=True), pin.name)
    if left is not None:
        raise RefusedError(*left)


def aside(pin: Pin, policy: str) -> str:
    """The name of a container while it is made anew; it keeps the restart policy that was taken from it."""
    return f"{pin.name}{_ASIDE}{pin.id[:12]}{'.' if policy else ''}{policy.replace(':', '_')}"


def _set_aside(listed: dict[str, Any]) -> tuple[str, str] | None:
    """The name and the restart policy that a container had before it was set aside."""
    name, mark, rest = _name(listed).rpartition(_ASIDE)
    its_id, _, policy = rest.partition(".")
    return (name, policy.replace("_", ":")) if mark and its_id and listed["Id"].startswith(its_id) else None


def _unfinished(listed: Sequence[dict[str, Any]], name: str | None = None) -> tuple[str, str] | None:
    """Of the first container that was set aside, or of that name: what it is, and the command that ends it."""
    for one in listed:
        if (was := _set_aside(one)) is None or name not in (None, was[0]):
            continue
        again = f" && docker update --restart {was[1]} {was[0]}" if was[1] else ""
        command = f"docker rename {_name(one)} {was[0]}{again} && docker start {was[0]}"
        for new in listed:
            if _name(new) == was[0]:
                command, status = f"docker rm -f {was[0]} && {command}", new.get("Status", "")
                if new["State"] == "running" and "(unhealthy)" not in status:
                    wait = f"wait until {was[0]} is healthy, then: " if "(health: starting)" in status else ""
                    command = f"{wait}docker rm {_name(one)}"
        return f"{shown(one)} was set aside by a `plane prove --recreate` that was cut off", command
    return None


def inspected(engine: Engine, container: str) -> Pin:
    """The container as it is now. Raises UnreachableError when it is gone."""
    return pin_of(raw(engine, container))


def raw(engine: Engine, container: str) -> dict[str, Any]:
    """The engine's own description of a container."""
    with engine.asking(f"the inspection of {container[:12]}") as api:
        facts: dict[str, Any] = api.inspect_container(container)
    return facts


def link_of(engine: Engine, pin: Pin) -> str | None:
    """Where the graph's path leads inside the container if it is a symbolic link: mounts tell nothing of that place."""
    with engine.asking(f"the place of the graph in {pin.words}") as api:
        _, place = api.get_archive(pin.id, pin.home.path)
    return place["linkTarget"] or None


def choose(listed: Sequence[dict[str, Any]], wanted: Wanted) -> tuple[list[dict[str, Any]], str]:
    """The candidates among the engine's list, and in words how they were found. Pure."""
    if wanted.container is not None:
        name = wanted.container
        exact = [one for one in listed if f"/{name}" in one["Names"] or one["Id"] == name]
        return exact or [one for one in listed if len(name) >= 6 and one["Id"].startswith(name)], f"named {name}"
    if wanted.project is not None or wanted.service is not None:
        service = wanted.service or MC_SERVICE
        return [
            one for one in _of(listed, service) if wanted.project in (None, _label(one, PROJECT))
        ], f"service {service} of {'project ' + wanted.project if wanted.project else 'any compose project'}"
    how = f"behind {wanted.url}"
    publishers = [one for one in listed if publishes(one, wanted.url)]
    # A reverse proxy may publish the port: Memory Core is then its neighbour.
    projects = {_label(one, PROJECT) for one in publishers} - {None}
    neighbours = [one for one in _of(listed, MC_SERVICE) if _label(one, PROJECT) in projects]
    return neighbours or publishers, how


def publishes(listed: dict[str, Any], url: str) -> bool:
    """Whether a listed container publishes the port of `url` on this host."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    for one in listed.get("Ports") or []:
        ip = one.get("IP", "")
        if one.get("PublicPort") == port and (ip in _ANY or ip == parts.hostname or parts.hostname == "localhost"):
            return parts.hostname in _LOOPBACK or ip == parts.hostname
    return False


class Ties(msgspec.Struct, frozen=True):
    """What binds a container to an ingress, and which of both ties, the published port and the plane id, is not proved."""

    proved: list[str]
    not_proved: list[str]


def tied(
    engine: Engine, pin: Pin, url: str, plane_id: str | None, data_root: str | None, *, silent: bool = False
) -> Ties:
    """So that one receipt may name both. `silent`: the ingress did not answer while the container was stopped.

    Raises RefusedError where something speaks against it, or nothing for it.
    """
    led = leads(engine, pin, url) or (f"{url} was silent while it was stopped" if silent else None)
    found = [] if led is None else [f"published port: {led}"]
    missing = [f"published port: nothing shows that {url} leads to {pin.words}"] if led is None else []
    if pin.plane_id is not None and plane_id is not None:
        if pin.plane_id != plane_id:
            raise RefusedError(
                f"{pin.words} is of plane {pin.plane_id}, the ingress answers for {plane_id}",
                "correct --url or --container; nothing was sent",
            )
        found.append(f"plane id: both say {plane_id}")
    else:
        missing.append(f"plane id: {pin.words if pin.plane_id is None else 'the ingress'} names none")
    # Every Memory Core has the same one by default: alone it ties nothing.
    if found and data_root is not None and pin.home.path.startswith(data_root.rstrip("/") + "/"):
        found.append(f"its graph lies in the data root {data_root} of the ingress")
    if not found:
        raise RefusedError(
            f"nothing ties {pin.words} to {url}: no published port, no plane id", "set NEO_PLANE_ID in the container"
        )
    return Ties(found, missing)


def leads(engine: Engine, pin: Pin, url: str) -> str | None:
    """How `url` leads to the container; None where no published port tells. Raises RefusedError where it leads elsewhere."""
    if not engine.facts.local:
        return None
    with engine.asking("the listing of containers") as api:
        found = [one for one in api.containers() if publishes(one, url)]
    for one in found:
        if one["Id"] == pin.id:
            return f"it publishes the port of {url}"
        if pin.project is not None and _label(one, PROJECT) == pin.project:
            return f"{_name(one)} of its compose project publishes the port of {url}"
        raise RefusedError(
            f"{url} leads to {shown(one)}, not to {pin.words}", "correct --url or --container; nothing was sent"
        )
    return None


def pin_of(facts: dict[str, Any]) -> Pin:
    """From the engine's inspection."""
    config, state = facts["Config"], facts["State"]
    labels = config.get("Labels") or {}
    return Pin(
        id=facts["Id"],
        name=facts["Name"].lstrip("/"),
        image=config.get("Image", ""),
        image_id=facts.get("Image", ""),
        revision=labels.get(REVISION) or None,
        project=labels.get(PROJECT),
        service=labels.get(SERVICE),
        plane_id=environ_of(facts).get("NEO_PLANE_ID") or labels.get(PLANE) or None,
        started_at=state.get("StartedAt", ""),
        state=_state(state),
        home=home_of(facts),
    )


def shown(listed: dict[str, Any]) -> str:
    """A candidate in a list: name, id, compose project and service, state."""
    place = f", {_label(listed, PROJECT)}/{_label(listed, SERVICE)}" if _label(listed, PROJECT) else ""
    return f"{_name(listed)} ({listed['Id'][:12]}{place}, {listed['State']})"


def _state(state: dict[str, Any]) -> str:
    """running, paused, restarting, or how it ended: `exited (137)`; 137 is a kill, whatever asked for it."""
    status = str(state.get("Status"))
    return status if status in ("running", "paused", "restarting", "created") else f"{status} ({state.get('ExitCode')})"


def _of(listed: Sequence[dict[str, Any]], service: str) -> list[dict[str, Any]]:
    return [one for one in listed if _label(one, SERVICE) == service]


def _label(listed: dict[str, Any], name: str) -> str | None:
    return (listed.get("Labels") or {}).get(name)


def _name(listed: dict[str, Any]) -> str:
    return str((listed.get("Names") or ["/?"])[0]).lstrip("/")

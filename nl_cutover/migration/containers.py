"""The container beside a run: what can be proved through it, or the reason why nothing can."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ..contract import javascript as js
from ..contract.telemetry import action_digest
from ..custody import directory, receipts
from ..custody.reading import LedgerReader
from ..errors import RefusedError, UnreachableError
from ..ingress.preflight import Plane
from ..plane.backup import Backup, backup, known_backup
from ..plane.engine import Engine, NoEngine
from ..plane.evidence import Answer, nodes
from ..plane.locate import Pin, Wanted, finished, inspected, leads, link_of, locate, raw, tied
from ..plane.mounts import health_of, volume_trouble
from ..stores.holders import holders_of
from ..stores.identity import Located, resolve
from .evidence import ACTION_LABEL, ARCHIVE_LABEL, StoredArchive, stored_archive

BACKUPS = "backups"
_TOKENS_AT_ONCE = 20_000


class ContainerEvidence:
    """Evidence read inside the container. `as_of` is the moment before the first question; before it nothing is known.

    It is `tied` where a published port of the container leads to the ingress; see `Container`.
    """

    def __init__(self, engine: Engine, pin: Pin, clock: Callable[[], float], url: str) -> None:
        self._engine, self._pin, self._clock, self._url = engine, pin, clock, url
        self._asked: list[Answer] = []
        self.words = f"{pin.words}, read inside it"

    @property
    def tied(self) -> bool:
        return leads(self._engine, self._pin, self._url) is not None

    @property
    def as_of(self) -> float:
        return min((answer.asked_at for answer in self._asked), default=0.0)

    @property
    def answer(self) -> Answer | None:
        """The last one: what read the graph, and how far the container's clock is off."""
        return self._asked[-1] if self._asked else None

    def archives(self, since: float = 0) -> list[StoredArchive]:
        found: list[StoredArchive] = []
        self._ask(ARCHIVE_LABEL, lambda properties: found.append(stored_archive(properties)), since=since)
        return found

    def actions(self, tokens: Collection[str]) -> Counter[str]:
        found: Counter[str] = Counter()
        wanted = sorted(tokens)
        for at in range(0, len(wanted), _TOKENS_AT_ONCE):
            part = wanted[at : at + _TOKENS_AT_ONCE]
            self._ask(ACTION_LABEL, lambda properties: found.update([action_digest(properties)]), tokens=part)
        return found

    def _ask(self, label: str, each: Callable[[dict[str, Any]], object], **orders: Any) -> None:
        def node(text: str) -> None:
            properties = parsed.get("properties") if isinstance(parsed := js.parse(text), dict) else None
            if isinstance(properties, dict):
                each(properties)

        self._asked.append(nodes(self._engine, self._pin, self._clock, label, node, **orders))


@dataclass(frozen=True)
class Container:
    """A located container. It is tied to the ingress, and its graph's place judged, before anything is proved by it."""

    engine: Engine
    pin: Pin
    clock: Callable[[], float]
    url: str

    @property
    def evidence(self) -> ContainerEvidence:
        return ContainerEvidence(self.engine, self.pin, self.clock, self.url)

    def facts(self, plane: Plane, *, silent: bool = False) -> dict[str, Any]:
        """What a receipt says of it. Raises RefusedError where it is not the ingress's, is not alone, or keeps nothing."""
        finished(self.engine, self.pin)
        ties = tied(self.engine, self.pin, plane.url, plane.plane_id, plane.data_root, silent=silent)
        if (trouble := not_durable(self.engine, self.pin)) is not None:
            raise RefusedError(trouble, "put the graph on a named volume first; nothing was sent")
        health = health_of(raw(self.engine, self.pin.id))
        return {
            "engine": msgspec.to_builtins(self.engine.facts),
            "pin": msgspec.to_builtins(self.pin),
            "tied": ties.proved,
            "not_proved": ties.not_proved,
            "health": health.kind,
            "graph_on": self.pin.home.words,
        }

    def before(self, plane: Plane, custody: Path, *, take_backup: bool) -> dict[str, Any]:
        """`facts`, after a backup of the graph as it was before the run's first row. Raises CutoverError."""
        made = self.facts(plane) | {"evidence": self.evidence.words, "backup": None}
        missing = [*made["not_proved"], "durability: not proved until `nl-cutover plane prove`"]
        if take_backup:
            taken, late = self._backup(custody)
            made["backup"] = msgspec.to_builtins(taken)
            missing += late
        else:
            missing.append("backup: declined (--no-backup)")
        return made | {"not_proved": missing}

    def _backup(self, custody: Path) -> tuple[Backup, list[str]]:
        """The one of the run's beginning; where there is none, one of now, and what a run that began before lacks."""
        folder, late = custody / BACKUPS, []
        if directory.exists(custody):
            with LedgerReader(custody) as reader:
                run = reader.run()
            if run is not None:
                if (earlier := known_backup(folder, self.pin, before_ms=run["created_at"])) is not None:
                    return earlier, []
                late = ["backup: there is none of this graph from before the run's first row; this one is of now"]
        directory.create(custody)
        return backup(self.engine, self.pin, folder, clock=self.clock), late


class NoContainer(msgspec.Struct, frozen=True):
    """Why nothing can be proved but by the ingress."""

    reason: str

    @property
    def evidence(self) -> None:
        return None

    def facts(self, plane: Plane) -> dict[str, Any]:
        return {"not_proved": [f"{what}: {self.reason}" for what in ("durability", "backup", "evidence")]}

    def before(self, plane: Plane, custody: Path, *, take_backup: bool) -> dict[str, Any]:
        return self.facts(plane)


def container_of(
    engine: Engine | NoEngine, wanted: Wanted, clock: Callable[[], float], *, required: bool = False
) -> Container | NoContainer:
    """The container behind the ingress, or named. Raises CutoverError where one is `required` or named and is not there,
    RefusedError where there are several."""
    if isinstance(engine, NoEngine):
        if required or (wanted.named and engine.kind != "declined"):
            raise engine.error()
        return NoContainer(engine.reason)
    try:
        pin = locate(engine, wanted)
        pin.running()
    except UnreachableError as error:
        if required or wanted.named:
            raise
        return NoContainer(error.message)
    return Container(engine, pin, clock, wanted.url)


def not_durable(engine: Engine, pin: Pin) -> str | None:
    """Why what is saved would not outlive the container, or might be destroyed by the host."""
    home = pin.home
    if home.refusal is not None:
        return home.refusal
    if (target := link_of(engine, pin)) is not None:
        return f"the graph {home.path} is a link to {target} inside {pin.words}: {home.words} does not hold it"
    if home.host_path is not None and engine.facts.local:
        located = resolve(Path(home.host_path))
        if isinstance(located, Located):
            holders = holders_of([located])[located.identity.id].processes
            if outside := [holder for holder in holders if _of_this_host(holder.pid)]:
                names = ", ".join(dict.fromkeys(f"pid {holder.pid} ({holder.command})" for holder in outside))
                return f"the graph is on {home.words}, where {names} of the host holds it open too"
    return volume_trouble(engine, home)


def moved_since(custody: Path, choose: Callable[[], Engine | NoEngine]) -> list[str]:
    """In what the container of the newest receipt that pinned one is another now. Nobody looks where the operator
    declined it (--engine none). Raises UnreachableError where the engine does not answer."""
    for link in reversed(receipts.chain(custody)):
        facts = link.body.get("container") or {}
        if "pin" in facts:
            break
    else:
        return []
    engine = choose()
    if isinstance(engine, NoEngine):
        if engine.kind == "declined":
            return []
        raise engine.error()
    pinned = msgspec.convert(facts["pin"], Pin)
    with engine.asking("the listing of containers") as api:
        if pinned.id not in {one["Id"] for one in api.containers(all=True)}:
            return [f"{pinned.words} is gone"]
    return pinned.moved(inspected(engine, pinned.id))


def _of_this_host(pid: int) -> bool:
    """A process of a container lives in another pid namespace."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
    except OSError:
        return True

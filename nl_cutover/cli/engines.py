"""How verbs find the engine and the container: the same choice, whatever is done with them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import UnreachableError
from ..wording import counted

if TYPE_CHECKING:
    from ..migration.containers import Container, ContainerEvidence, NoContainer
    from ..plane.engine import Engine, NoEngine
    from ..plane.locate import Wanted
    from ..stores.mounts import ContainerMount
    from .settings import Settings


class Looked(msgspec.Struct, frozen=True):
    """The bind mounts of running containers, what was looked at in words, and what could not be."""

    mounts: tuple[ContainerMount, ...]
    words: str
    warning: str | None = None


def engine_of(settings: Settings) -> Engine | NoEngine:
    from ..plane.engine import choose, connect

    return connect(choose(settings.engine, os.environ, Path.home()))


def wanted_of(settings: Settings, url: str) -> Wanted:
    from ..plane.locate import Wanted

    return Wanted(url, settings.container, settings.project, settings.service)


def container_of(settings: Settings, url: str, *, required: bool = False) -> Container | NoContainer:
    """The container behind `url`, or the one that the settings name. Raises CutoverError."""
    from ..migration import containers
    from .measuring import now_ms

    return containers.container_of(engine_of(settings), wanted_of(settings, url), now_ms, required=required)


def run_of(settings: Settings, run_id: str | None = None) -> dict[str, Any]:
    """The custody's run, which must be `run_id` where one is named. Raises CustodyError or UsageError."""
    from ..custody.reading import LedgerReader
    from ..errors import CustodyError, UsageError

    with LedgerReader(settings.custody) as reader:
        run = reader.run()
    if run is None:
        raise CustodyError(f"custody {settings.custody} holds no run", "begin one with: nl-cutover migrate")
    if run_id not in (None, run["id"]):
        raise UsageError(f"custody {settings.custody} holds run {run['id']}, not {run_id}", "name its --custody")
    return run


def evidence_of_run(settings: Settings) -> ContainerEvidence:
    """Evidence from the container of the custody's run, tied to the ingress that the run went to. Raises CutoverError."""
    from ..plane.locate import tied

    run = run_of(settings)
    found = container_of(settings, run["url"], required=True)
    assert found.evidence is not None
    tied(found.engine, found.pin, run["url"], run["plane_id"], run["data_root"])
    return found.evidence


def container_mounts(settings: Settings) -> Looked:
    """What running containers have mounted: those stores must not be opened here. Never raises."""
    from ..plane.engine import NoEngine
    from ..plane.mounts import sources_of_running
    from ..stores.mounts import ContainerMount

    engine = engine_of(settings)
    if isinstance(engine, NoEngine):
        if engine.kind in ("none", "declined"):
            return Looked((), engine.reason)
        return _could_not_look(engine.reason)
    if not engine.facts.local:
        return Looked((), f"the engine {engine.facts.url} is another machine's: it mounts nothing of this host")
    try:
        mounts = tuple(ContainerMount(name, Path(source)) for name, source in sources_of_running(engine))
    except UnreachableError as error:
        return _could_not_look(error.message)
    return Looked(
        mounts,
        f"{counted(len(mounts), 'mount|s')} of running containers, of {engine.facts.url} ({engine.facts.why})",
    )


def _could_not_look(reason: str) -> Looked:
    return Looked((), f"could not look: {reason}", f"whether a container has a store mounted is not known: {reason}")

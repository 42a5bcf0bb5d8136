"""`nl-cutover plane`: the container side."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from .common import (
    Checkouts,
    CleartextOption,
    ClosedOption,
    ConfigOption,
    ContainerOption,
    CustodyOption,
    EngineOption,
    Format,
    FormatOption,
    PlaneOption,
    ProjectOption,
    Roots,
    ServiceOption,
    TokenOption,
    UrlOption,
    endpoint,
    finish,
    finite,
    identity_sessions,
)

if TYPE_CHECKING:
    from ..migration.containers import Container
    from .settings import Settings

app = typer.Typer(
    name="plane",
    help="Look at Memory Core's container: how it stands, what its graph holds, whether it keeps it.",
    no_args_is_help=True,
)


@app.command()
def status(
    url: UrlOption = None,
    token_env: TokenOption = None,
    plane: PlaneOption = None,
    allow_cleartext: CleartextOption = False,
    container: ContainerOption = None,
    project: ProjectOption = None,
    service: ServiceOption = None,
    engine: EngineOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Engine, container, image, health, mounts, where the graph lives, and what the ingress answers."""
    from ..ingress.preflight import Plane, preflight
    from ..ingress.session import Session
    from ..migration import plane as planes
    from ..output.plane import status_document
    from .engines import engine_of, wanted_of
    from .measuring import now_ms
    from .settings import load

    settings = load(
        config=config,
        url=url,
        token_env=token_env,
        plane=plane,
        engine=engine,
        container=container,
        project=project,
        service=service,
    )

    def ingress() -> Plane:
        with Session(endpoint(settings, cleartext=allow_cleartext)) as session:
            return preflight(
                session, expected_plane=settings.plane_id, expected_root=settings.data_root, telemetry=False
            )

    report = planes.status(engine_of(settings), wanted_of(settings, settings.url), ingress, clock=now_ms)
    finish(report, status_document(report), format)


@app.command()
def evidence(
    since: Annotated[
        datetime | None, typer.Option("--since", help="Only archives stored then or later, UTC.", metavar="TIME")
    ] = None,
    token: Annotated[
        list[str] | None, typer.Option("--token", help="Telemetry rows under this sequence id; repeatable.")
    ] = None,
    url: UrlOption = None,
    container: ContainerOption = None,
    project: ProjectOption = None,
    service: ServiceOption = None,
    engine: EngineOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """What the graph holds, read inside the container: digests and counts, no ops and no args."""
    from ..migration import plane as planes
    from ..output.plane import evidence_document
    from .settings import load

    settings = load(config=config, url=url, engine=engine, container=container, project=project, service=service)
    since_ms = 0.0 if since is None else since.replace(tzinfo=UTC).timestamp() * 1000
    report = planes.evidence(_found(settings), since_ms=since_ms, tokens=token or [])
    finish(report, evidence_document(report), format)


@app.command()
def backup(
    url: UrlOption = None,
    container: ContainerOption = None,
    project: ProjectOption = None,
    service: ServiceOption = None,
    engine: EngineOption = None,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Copy the graph out of the container, consistent, restored to scratch and counted."""
    from ..migration import plane as planes
    from ..output.plane import backup_document
    from .measuring import now_ms
    from .settings import load

    settings = load(
        config=config,
        url=url,
        custody=custody,
        engine=engine,
        container=container,
        project=project,
        service=service,
    )
    report = planes.take_backup(_found(settings), settings.custody, clock=now_ms)
    finish(report, backup_document(report), format)


@app.command()
def prove(
    run: Annotated[str, typer.Argument(help="The run, as its receipt names it.", metavar="RUN")],
    checkouts: Checkouts = None,
    root: Roots = None,
    recreate: Annotated[
        bool, typer.Option("--recreate", help="Remove the container and make it anew from its own configuration.")
    ] = False,
    deadline: Annotated[
        float, typer.Option("--deadline", help="Seconds until it must be healthy.", min=1, callback=finite)
    ] = 120,
    url: UrlOption = None,
    token_env: TokenOption = None,
    plane: PlaneOption = None,
    allow_cleartext: CleartextOption = False,
    container: ContainerOption = None,
    project: ProjectOption = None,
    service: ServiceOption = None,
    engine: EngineOption = None,
    closed: ClosedOption = False,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Restart the container, or remove it and make it anew, then read every archive of the run again."""
    from functools import partial

    from ..ingress.session import Session
    from ..migration import plane as planes
    from ..output.plane import prove_document
    from ..output.progress import progress
    from .engines import run_of
    from .measuring import measured, now_ms
    from .settings import load

    settings = load(
        config=config,
        checkouts=checkouts,
        roots=root,
        url=url,
        token_env=token_env,
        custody=custody,
        plane=plane,
        engine=engine,
        container=container,
        project=project,
        service=service,
    )
    run_of(settings, run)
    target = endpoint(settings, cleartext=allow_cleartext)
    identities = identity_sessions(settings, target) | {"": partial(Session, target)}
    found = _found(settings)
    report = measured(settings, expect=None, closed=closed)
    with progress() as watched:
        result = planes.prove(
            found,
            report,
            custody=settings.custody,
            identities=identities,
            expected_plane=settings.plane_id,
            expected_root=settings.data_root,
            recreate=recreate,
            deadline_s=deadline,
            clock=now_ms,
            progress=watched,
        )
    finish(result, prove_document(result), format)


def _found(settings: Settings) -> Container:
    from ..migration.containers import Container
    from .engines import container_of

    found = container_of(settings, settings.url, required=True)
    assert isinstance(found, Container)
    return found

"""`nl-cutover migrate`."""

from __future__ import annotations

from pathlib import Path
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
    ExpectOption,
    Format,
    FormatOption,
    OwnerOption,
    PlaneOption,
    ProjectOption,
    ProxiesOption,
    Roots,
    ServiceOption,
    TokenOption,
    UrlOption,
    WaitOption,
    endpoint,
    finish,
    identity_sessions,
)
from .plan import ChooseOption, LifeGapOption, ReplaysOption, TelemetryOption, policy_of
from .settle import EvidenceOption, GraphOption, QuietOption, wants_container

if TYPE_CHECKING:
    from ..migration.plan import Plan


def migrate(
    checkouts: Checkouts = None,
    root: Roots = None,
    telemetry: TelemetryOption = None,
    replays: ReplaysOption = None,
    life_gap: LifeGapOption = None,
    owner: OwnerOption = None,
    choose: ChooseOption = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Run exactly this plan, as `plan --out` wrote it.", metavar="FILE")
    ] = None,
    url: UrlOption = None,
    token_env: TokenOption = None,
    plane: PlaneOption = None,
    allow_cleartext: CleartextOption = False,
    environment_proxies: ProxiesOption = None,
    wait: WaitOption = None,
    graph: GraphOption = None,
    evidence: EvidenceOption = None,
    container: ContainerOption = None,
    project: ProjectOption = None,
    service: ServiceOption = None,
    afresh: Annotated[
        bool,
        typer.Option("--afresh", help="Send again what another custody carried: Memory Core was set up anew since."),
    ] = False,
    no_backup: Annotated[bool, typer.Option("--no-backup", help="Take no backup of the graph before.")] = False,
    quiet: QuietOption = 15.0,
    workers: Annotated[int, typer.Option("--workers", help="Calls in flight.", min=1, max=64)] = 8,
    expect_checkouts: ExpectOption = None,
    closed: ClosedOption = False,
    engine: EngineOption = None,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Bring every row into Memory Core, once. Given again, it resumes and sends nothing twice."""
    from functools import partial

    from ..custody.elsewhere import default_registry
    from ..ingress.session import Session
    from ..migration.evidence import GraphFile
    from ..migration.job import migrate as run_migration
    from ..output.progress import progress
    from ..output.views import run_document
    from .engines import container_of
    from .measuring import measured, now_ms
    from .settings import load

    settings = load(
        config=config,
        checkouts=checkouts,
        roots=root,
        url=url,
        token_env=token_env,
        custody=custody,
        owner=owner,
        plane=plane,
        environment_proxies=environment_proxies,
        wait=wait,
        engine=engine,
        container=container,
        project=project,
        service=service,
    )
    made = None if plan is None else _read_plan(plan)
    policy = policy_of(telemetry, replays, life_gap, choose, settings, made)
    target = endpoint(settings, cleartext=allow_cleartext)
    identities = {} if settings.owner is not None else identity_sessions(settings, target)
    beside = container_of(settings, settings.url, required=wants_container(evidence, graph))
    report = measured(settings, expect=expect_checkouts, closed=closed)
    with progress() as watched:
        watched.stage("plan", 0)
        result = run_migration(
            report,
            policy,
            custody=settings.custody,
            new_session=lambda: Session(target),
            expected_plane=settings.plane_id,
            expected_root=settings.data_root,
            acknowledged=None if made is None else made.digest,
            clock=now_ms,
            progress=watched,
            workers=workers,
            identities=identities,
            evidence=GraphFile(graph) if graph is not None else beside.evidence,
            quiet_ms=quiet * 1000,
            registry=default_registry(),
            afresh=afresh,
            container=partial(beside.before, custody=settings.custody, take_backup=not no_backup),
        )
    finish(result, run_document(result), format)


def _read_plan(path: Path) -> Plan:
    """A plan file, its digest checked against its content. Raises UsageError."""
    import msgspec

    from ..errors import UsageError
    from ..migration.plan import Plan, digest_of

    try:
        made = msgspec.json.decode(path.read_bytes(), type=Plan)
    except OSError as error:
        raise UsageError(f"the plan {path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path} is not a plan: {error}", "make one with: nl-cutover plan --out FILE") from None
    if digest_of(made) != made.digest:
        raise UsageError(f"the plan {path} was changed after it was made", "make it anew: nl-cutover plan --out FILE")
    return made

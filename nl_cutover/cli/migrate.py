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
    CustodyOption,
    ExpectOption,
    Format,
    FormatOption,
    OwnerOption,
    PlaneOption,
    Roots,
    TokenOption,
    UrlOption,
    endpoint,
    finish,
    identity_sessions,
)
from .plan import LifeGapOption, ReplaysOption, TelemetryOption, policy_of
from .settle import GraphOption, QuietOption

if TYPE_CHECKING:
    from ..migration.plan import Plan


def migrate(
    checkouts: Checkouts = None,
    root: Roots = None,
    telemetry: TelemetryOption = None,
    replays: ReplaysOption = None,
    life_gap: LifeGapOption = None,
    owner: OwnerOption = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Run exactly this plan, as `plan --out` wrote it.", metavar="FILE")
    ] = None,
    url: UrlOption = None,
    token_env: TokenOption = None,
    plane: PlaneOption = None,
    allow_cleartext: CleartextOption = False,
    graph: GraphOption = None,
    quiet: QuietOption = 15.0,
    workers: Annotated[int, typer.Option("--workers", help="Calls in flight.", min=1, max=64)] = 8,
    expect_checkouts: ExpectOption = None,
    closed: ClosedOption = False,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Bring every row into Memory Core, once. Given again, it resumes and sends nothing twice."""
    from ..ingress.session import Session
    from ..migration.evidence import GraphFile
    from ..migration.job import migrate as run_migration
    from ..output.progress import progress
    from ..output.views import run_document
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
    )
    made = None if plan is None else _read_plan(plan)
    policy = policy_of(telemetry, replays, life_gap, settings, made)
    target = endpoint(settings, cleartext=allow_cleartext)
    identities = {} if settings.owner is not None else identity_sessions(settings, target)
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
            evidence=None if graph is None else GraphFile(graph),
            quiet_ms=quiet * 1000,
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

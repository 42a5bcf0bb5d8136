"""`nl-cutover verify`."""

from __future__ import annotations

from .common import (
    Checkouts,
    CleartextOption,
    ClosedOption,
    ConfigOption,
    CustodyOption,
    EngineOption,
    ExpectOption,
    Format,
    FormatOption,
    PlaneOption,
    ProxiesOption,
    Roots,
    TokenOption,
    UrlOption,
    WaitOption,
    endpoint,
    finish,
    identity_sessions,
)


def verify(
    checkouts: Checkouts = None,
    root: Roots = None,
    url: UrlOption = None,
    token_env: TokenOption = None,
    plane: PlaneOption = None,
    allow_cleartext: CleartextOption = False,
    environment_proxies: ProxiesOption = None,
    wait: WaitOption = None,
    expect_checkouts: ExpectOption = None,
    closed: ClosedOption = False,
    engine: EngineOption = None,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Compare every archive of the stores with what Memory Core gives back, anew. Telemetry cannot be read back."""
    from functools import partial

    from ..ingress.session import Session
    from ..ingress.sessions import Sessions
    from ..migration.checking import verify_run
    from ..output.progress import progress
    from ..output.views import verify_document
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
        plane=plane,
        environment_proxies=environment_proxies,
        wait=wait,
        engine=engine,
    )
    target = endpoint(settings, cleartext=allow_cleartext)
    report = measured(settings, expect=expect_checkouts, closed=closed)
    factories = identity_sessions(settings, target)
    factories[""] = partial(Session, target)
    with progress() as watched, Sessions(factories) as sessions:
        result = verify_run(
            report,
            custody=settings.custody,
            sessions=sessions,
            expected_plane=settings.plane_id,
            expected_root=settings.data_root,
            clock=now_ms,
            progress=watched,
            container=container_of(settings, settings.url).facts,
        )
    finish(result, verify_document(result), format)

"""`nl-cutover recorder`: for hosts that record over stdio."""

from __future__ import annotations

import os
import signal

import typer

from ..verdicts import ExitCode
from .common import CleartextOption, ConfigOption, ReceiptsOption, TokenOption, UrlOption

app = typer.Typer(help="What a host records with after the cut.", no_args_is_help=True)


@app.command("bridge")
def bridge(
    url: UrlOption = None,
    token_env: TokenOption = None,
    allow_cleartext: CleartextOption = False,
    receipt: ReceiptsOption = None,
    config: ConfigOption = None,
) -> None:
    """Serve the four operations as an MCP server on stdin and stdout, until stdin ends.

    Telemetry passes while NEO_NL_ACTION_LOGGING is on, and as its eight admitted fields alone. With --receipt, ids of
    before the cut are understood.
    """
    from ..custody.receipts import aliases
    from ..errors import UsageError
    from ..ingress.endpoint import token_from_environment
    from ..recorder import Archive, connector, logging_enabled
    from ..recorder.connection import Connection
    from .resolve import bodies
    from .settings import load

    try:
        from ..recorder.bridge import Bridge, serve
    except ImportError as absent:
        raise UsageError(f"recorder bridge needs {absent.name}", "pip install 'nl-cutover[memory-core]'") from None
    settings = load(config=config, url=url, token_env=token_env)
    token_from_environment(os.environ, settings.token_env)  # the host hears at once that its slot is empty
    connect = connector(os.environ, url=settings.url, slot=settings.token_env, cleartext=allow_cleartext)
    connection = Connection(connect)
    archive = Archive(connection, aliases=aliases(bodies(receipt, None, None)) if receipt else {})
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a thread reads stdin, and no exception ends it
        signal.signal(number, lambda *_: os._exit(ExitCode.INTERRUPTED))
    serve(Bridge(archive, connection, enabled=logging_enabled(os.environ)))

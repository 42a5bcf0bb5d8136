"""The reference Memory Core as a process: the MCP SDK's server behind the gate, on uvicorn."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import mcp_types as types
import msgspec
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from .. import __version__
from ..contract.surface import read_surface
from ..contract.wire import PLANE_ID, RETENTION_MS
from ..errors import UsageError
from .auth import Tokens
from .fidelity import STATE, Exchange, Fidelity
from .gate import PATH, Gate
from .graph import BUSY_TIMEOUT_MS, open_graph
from .neural_link import NeuralLink
from .operations import Operations, Plane
from .responses import KEEP_ALIVE_S
from .retention import PERIOD_MS, Retention, keep
from .shapes import ShapeName, load_shape
from .surface import Desk, SurfaceName, load_document

_SHUTDOWN_S = 3  # seconds that open streams are given after SIGTERM


def system_clock() -> int:
    """Ms since epoch."""
    return time.time_ns() // 1_000_000


def random_id() -> str:
    return str(uuid4())


class Settings(msgspec.Struct, frozen=True):
    """What one server serves. `port` 0: any free port; `data_root` as the healthcheck tells it.

    `db` None: a Neural Link surface, which has no graph. `projection`: the forced mode; None lets the client choose.
    """

    db: Path | None
    tokens: Tokens
    data_root: str
    host: str = "127.0.0.1"
    port: int = 3102
    plane_id: str = PLANE_ID
    allowed_hosts: tuple[str, ...] = ()
    busy_timeout_ms: int = BUSY_TIMEOUT_MS
    shape: ShapeName = ShapeName.FINAL
    lookback_ms: int = RETENTION_MS
    retention_period_ms: int = PERIOD_MS
    projection: str | None = None
    clock: Callable[[], int] = system_clock
    new_id: Callable[[], str] = random_id


def default_data_root(db: Path) -> Path:
    """The folder that holds the plane: above `sqlite/` in the container's layout, else the database's own."""
    folder = db.resolve().parent
    return folder.parent if folder.name == "sqlite" else folder


def serve(settings: Settings, on_listening: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT. `on_listening` gets the URL once connections are accepted.

    Raises UsageError when the address cannot be bound, RefusedError for a database that is not this graph.
    """
    with _desk(settings) as (desk, retention), _bind(settings.host, settings.port) as listener:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = f"http://{host}:{listener.getsockname()[1]}{PATH}"
        asyncio.run(_serve(desk, retention, settings, listener, lambda: on_listening(url)))


@contextmanager
def _desk(settings: Settings) -> Iterator[tuple[Desk, Retention | None]]:
    if settings.db is None:
        surface = read_surface(load_document(SurfaceName.NEURAL_LINK.document))
        yield Desk(surface, NeuralLink(settings.clock()), settings.projection), None
        return
    shape = load_shape(settings.shape)
    surface = read_surface(shape.surface(load_document()))
    graph = open_graph(settings.db, busy_timeout_ms=settings.busy_timeout_ms)
    try:
        retention = Retention(
            graph, clock=settings.clock, lookback_ms=settings.lookback_ms, period_ms=settings.retention_period_ms
        )
        operations = Operations(
            graph,
            dict(surface.tools),
            Plane(settings.plane_id, settings.data_root),
            clock=settings.clock,
            new_id=settings.new_id,
            retention=retention,
            shape=shape,
        )
        yield Desk(surface, operations, settings.projection), retention
    finally:
        graph.close()


def _bind(host: str, port: int) -> socket.socket:
    # asyncio turns Nagle's algorithm off only where it sees IPPROTO_TCP, which socket.create_server leaves unsaid;
    # without it every answer waits 40 ms for the client's delayed ACK.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as failure:
        listener.close()
        raise UsageError(f"cannot listen on {host}:{port}: {failure.strerror}", "choose another --port") from None
    return listener


async def _serve(
    desk: Desk,
    retention: Retention | None,
    settings: Settings,
    listener: socket.socket,
    on_listening: Callable[[], None],
) -> None:
    # One thread: calls run one at a time in the order of arrival, and a locked database does not stall the rest.
    with ThreadPoolExecutor(1) as worker:
        sdk = _sdk_server(desk, worker)
        manager = StreamableHTTPSessionManager(sdk, json_response=True, session_idle_timeout=None, max_sessions=None)
        gate = Gate(manager.handle_request, Fidelity(manager.handle_request), settings.tokens, settings.allowed_hosts)
        config = uvicorn.Config(
            gate,
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
        async with manager.run():
            pruning = None if retention is None else asyncio.create_task(keep(retention, worker))
            await _Listener(config, on_listening).serve(sockets=[listener])
            if pruning is not None:
                pruning.cancel()


class _Listener(uvicorn.Server):
    """uvicorn that tells when it accepts, and that ends a signalled process with exit code 0."""

    def __init__(self, config: uvicorn.Config, on_listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._on_listening()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        kept = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)


class _McpServer(Server[Any]):
    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        changing = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(changing, experimental_capabilities, extensions)


def _sdk_server(desk: Desk, worker: Executor) -> Server[Any]:
    async def list_tools(
        context: ServerRequestContext[Any, Any], _: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        exchange = _exchange(context)
        exchange.result = desk.listing(exchange.params)
        return types.ListToolsResult(tools=[])

    async def call_tool(
        context: ServerRequestContext[Any, Any], _: types.CallToolRequestParams
    ) -> types.CallToolResult:
        exchange = _exchange(context)

        def call() -> str:
            return desk.call(exchange.params, exchange.tool, exchange.arguments, exchange.caller).result()

        exchange.result = await asyncio.get_running_loop().run_in_executor(worker, call)
        return types.CallToolResult(content=[])

    return _McpServer("neo-memory-core", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


def _exchange(context: ServerRequestContext[Any, Any]) -> Exchange:
    exchange = context.request.scope[STATE] if context.request is not None else None
    assert isinstance(exchange, Exchange)
    return exchange

"""A peer as its own process, and what went over the wire to it."""

import select
import subprocess
import sys
from collections import Counter
from pathlib import Path

import httpx

from nl_cutover.ingress.session import Session
from tests.ingress.fake import endpoint
from tests.node import node, node_modules

HERE = Path(__file__).parent
START_S = 30
PACKAGES = ("@modelcontextprotocol/sdk@1.32.2", "express@5.2.1", "zod@4.1.13")


class Wire(httpx.HTTPTransport):
    """A real transport that keeps (method, session id sent, status) of each exchange."""

    def __init__(self) -> None:
        super().__init__(verify=False)  # cleartext to loopback: the certificates would only cost time
        self.exchanges: list[tuple[str, str | None, int]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        self.exchanges.append((request.method, request.headers.get("mcp-session-id"), response.status_code))
        return response


class Peer:
    """A server process that prints its URL; `restart` brings it back on the same port, with everything forgotten."""

    def __init__(self, kind: str, command: list[str], mode: list[str], folder: Path, log: Path) -> None:
        self.kind = kind
        self._command, self._mode, self._folder, self._log = command, mode, folder, log
        self.stateless = "stateless" in mode
        self.url = self._start("0")
        self._observer = Session(endpoint(self.url), transport=Wire())

    def executed(self) -> Counter[str]:
        """The calls and actions that it executed since it was started, by its own account."""
        return Counter(self._observer.call("healthcheck", b"{}").result["structuredContent"]["executed"])

    def restart(self) -> None:
        self.stop()
        self._start(self.url.rsplit(":", 1)[1].split("/")[0])

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def close(self) -> None:
        self._observer.close()
        self.stop()

    def _start(self, port: str) -> str:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, port, *self._mode], cwd=self._folder, stdout=subprocess.PIPE, stderr=log, text=True
            )
        ready, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline() if ready else ""
        if not line.startswith("http://"):
            self.stop()
            raise AssertionError(f"the peer did not start: {self._log.read_text()[-2000:]}")
        return line.strip()


def python_command() -> tuple[list[str], Path]:
    return [sys.executable, "-m", "tests.exactly_once.peers.python_server"], HERE.parent.parent.parent


def node_command() -> tuple[list[str], Path]:
    return [node(), str(HERE / "typescript_server.mjs")], node_modules(*PACKAGES)

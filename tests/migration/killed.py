"""A migration in a process of its own that kills itself at a named point.

usage: killed.py FOLDER URL WORKERS POINT NTH
"""

import os
import signal
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import httpx

from nl_cutover.ingress.endpoint import Endpoint, Token
from nl_cutover.ingress.session import Session
from nl_cutover.migration.job import migrate
from nl_cutover.migration.policy import Policy, Telemetry
from nl_cutover.migration.progress import Silent
from nl_cutover.stores.checkouts import discover
from nl_cutover.stores.measurement import measure

folder, url, workers, point, nth = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
lock = threading.Lock()
seen = 0


def reached(name: str) -> None:
    global seen
    if name == point:
        with lock:
            seen += 1
            if seen == nth:
                os.kill(os.getpid(), signal.SIGKILL)


class Watched(httpx.HTTPTransport):
    """Tells when the last byte of a writing call has left, before its answer is read."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if b"save_nl_transaction" in request.read()[:200]:
            request.extensions["trace"] = lambda event, _: (
                event == "http11.send_request_body.complete" and reached("after send")
            )
        return super().handle_request(request)


endpoint = Endpoint(url, Token("t"))
report = measure(discover([folder / "host"], environ={}, home=folder), clock=lambda: datetime.now(UTC), environ={})
migrate(
    report,
    Policy(Telemetry.parse("admit"), owner="all"),
    custody=folder / "custody",
    new_session=lambda: Session(endpoint, transport=Watched()),
    expected_plane="any",
    expected_root=None,
    acknowledged=None,
    clock=lambda: time.time_ns() // 1_000_000,
    progress=Silent(),
    workers=workers,
    barrier=reached,
)

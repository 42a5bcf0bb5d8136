"""What telemetry adds to a tool call, with Memory Core up, slow and down, as a ratio to the bare call in the same run.

usage: python tests/bench/bench_recorder.py [CALLS]   (ends with 1 when a limit is passed)
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from nl_cutover.recorder import Telemetry, connector
from nl_cutover.testing import embedded_memory_core

MEDIAN_US, P99_US = 10, 1_000
SLOW = """
import socketserver, sys, time
class Slow(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(65536)
        time.sleep(60)
server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Slow)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
"""
TREE = {"id": "neo-viewport-1", "items": [{"id": f"neo-button-{n}", "text": "ü" * 8, "width": n} for n in range(120)]}


def tool_call() -> str:
    """A tool call of the cheapest kind: a component tree, printed. A real one waits for a browser besides."""
    return json.dumps(TREE)


@contextmanager
def up():
    with tempfile.TemporaryDirectory() as name, embedded_memory_core(Path(name), tokens="t") as core:
        yield core.url


@contextmanager
def slow():
    with subprocess.Popen([sys.executable, "-c", SLOW], stdout=subprocess.PIPE, text=True) as server:
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}/mc/mcp"
        server.kill()


@contextmanager
def down():
    with socket.socket() as bound:  # bound and not listening: every connect is refused
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/mc/mcp"


def microseconds(calls: int, telemetry: Telemetry | None) -> tuple[list[float], list[float]]:
    """Per call: how long all of it took, and how long `record` did."""
    whole, added = [], []
    for number in range(calls):
        began = time.perf_counter_ns()
        tool_call()
        called = time.perf_counter_ns()
        if telemetry is not None:
            telemetry.record(
                {
                    "agent_id": "neo-opus-vega",
                    "session_id": "session-1",
                    "sequence_id": f"neo-opus-vega_{number // 7}",
                    "timestamp": 1_750_000_000_000 + number,
                    "tool": "set_instance_properties",
                    "args": {"id": "neo-button-7", "properties": {"className": "Neo.button.Base", "text": "x"}},
                    "result": "{}",
                    "success": 1,
                    "duration_ms": 3,
                    "app_name": "Portal",
                }
            )
        ended = time.perf_counter_ns()
        whole.append((ended - began) / 1_000)
        added.append((ended - called) / 1_000)
    return sorted(whole), sorted(added)


def main() -> int:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    microseconds(1_000, None)
    bare = microseconds(calls, None)[0]
    base = bare[calls // 2]
    print(
        f"{'':10} {'call, median':>14} {'ratio':>6} {'record, median':>15} {'p99':>9} {'max':>10}  (us, {calls:,} calls)"
    )
    print(f"{'bare':10} {base:14.1f} {1:6.2f}")
    passed = False
    for name, place in (("MC up", up), ("MC slow", slow), ("MC down", down)):
        with place() as url:
            telemetry = Telemetry(connector(os.environ | {"SLOT": "t"}, url=url, slot="SLOT"), enabled=True)
            whole, added = microseconds(calls, telemetry)
            middle, p99 = added[calls // 2], added[calls * 99 // 100]
            passed = passed or middle > MEDIAN_US or p99 > P99_US
            print(
                f"{name:10} {whole[calls // 2]:14.1f} {whole[calls // 2] / base:6.2f} "
                f"{middle:15.1f} {p99:9.1f} {added[-1]:10.1f}  {telemetry.stats()}"
            )
            telemetry.close(0.1)
    print(f"limits: record's median {MEDIAN_US} us, its p99 {P99_US} us")
    return int(passed)


if __name__ == "__main__":
    sys.exit(main())

"""Ctrl-C during a migration, once and twice, while calls are in hand."""

import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.conftest import TOKENS, Operator
from tests.exactly_once.fault_proxy import FAULTS, NOTHING, Fault, FaultProxy, Kind
from tests.exactly_once.graph import Graph

PATIENCE_S = 30.0


@pytest.fixture
def core(serve, tmp_path):
    """One of its own: equal archives of another test would be evidence too."""
    with serve(tmp_path / "core", tokens=TOKENS) as running:
        yield running


class Held:
    """Holds the answer of every save from the `first` on, until the client hangs up; the server has committed them."""

    def __init__(self, first: int, fault: str) -> None:
        self._first, self._fault = first, fault
        self._saves = 0
        self.reached = threading.Event()

    def __call__(self, tool: str, subject: str) -> str:
        self._saves += tool == "save_nl_transaction"
        if tool != "save_nl_transaction" or self._saves < self._first:
            return "untouched"
        self.reached.set()
        return self._fault


def how(operator: Operator) -> tuple[str, ...]:
    return ("--telemetry", operator.telemetry(60), "--owner", "neo-operator")


def start(operator: Operator, path: Path, url: str) -> subprocess.Popen:
    words = ["migrate", path, "--url", url, "--custody", operator.custody, "--format", "json", "--workers", "1"]
    return subprocess.Popen(
        [sys.executable, "-m", "nl_cutover", *map(str, words), *how(operator)],
        env=operator.environ,
        cwd=operator.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def said(process: subprocess.Popen, words: bytes) -> None:
    """Wait until stderr says it."""
    heard = b""
    while words not in heard:
        line = process.stderr.readline()
        assert line, heard
        heard += line


def states(operator: Operator) -> dict[str, int]:
    ledger = sqlite3.connect(operator.custody / "ledger.sqlite")
    assert ledger.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    found = dict(ledger.execute("SELECT state, count(*) FROM archives GROUP BY state"))
    ledger.close()
    return found


def test_the_second_ctrl_c_stops_at_once_and_leaves_the_rows_in_doubt(operator, checkout, core):
    path, graph = checkout("closed"), Graph(core.db)
    held = Held(4, "delayed")
    with FaultProxy(core.url, held) as proxy:
        process = start(operator, path, proxy.url)
        try:
            assert held.reached.wait(PATIENCE_S)
            process.send_signal(signal.SIGINT)
            said(process, b"again: stop at once")
            assert process.poll() is None, "the call in hand is still waited for"
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
        assert time.monotonic() - began < 10
    report = json.loads(out)
    assert process.returncode == report["exit_code"] == 130
    assert "interrupted twice; 1 worker was left in its call" in report["stopped"]
    assert (report["archives"]["confirmed"], report["archives"]["unknown"]) == (3, 1)
    assert states(operator) == {"confirmed": 3, "intended": 1, "pending": 8}
    receipt = json.loads(Path(report["receipt"]).read_text())
    assert receipt["outcome"]["archives"]["unknown"] == 1
    resumed = operator("migrate", path, *how(operator))
    assert resumed.code == 7
    assert states(operator) == {"confirmed": 11, "unknown": 1}, "what is in doubt is not sent again"
    assert operator("migrate", path, *how(operator), "--graph", core.db, "--quiet", "0").code == 0
    assert len(graph.archives()) == 12


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_one_lets_the_call_in_hand_end(operator, checkout, core, number):
    path, graph = checkout("closed"), Graph(core.db)
    held, go = Held(4, "untouched"), threading.Event()

    def judge(tool: str, subject: str) -> str:
        fault = held(tool, subject)
        if held.reached.is_set():
            go.wait(PATIENCE_S)
        return fault

    with FaultProxy(core.url, judge) as proxy:
        process = start(operator, path, proxy.url)
        try:
            assert held.reached.wait(PATIENCE_S)
            process.send_signal(number)
            said(process, b"again: stop at once")
            go.set()
            out, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            go.set()
            process.kill()
    report = json.loads(out)
    assert process.returncode == report["exit_code"] == 130
    assert "finished and journalled" in report["stopped"]
    assert report["archives"]["unknown"] == 0
    assert states(operator) == {"confirmed": 4, "pending": 8}
    assert len(graph.archives()) == 4


def test_the_first_one_ends_a_wait_for_a_busy_server(operator, checkout, core, monkeypatch):
    """The pause is not a call in hand: nothing of it has left, and nothing is lost by not asking again."""
    path, graph = checkout("closed"), Graph(core.db)
    busy = Fault(Kind.TURNED_AWAY, lambda _: NOTHING.http(b"", 429, retry_after="25"))
    monkeypatch.setitem(FAULTS, "busy", busy)
    held = Held(4, "busy")
    with FaultProxy(core.url, held) as proxy:
        process = start(operator, path, proxy.url)
        try:
            assert held.reached.wait(PATIENCE_S)
            time.sleep(0.3)  # the answer is on its way; that the pause has begun cannot be seen from here
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
        assert time.monotonic() - began < 10
    report = json.loads(out)
    assert process.returncode == report["exit_code"] == 130
    assert "finished and journalled" in report["stopped"]
    assert states(operator) == {"confirmed": 3, "pending": 9}
    assert 0 < report["waited_s"] < 10
    assert operator("migrate", path, *how(operator)).code == 0
    assert len(graph.archives()) == 12

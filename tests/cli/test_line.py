"""How the ingress is reached: through which proxy, and with how much patience. The output says both."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

MIGRATE = ("--telemetry", "admit", "--owner", "neo-operator")


class Between(BaseHTTPRequestHandler):
    """A forward proxy that also says `busy` to as many reads as it is told, and counts what passes."""

    passed: list[str]
    busy: list[int]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.passed.append(self.path)
        if b"get_nl_transaction" in body and self.busy and self.busy.pop():
            self.send_response(503)
            self.send_header("retry-after", "0")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        url = self.path if "://" in self.path else f"http://{self.headers['host']}{self.path}"
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("connection", "content-length")}
        with urlopen(Request(url, body, headers)) as answer:
            content = answer.read()
            self.send_response(answer.status)
            for name in ("content-type", "mcp-session-id", "date"):
                if value := answer.headers.get(name):
                    self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_DELETE(self) -> None:
        self.send_response(405)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def between() -> Iterator[tuple[str, type[Between]]]:
    handler = type("Handler", (Between,), {"passed": [], "busy": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()
        thread.join()


def test_a_proxy_of_the_environment_is_ignored_and_that_is_said(operator, checkout):
    done = operator("migrate", checkout("closed"), *MIGRATE, HTTP_PROXY="http://127.0.0.1:9")
    assert done.code == 0, done.err
    assert "HTTP_PROXY is set and ignored; --environment-proxies would use it" in done.err
    assert done.json["proxy"] is None


@pytest.mark.parametrize("by", ["flag", "settings"])
def test_a_proxy_is_used_where_the_operator_says_so(operator, checkout, tmp_path, between, by):
    proxy, handler = between
    how = ["--environment-proxies"] if by == "flag" else []
    if by == "settings":
        (tmp_path / "nl-cutover.toml").write_text("environment_proxies = true\n")
    environ = {"HTTP_PROXY": proxy.replace("://", "://u:hunter2@")}
    path = checkout("closed")
    done = operator("migrate", path, *MIGRATE, *how, **environ)
    assert done.code == 0, done.err
    assert handler.passed
    assert done.json["proxy"] == proxy
    assert json.loads(Path(done.json["receipt"]).read_text())["plane"]["proxy"] == proxy
    assert proxy in operator("verify", path, *how, "--format", "markdown", json=False, **environ).out
    assert not [f for f in tmp_path.rglob("*") if f.is_file() and b"hunter2" in f.read_bytes()]


def test_the_report_says_how_long_it_waited_and_without_a_budget_it_does_not_wait(operator, checkout, between):
    proxy, handler = between
    how = ("--environment-proxies",)
    handler.busy[:] = [1, 1, 1]
    path = checkout("closed")
    done = operator("migrate", path, *MIGRATE, *how, HTTP_PROXY=proxy)
    assert done.code == 0, done.err
    assert done.json["waited_s"] == pytest.approx(0.6)
    handler.busy[:] = [1]
    verified = operator("verify", path, *how, "--wait", "0", HTTP_PROXY=proxy)
    assert verified.code == 7
    assert verified.json["waited_s"] == 0
    assert "503" in verified.json["differences"][0]["what"]

"""Headless Chromium over its debugging pipe: what a page looks like to a person, asked without a driver."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Every text with its colour, and the first background that is painted behind it; SVG text stands on its box.
CONTRASTS = """
(() => {
  const light = c => { const [r, g, b] = c.map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
                       return .2126 * r + .7152 * g + .0722 * b; };
  const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const behind = node => {
    for (let n = node; n; n = n.parentElement) {
      const box = n.tagName === 'g' && n.querySelector('rect');
      const colour = rgb(box ? getComputedStyle(box).fill : getComputedStyle(n).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    const e = n.parentElement;
    if (!n.textContent.trim() || e.tagName === 'title') continue;
    const style = getComputedStyle(e), front = rgb(e.closest('svg') ? style.fill : style.color);
    const [a, b] = [light(front), light(behind(e))].sort((x, y) => y - x);
    found.push([n.textContent.trim().slice(0, 40), Math.round((a + .05) / (b + .05) * 100) / 100]);
  }
  return found;
})()
"""
# What sticks out of the window, and SVG text that sticks out of its box.
OVERFLOWS = """
(() => {
  const out = [], wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > wide) out.push('page ' + document.documentElement.scrollWidth + ' > ' + wide);
  for (const e of document.body.querySelectorAll('*')) {
    const r = e.getBoundingClientRect();
    if (r.width && (r.right > wide + 1 || r.left < -1)) out.push(e.tagName + ' ' + e.textContent.slice(0, 30));
  }
  for (const g of document.querySelectorAll('svg g')) {
    const box = g.querySelector('rect').getBoundingClientRect();
    for (const t of g.querySelectorAll('text')) {
      const r = t.getBoundingClientRect();
      if (r.right > box.right || r.left < box.left || r.top < box.top || r.bottom > box.bottom) out.push('svg ' + t.textContent);
    }
  }
  return out;
})()
"""


class Page:
    """One tab. `requests` are the URLs that it asked for."""

    def __init__(self, send, session: str, requests: list[str]) -> None:
        self._send, self._session, self.requests = send, session, requests

    def ask(self, method: str, **parameters):
        return self._send(method, parameters, self._session)

    def window(self, width: int, height: int = 900) -> None:
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, scheme: str = "light", kind: str = "screen") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=kind, features=features)

    def evaluate(self, script: str):
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> Path:
        answer = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path


class Browser:
    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._buffer, self._last = to, back, b"", 0
        self._requests: dict[str, list[str]] = {}

    def open(self, path: Path) -> Page:
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self.send, session, self._requests.setdefault(session, []))
        for domain in ("Page", "Network", "Runtime"):
            page.ask(f"{domain}.enable")
        page.ask("Page.navigate", url=path.as_uri())
        page.evaluate(
            "new Promise(r => document.readyState === 'complete' ? r() : addEventListener('load', () => r()))"
        )
        return page

    def send(self, method: str, parameters: dict, session: str | None = None) -> dict:
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        os.write(self._to, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("method") == "Network.requestWillBeSent":
                self._requests.setdefault(answer["sessionId"], []).append(answer["params"]["request"]["url"])
            if answer.get("id") == self._last:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _receive(self) -> dict:
        while b"\0" not in self._buffer:
            piece = os.read(self._back, 1 << 16)
            assert piece, "the browser went away"
            self._buffer += piece
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)


def _high(descriptor: int) -> int:
    """The same pipe under a number that is neither 3 nor 4."""
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return copy


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, or a skip with the reason (a failure in CI)."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("Chromium is not installed")
    theirs, to = map(_high, os.pipe())
    back, their_end = map(_high, os.pipe())
    flags = "--headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --remote-debugging-pipe"
    line = f'exec "$0" {flags} --user-data-dir="$1" about:blank 3<&{theirs} 4>&{their_end}'
    child = subprocess.Popen(
        ["bash", "-c", line, found, str(profile)],
        pass_fds=(theirs, their_end),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    os.close(their_end)
    try:
        yield Browser(to, back)
    finally:
        child.terminate()
        child.wait(20)
        os.close(to)
        os.close(back)

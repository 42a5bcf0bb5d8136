"""Fixtures for every room: copies of the recorded stores as checkouts, an embedded Memory Core, the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings

from nl_cutover.testing import EmbeddedMemoryCore, embedded_memory_core

STORES = Path(__file__).parent / "stores"
TOKENS = {"neo-operator": "token-of-the-operator", "neo-other": "token-of-another"}
SLOT = "NEO_MCP_REMOTE_TOKEN"
OF_FILES = (["receipt", "verify"], ["receipt", "sign"], ["receipt", "merge"])  # they know no custody directory

FIRST = "902ddd4d"  # the shape that declares no sequenceId: what telemetry is sent there loses its token
STRIPPED = "admit_nl_actions.actions[].sequenceId"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # what a shell starts in the background, and all its children
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("default", deadline=None, derandomize=True)
settings.load_profile("default")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """In CI a test that needs a thing outside Python may not be skipped: a skip there would be a hole that nobody sees."""
    outcome = yield
    report = outcome.get_result()
    needed = {"node", "docker", "chromium", "chroma"} & set(item.keywords)
    if report.skipped and os.environ.get("NL_CUTOVER_CI") and needed:
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"


def pytest_addoption(parser):
    parser.addoption("--shape", default="final", help="the shape in which the embedded Memory Cores answer")


class RefusedByName(Exception):
    """A migration would have lost the tokens of telemetry, and was refused for that. With `--shape 902ddd4d` this is
    how a test that admits telemetry ends well; that anything is admitted there is a failure."""


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    outcome = yield
    if outcome.excinfo and issubclass(outcome.excinfo[0], RefusedByName):
        assert pyfuncitem.config.getoption("--shape") == FIRST
        outcome.force_result(True)


class Done(msgspec.Struct):
    """What a command left: its exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


class Operator:
    """Runs `nl-cutover` as an operator does: its own process, a custody folder, a token in its slot."""

    def __init__(self, folder: Path, url: str | None, token: str | None, shape: str = "final") -> None:
        self.folder, self.url, self.shape = folder, url, shape
        self.custody = folder / "custody"
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith(("NEO_", "NL_CUTOVER"))}
        self.environ |= {"HOME": str(folder / "home"), "COLUMNS": "200", "NL_CUTOVER_ENGINE": "none"}
        if token is not None:
            self.environ[SLOT] = token

    def __call__(self, *arguments: object, json: bool = True, **environ: str) -> Done:
        words = [str(a) for a in arguments]
        verb, rest = words[0], words[1:]
        extra = (
            ["--custody", str(self.custody)]
            if verb not in ("mc", "demo", "graph", "check", "copy")
            and words[:2] not in OF_FILES
            and not verb.startswith("-")
            and "--help" not in rest
            else []
        )
        if self.url is not None and verb in ("migrate", "verify", "cut", "seal"):
            extra += ["--url", self.url]
        extra += ["--format", "json"] if json else []
        at = rest.index("--") if "--" in rest else len(rest)
        done = subprocess.run(
            [sys.executable, "-m", "nl_cutover", verb, *rest[:at], *extra, *rest[at:]],
            capture_output=True,
            env=self.environ | environ,
            cwd=self.folder,
            timeout=100,
            check=False,
        )
        ended = Done(done.returncode, done.stdout.decode(), done.stderr.decode("utf-8", "backslashreplace"))
        if self.shape == FIRST and verb == "migrate":
            if STRIPPED in ended.err:
                assert ended.code == 3
                raise RefusedByName(ended.err)
            assert '"admitted":' not in ended.out or ended.json["telemetry"]["admitted"] == 0
        return ended

    def telemetry(self, rows: int) -> str:
        """What to do with that many actions on this server: admit them, or discard them where it would lose tokens."""
        return f"discard={rows}" if self.shape == FIRST else "admit"


@pytest.fixture(scope="session")
def serve(request) -> Callable[..., AbstractContextManager[EmbeddedMemoryCore]]:
    """`embedded_memory_core` in the shape that `--shape` names."""
    return partial(embedded_memory_core, shape=request.config.getoption("--shape"))


@pytest.fixture(scope="session")
def core(serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMemoryCore]:
    """One Memory Core for all tests that only add to it."""
    with serve(tmp_path_factory.mktemp("core"), tokens=TOKENS) as running:
        yield running


@pytest.fixture
def operator(tmp_path, core) -> Operator:
    return Operator(tmp_path, core.url, core.token, core.shape)


@pytest.fixture
def checkout(tmp_path) -> Callable[..., Path]:
    """`checkout("live")` copies that recorded store into a checkout of its own; `checkout("x", None)` has no store."""

    def make(name: str, store: str | None = "", sidecars: bool = True) -> Path:
        path = tmp_path / name
        folder = path / ".neo-ai-data" / "sqlite"
        folder.mkdir(parents=True)
        if store is not None:
            for file in sorted((STORES / (store or name)).glob("memory-core-graph.sqlite*")):
                if sidecars or file.suffix == ".sqlite":
                    shutil.copy(file, folder)
        return path

    return make


@pytest.fixture
def link(tmp_path) -> Callable[[str, Path], Path]:
    """`link("clio", canonical)` makes a checkout whose data folders are links into another's."""

    def make(name: str, canonical: Path) -> Path:
        data = tmp_path / name / ".neo-ai-data"
        data.mkdir(parents=True)
        (data / "sqlite").symlink_to(canonical / ".neo-ai-data" / "sqlite", target_is_directory=True)
        return tmp_path / name

    return make


def state_of(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Names, inodes, sizes, mtimes and bytes of everything in a folder."""
    return {
        str(p.relative_to(folder)): (p.stat().st_ino, p.stat().st_size, p.stat().st_mtime_ns, p.read_bytes())
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }

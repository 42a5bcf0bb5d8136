"""For tests of this package and of those that build on it: an embedded Memory Core, planted stores, a fixed clock.

with embedded_memory_core(tmp_path, tokens="secret") as core:
    ...  # core.url, core.token
"""

from __future__ import annotations

import json
import os
import random
import select
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, overload
from uuid import UUID

from .contract.rows import ACTIONS, ARCHIVES, COLUMNS, DDL
from .contract.wire import PLANE_ID
from .errors import UnreachableError

_START_S = 30.0
_STOP_S = 10.0
_EPOCH_MS = 1_751_500_000_000  # 2025-07-02
_CENTURY_MS = 100 * 366 * 24 * 60 * 60 * 1000

_INDICES = (
    "CREATE INDEX idx_nl_action_log_sequence ON nl_action_log(sequence_id)",
    "CREATE INDEX idx_nl_action_log_session ON nl_action_log(session_id)",
    "CREATE INDEX idx_nl_action_log_timestamp ON nl_action_log(timestamp)",
    "CREATE INDEX idx_nl_transaction_archive_source_tx ON nl_transaction_archive(source_tx_id)",
    "CREATE INDEX idx_nl_transaction_archive_archived ON nl_transaction_archive(archived_at)",
)
_WRITERS = ("neo-opus-vega", "neo-gpt-ada", "claude-😀", "агент-7", "neo-gemini-clio")
_WORDS = ("grid", "panel", "列", "ü-button", "𝒳", "שם", "👩‍👩‍👧", "tab")
_APPS = ("Portal", "Covid", "アプリ", None)


class FixedClock:
    """A clock that stands still. Calling it gives ms since epoch."""

    def __init__(self, at_ms: int = _EPOCH_MS) -> None:
        self.at_ms = at_ms

    def __call__(self) -> int:
        return self.at_ms

    def advance(self, ms: int) -> None:
        self.at_ms += ms


class EmbeddedMemoryCore:
    """The reference Memory Core as a process of its own, on loopback.

    `db` is its graph (`<directory>/sqlite/...`, so the healthcheck's data root is the directory); `tokens` maps names
    to tokens in identity mode and is empty in local-bearer mode; `token` is the only or first token; `shape` says as
    which server it answers; `lookback_ms` how old telemetry may get there.
    """

    def __init__(
        self,
        directory: Path,
        tokens: str | Mapping[str, str],
        plane_id: str,
        port: int,
        busy_timeout_ms: int,
        shape: str = "final",
        lookback_ms: int = _CENTURY_MS,
        arguments: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.db = directory / "sqlite" / "memory-core-graph.sqlite"
        self.tokens = {} if isinstance(tokens, str) else dict(tokens)
        self.token = tokens if isinstance(tokens, str) else next(iter(tokens.values()))
        self.plane_id = plane_id
        self.port = port
        self.shape = shape
        self.lookback_ms = lookback_ms
        self._busy_timeout_ms = busy_timeout_ms
        self._arguments, self._environ = tuple(arguments), dict(environ or {})
        lines = [f"{name}={token}" for name, token in self.tokens.items()] or [self.token]
        directory.mkdir(parents=True, exist_ok=True)
        self._token_file = directory / "tokens"
        self._token_file.touch(mode=0o600)
        self._token_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.url, self.process = self._start()
        self.port = int(self.url.rsplit(":", 1)[1].split("/")[0])

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.process.kill()
        self._reap()

    def stop(self) -> None:
        """SIGTERM, and wait for the end; SIGKILL after 10 seconds."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reap()

    def restart(self) -> None:
        """Start again, on the same port and graph. Sessions of the former process are gone."""
        if self.process.poll() is None:
            self.stop()
        self.url, self.process = self._start()

    def _start(self) -> tuple[str, subprocess.Popen[str]]:
        command = [sys.executable, "-m", "nl_cutover", "mc", "serve", "--port", str(self.port)]
        command += ["--db", str(self.db), "--token-file", str(self._token_file), "--plane-id", self.plane_id]
        command += ["--data-root", str(self.directory), "--busy-timeout-ms", str(self._busy_timeout_ms)]
        command += ["--shape", self.shape, "--lookback-ms", str(self.lookback_ms), *self._arguments]
        # The package may run from a checkout that is not installed.
        paths = [str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
        # What a host sets for its own Memory Core is not meant for this one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("NEO_", "MCP_"))}
        environment |= self._environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        log = self.directory / "memory-core.log"
        with log.open("a", encoding="utf-8") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], _START_S)
        line = process.stdout.readline() if ready else ""
        if not line.startswith("listening on "):
            process.kill()
            process.wait()
            process.stdout.close()
            told = log.read_text(encoding="utf-8").strip()[-500:]
            raise UnreachableError(f"the embedded Memory Core did not start: {told}", f"see {log}")
        return line.removeprefix("listening on ").strip(), process

    def _reap(self) -> None:
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def embedded_memory_core(
    directory: Path,
    *,
    tokens: str | Mapping[str, str],
    plane_id: str = PLANE_ID,
    port: int = 0,
    busy_timeout_ms: int = 5_000,
    shape: str = "final",
    lookback_ms: int = _CENTURY_MS,
    arguments: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Iterator[EmbeddedMemoryCore]:
    """Run a Memory Core whose graph, token file and log lie in `directory`; it is stopped at the end.

    `tokens`: one token (local-bearer mode) or name -> token (identities). `shape`: final, or the commit of an older
    server: 744201e5, 902ddd4d. `lookback_ms`: its retention; planted actions are of 2025, and by default it keeps them.
    `arguments`, `environ`: more words for `mc serve`, more of its environment. Raises UnreachableError when it does
    not start, which includes the missing extra `nl-cutover[memory-core]`.
    """
    core = EmbeddedMemoryCore(
        directory, tokens, plane_id, port, busy_timeout_ms, shape, lookback_ms, arguments, environ
    )
    try:
        yield core
    finally:
        if core.process.poll() is None:
            core.stop()
        else:
            core._reap()


@overload
def plant_store(
    path: Path, *, archives: int = ..., actions: int = ..., seed: int = ..., wal: bool = ..., close: Literal[True] = ...
) -> None: ...
@overload
def plant_store(
    path: Path, *, archives: int = ..., actions: int = ..., seed: int = ..., wal: bool = ..., close: Literal[False]
) -> sqlite3.Connection: ...
def plant_store(
    path: Path, *, archives: int = 0, actions: int = 0, seed: int = 0, wal: bool = True, close: bool = True
) -> sqlite3.Connection | None:
    """Make a host store with rows as the recorder writes them; equal arguments give equal rows.

    Several writers, text beyond ASCII, some names absent, some archives replayed. `close=False` returns the open
    writer, as a running host holds it: with `wal`, the rows are then in the `-wal` beside the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    writer = sqlite3.connect(path, isolation_level=None)
    if wal:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA wal_autocheckpoint = 0")
    writer.execute("BEGIN")
    for statement in (*DDL.values(), *_INDICES):
        writer.execute(statement)
    for table, rows in (
        (ARCHIVES, (_archive(rng, number) for number in range(archives))),
        (ACTIONS, (_action(rng, number) for number in range(actions))),
    ):
        marks = ", ".join("?" * len(COLUMNS[table]))
        writer.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    writer.execute("COMMIT")
    if not close:
        return writer
    writer.close()
    return None


def _uuid(rng: random.Random) -> str:
    return str(UUID(int=rng.getrandbits(128), version=4))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _writer(rng: random.Random) -> dict[str, str]:
    index = rng.randrange(len(_WRITERS))
    return {"agentId": _WRITERS[index], "sessionId": str(UUID(int=index + 1, version=4))}


def _archive(rng: random.Random, number: int) -> tuple[Any, ...]:
    origin = _writer(rng)
    committed = _EPOCH_MS + number * 60_000
    replays = rng.choice((0, 0, 0, 1, 2))
    name = rng.choice((None, f"{rng.choice(_WORDS)} {number}"))
    ops = []
    for step in range(rng.randint(1, 4)):
        target = f"{rng.choice(_WORDS)}-{rng.randrange(400)}"
        before, after = rng.choice((None, 0.5, -1, "א")), {"text": rng.choice(_WORDS), "width": rng.randrange(900)}
        tool = "set_instance_properties"
        ops.append(
            {
                "sequenceId": f"{target}:{step + 1}",
                "originWriter": origin,
                "targetSubtreePath": ["viewport", target],
                "forward": {"tool": tool, "args": {"id": target, "properties": after}},
                "reverse": {"tool": tool, "args": {"id": target, "properties": {"text": before, "width": None}}},
                "label": f"set text on {target}",
            }
        )
    return (
        _uuid(rng),
        name,
        f"tx:{ops[0]['sequenceId']}:{number}",
        origin["agentId"],
        origin["sessionId"],
        rng.choice((None, _uuid(rng))),
        _json(origin),
        committed,
        committed + 1_000,
        _json(ops),
        replays,
        committed + 2_000 if replays else None,
    )


def _action(rng: random.Random, number: int) -> tuple[Any, ...]:
    origin = _writer(rng)
    target = f"{rng.choice(_WORDS)}-{rng.randrange(400)}"
    tool, args = rng.choice(
        (
            ("create_component", {"parentId": target, "config": {"className": "Neo.button.Base", "text": "SECRET-0"}}),
            ("set_instance_properties", {"id": target, "properties": {"text": "SECRET-1"}}),
            ("inspect_class", {"className": "Neo.grid.Container"}),
            ("healthcheck", {}),
        )
    )
    return (
        _uuid(rng),
        origin["agentId"],
        origin["sessionId"],
        f"{origin['agentId']}_{number // 7}",
        _EPOCH_MS + number * 1_000,
        tool,
        _json(args),
        _json({"ok": True}),
        int(rng.random() > 0.1),
        rng.randrange(1, 4_000),
        rng.choice(_APPS),
        None,
    )

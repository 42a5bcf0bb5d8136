"""The runtime instrument: a command under the preload `checks/deny.cjs`, and the proof that the preload was there."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

from ..resources import resource
from ..verdicts import ExitCode
from .evidence import Armed, Denied, Evidence

SCHEMA = "nl-cutover/denial-run/1"
_PAUSE = 0.02  # seconds between two looks at the processes
_LOOKS = 3
_ONLY_SAYS = frozenset({"--version", "-v", "--help", "-h", "--v8-options", "--completion-bash"})  # run no script


class Unguarded(msgspec.Struct, frozen=True):
    """A process that runs JavaScript and did not write the nonce down."""

    pid: int
    command: str


class Held(msgspec.Struct, frozen=True):
    """The third look, at one store. `looked`: everywhere, partly or nowhere; `pids`: who has it open."""

    store: str
    looked: str
    pids: tuple[int, ...]
    sentence: str


class RunReport(msgspec.Struct, frozen=True):
    """The answer of `check run`. `verdict`: clear, findings or unmeasurable."""

    command: str
    command_exit: int
    armed: tuple[Armed, ...]
    refused: tuple[Denied, ...]
    unguarded: tuple[Unguarded, ...]
    control: str
    holders: tuple[Held, ...] = ()
    reasons: tuple[str, ...] = ()
    verdict: str = "unmeasurable"
    exit_code: int = ExitCode.UNMEASURABLE
    schema: str = SCHEMA


def run_denied(
    argv: Sequence[str],
    *,
    environ: Mapping[str, str],
    nonce: str,
    out: int,
    interpreters: Sequence[str],
    linger: float = 5,
) -> RunReport:
    """Run `argv` without a shell under the preload; its output goes to the descriptor `out`.

    `nonce` is a secret of this run. What the command leaves running is listened to for `linger` seconds more. A command
    that cannot be started has exit code 127. The verdict is still open: `conclude` gives it.
    """
    with tempfile.TemporaryDirectory(prefix="nl-cutover-denial-") as name:
        folder = Path(name)
        guarded = _guarded(environ, folder, nonce)
        guarded["PATH"] = f"{_shims(guarded, folder / 'bin')}{os.pathsep}{guarded.get('PATH', os.defpath)}"
        evidence = Evidence(folder, nonce)
        try:
            code, seen = _run(argv, guarded, out, frozenset(interpreters))
            left = _left(evidence, nonce, frozenset(interpreters), time.monotonic() + linger)
        finally:
            evidence.close()
        armed = tuple(sorted(evidence.armed, key=lambda entry: (entry.pid, entry.thread)))
        proved = {entry.pid for entry in armed if entry.thread == 0}
        unguarded = tuple(Unguarded(pid, command) for pid, command in seen.items() if pid not in proved)
        programs = sorted({entry.exec for entry in armed})
        control = next((why for program in programs if (why := _control(program, environ))), "")
        blind = [control, evidence.strange, evidence.altered()]
        blind += [f"pid {pid} still runs: what it may yet load is not known" for pid in left]
    words = shlex.join(argv)
    return RunReport(
        words,
        code,
        armed,
        tuple(evidence.refused),
        unguarded,
        control or f"every attempt refused on {len(programs)} Node",
        reasons=tuple(filter(None, blind)),
    )


def conclude(report: RunReport, holders: Sequence[Held]) -> RunReport:
    """The verdict: what was refused or is still held is a finding, what was not watched is no pass."""
    blind = list(report.reasons)
    if not report.armed:
        blind.append("no Node process ran under the guard: the command started none, or none wrote the nonce down")
    blind += [f"pid {entry.pid} ({entry.command}) ran without the guard" for entry in report.unguarded]
    if report.command_exit != 0 and not report.refused:
        blind.append(f"the command ended with {report.command_exit}: what it had still loaded is not known")
    held = [f"{entry.store} is {entry.sentence}" for entry in holders if entry.pids]
    blind += [f"{it.store}: {it.sentence}" for it in holders if not it.pids and it.looked != "everywhere"]
    found = [*(f"pid {d.pid} tried to load {d.what} ({d.how})" for d in report.refused), *held]
    verdict, code = ("clear", ExitCode.PROVED)
    if found:
        verdict, code = "findings", ExitCode.REFUSED
    elif blind:
        verdict, code = "unmeasurable", ExitCode.UNMEASURABLE
    reasons = tuple(dict.fromkeys((*found, *blind)))
    return msgspec.structs.replace(
        report, verdict=verdict, exit_code=int(code), reasons=reasons, holders=tuple(holders)
    )


def _guarded(environ: Mapping[str, str], folder: Path, nonce: str) -> dict[str, str]:
    preload = f"--require {json.dumps(str(resource('checks', 'deny.cjs')))}"
    options = f"{preload} {environ.get('NODE_OPTIONS', '')}".strip()  # the first to load
    return {**environ, "NODE_OPTIONS": options, "NL_CUTOVER_DENY_DIR": str(folder), "NL_CUTOVER_DENY_NONCE": nonce}


def _shims(guarded: Mapping[str, str], bin_: Path) -> Path:
    """Each Node of the PATH behind a script that puts the guard back: `NODE_OPTIONS= node x.js` in a shell line."""
    bin_.mkdir()
    kept = [f"export {name}={shlex.quote(guarded[name])}" for name in ("NL_CUTOVER_DENY_DIR", "NL_CUTOVER_DENY_NONCE")]
    preload = shlex.quote(f"--require {json.dumps(str(resource('checks', 'deny.cjs')))}")
    again = f'case "$NODE_OPTIONS" in {preload}*) ;; *) export NODE_OPTIONS={preload}" $NODE_OPTIONS" ;; esac'
    for name in ("node", "nodejs"):
        if (program := shutil.which(name, path=guarded.get("PATH", os.defpath))) is not None:
            shim = bin_ / name
            shim.write_text("\n".join(["#!/bin/sh", *kept, again, f'exec {shlex.quote(program)} "$@"\n']))
            shim.chmod(0o755)
    return bin_


def _run(
    argv: Sequence[str], environ: Mapping[str, str], out: int, interpreters: frozenset[str]
) -> tuple[int, dict[int, str]]:
    """The exit code, and every process below the command that runs JavaScript, by pid."""
    try:
        child = subprocess.Popen(argv, env=dict(environ), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    except OSError:
        return 127, {}
    seen: dict[int, tuple[int, str]] = {}
    try:
        top = psutil.Process(child.pid)
        while True:
            _note(top, seen, interpreters)
            try:
                return child.wait(timeout=_PAUSE), _ran(seen)
            except subprocess.TimeoutExpired:
                continue
    except psutil.NoSuchProcess:
        return child.wait(), _ran(seen)
    except BaseException:
        child.terminate()
        child.wait()
        raise


def _ran(seen: Mapping[int, tuple[int, str]]) -> dict[int, str]:
    """Those that were there for a few looks: before that it may not have come to its preload."""
    return {pid: command for pid, (times, command) in seen.items() if times >= _LOOKS}


def _left(evidence: Evidence, nonce: str, interpreters: frozenset[str], until: float) -> list[int]:
    """Who of this run still runs, once all have ended or the time is up: its parent may be long gone.

    A shell that sleeps counts, too: what it starts next may be a Node.
    """
    while True:
        guarded = {entry.pid for entry in evidence.armed}
        left = []
        for process in psutil.process_iter():
            try:
                mine = process.pid in guarded and os.path.basename(process.exe()) in interpreters
                if mine or process.environ().get("NL_CUTOVER_DENY_NONCE") == nonce:
                    left.append(process.pid)
            except (psutil.Error, OSError):
                continue
        if not left or time.monotonic() >= until:
            return left
        time.sleep(_PAUSE)


def _note(top: psutil.Process, seen: dict[int, tuple[int, str]], interpreters: frozenset[str]) -> None:
    try:
        below = [top, *top.children(recursive=True)]
    except psutil.Error:
        return
    for process in below:
        try:
            if os.path.basename(process.exe()) not in interpreters:
                seen.pop(process.pid, None)  # it was a copy of its parent, and is now what it was started for
                continue
            words = process.cmdline()
        except (psutil.Error, OSError):
            continue
        if not _ONLY_SAYS & set(words[1:2]):
            seen[process.pid] = (seen.get(process.pid, (0, ""))[0] + 1, shlex.join(words[:3]))


def _control(program: str, environ: Mapping[str, str]) -> str:
    """Attempts that the guard has to refuse, on that Node; why it is not to be trusted, or nothing."""
    with tempfile.TemporaryDirectory(prefix="nl-cutover-denial-") as name:
        guarded = _guarded(environ, Path(name), "control")
        try:
            script = resource("checks", "control.cjs")
            done = subprocess.run([program, script], env=guarded, capture_output=True, timeout=60, check=False)
            said = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            return f"the control did not run on {program}: {type(error).__name__}"
    if said["passed"] or not said["attempts"]:
        return f"the control loads a driver on {program}: {', '.join(said['passed'])}"
    return ""

"""`nl-cutover demo`: the main job in a temporary folder, with the real verbs, as an operator sees it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from ..verdicts import ExitCode
from .common import complain, say

_LINKED = ("antigravity", "claude", "clio", "codex", "opus-vega")
_ALONE = "iris"
_SLOT = "NEO_MCP_REMOTE_TOKEN"


def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Use this new folder, and leave it to play with.", metavar="DIR")
    ] = None,
) -> None:
    """Show the whole road on planted stores and an embedded Memory Core: measure, plan, migrate, verify, cut."""
    from ..errors import UsageError
    from ..testing import embedded_memory_core

    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise UsageError(f"{keep} is not empty", "name a folder that does not exist yet")
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nl-cutover-demo-")))
        folder = folder.absolute()
        checkouts = _plant(folder)
        say(f"Six Neo checkouts in {folder}; five of them reach one store through symlinks.\n")
        core = stack.enter_context(embedded_memory_core(folder / "memory-core", tokens={"neo-operator": "demo-token"}))
        say(f"An embedded Memory Core serves {core.url}\n")
        _write_config(folder, checkouts, core.url)
        code = _tell(folder, core.token)
        if keep is not None:
            say(
                f"\n{folder} is yours. Serve its Memory Core again with:\n"
                f"  nl-cutover mc serve --port {core.port} --db {core.db} "
                f"--token-file {folder / 'memory-core' / 'tokens'}\n"
                f"and work in {folder} with {_SLOT}={core.token}\n"
            )
    raise typer.Exit(code)


def _plant(folder: Path) -> list[tuple[str, Path]]:
    from ..testing import plant_store

    checkouts = [(seat, folder / seat / "neomjs" / "neo") for seat in (*_LINKED, _ALONE)]
    shared = checkouts[0][1] / ".neo-ai-data" / "sqlite"
    for seat, path in checkouts:
        data = path / ".neo-ai-data"
        data.mkdir(parents=True)
        (path / "package.json").write_text('{"name":"neo.mjs"}\n')
        if seat == _LINKED[0]:
            plant_store(shared / "memory-core-graph.sqlite", archives=40, actions=188, seed=1)
        elif seat == _ALONE:
            plant_store(data / "sqlite" / "memory-core-graph.sqlite", archives=12, actions=60, seed=2)
        else:
            (data / "sqlite").symlink_to(shared, target_is_directory=True)
    return checkouts


def _write_config(folder: Path, checkouts: list[tuple[str, Path]], url: str) -> None:
    lines = [f'url = "{url}"', 'custody = "custody"', 'owner = "neo-operator"', ""]
    for seat, path in checkouts:
        lines += ["[[checkouts]]", f'seat = "{seat}"', f'path = "{path.relative_to(folder)}"', ""]
    (folder / "nl-cutover.toml").write_text("\n".join(lines), encoding="utf-8")


def _tell(folder: Path, token: str) -> int:
    """Run the verbs one after the other. The first that ends otherwise than it should ends the demo."""
    landed = folder / "landed"
    steps: list[tuple[str, list[str], ExitCode]] = [
        ("What is there? Rows that nobody has accounted for: refused.", ["measure"], ExitCode.REFUSED),
        (
            "What would move, and what is lost on the way?",
            ["plan", "--telemetry", "admit", "--out", "plan.json"],
            ExitCode.PROVED,
        ),
        (
            "Run exactly that plan.",
            ["migrate", "--telemetry", "admit", "--plan", "plan.json"],
            ExitCode.PROVED,
        ),
        ("Read every archive back, anew.", ["verify"], ExitCode.PROVED),
        (
            "Land it: count under the lock, seal, run the landing command.",
            ["cut", "--", "touch", str(landed)],
            ExitCode.PROVED,
        ),
        ("What is there now? The same rows, accounted for and sealed.", ["measure"], ExitCode.PROVED),
        ("What is left as paper?", ["receipt", "show", "--format", "markdown"], ExitCode.PROVED),
    ]
    environ = os.environ | {_SLOT: token, "COLUMNS": os.environ.get("COLUMNS", "120")}
    for sentence, arguments, expected in steps:
        say(f"\n# {sentence}\n$ nl-cutover {shlex.join(arguments)}\n")
        done = subprocess.run([sys.executable, "-m", "nl_cutover", *arguments], cwd=folder, env=environ, check=False)
        if done.returncode != expected:
            complain(f"the demo stops: exit {done.returncode}, expected {int(expected)}\n")
            return int(ExitCode.FAULT)
    say(f"\nThe landing command ran once: {landed.name} {'is there' if landed.exists() else 'is missing'}.\n")
    return int(ExitCode.PROVED if landed.exists() else ExitCode.FAULT)

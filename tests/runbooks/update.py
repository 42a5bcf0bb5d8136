"""Write what the commands really print into the papers: `python tests/runbooks/update.py [PAPER...]`.

Lines that are right stay as they are, so a placeholder that a person chose stays too. Read the diff before you keep it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from nl_cutover.testing import embedded_memory_core  # noqa: E402
from tests.conftest import TOKENS  # noqa: E402
from tests.runbooks.papers import Ran, run  # noqa: E402
from tests.runbooks.redraw import Place, redraw  # noqa: E402
from tests.runbooks.scene import PAPERS, scene, settings_of_the_papers  # noqa: E402


def update(paper: Path, work: Path) -> bool:
    """Run one paper and rewrite it. Returns whether it changed."""
    with embedded_memory_core(work / "core", tokens=TOKENS) as core:
        with scene(work / "scene", core, settings_of_the_papers()) as stage:
            drawn: list[tuple[Ran, list[str]]] = []
            for ran in run(paper, stage.run, stage.changes):
                place = Place(str(stage.folder), stage.store_ids(), stage.core.port)
                drawn.append((ran, redraw(ran.command, ran.output, place)))
    lines = before = paper.read_text("utf-8").splitlines()
    for ran, shown in reversed(drawn):
        at = ran.command.line  # the line after the command, counted from 0
        lines = [*lines[:at], *shown, *lines[at + len(ran.command.shown) :]]
    paper.write_text("\n".join(lines) + "\n", "utf-8")
    return lines != before


def main() -> None:
    for paper in [Path(name).resolve() for name in sys.argv[1:]] or PAPERS:
        with tempfile.TemporaryDirectory(prefix="nl-cutover-papers-") as work:
            changed = update(paper, Path(work).resolve())
        print(f"{paper.name}: {'rewritten' if changed else 'right as it was'}")


if __name__ == "__main__":
    main()

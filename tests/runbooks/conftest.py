"""Every paper is run once for all tests of this room, side by side, each in a scene of its own."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from tests.runbooks.papers import Ran, run
from tests.runbooks.redraw import Place
from tests.runbooks.scene import PAPERS, ROOT, scene, settings_of_the_papers


class Performance(msgspec.Struct):
    """What a paper's commands printed, in order, and where."""

    ran: list[Ran]
    place: Place
    scenes: set[str]


@pytest.fixture(scope="session")
def performed(tmp_path_factory, core) -> Callable[[Path], Performance]:
    folder, settings = tmp_path_factory.mktemp("papers"), settings_of_the_papers()

    def perform(paper: Path) -> Performance:
        with scene(folder / paper.stem, core, settings) as stage:
            ran = list(run(paper, stage.run, stage.changes))
            return Performance(ran, Place(str(stage.folder), stage.store_ids(), stage.core.port), set(stage.changes))

    with ThreadPoolExecutor(4) as pool:
        futures: dict[Path, Future[Performance]] = {paper: pool.submit(perform, paper) for paper in PAPERS}
    return lambda paper: futures[paper].result()


@pytest.fixture(scope="session")
def generate() -> ModuleType:
    """`docs/generate.py` as a module."""
    spec = importlib.util.spec_from_file_location("nl_cutover_docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""One Memory Core a shape, in the place of the one that every other room uses: `--shape` does not matter here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from nl_cutover.ingress.endpoint import Endpoint, Token
from nl_cutover.ingress.operations import Operations
from nl_cutover.ingress.session import Session
from nl_cutover.testing import EmbeddedMemoryCore, embedded_memory_core
from tests.conftest import TOKENS, Operator


@pytest.fixture(scope="session", params=["final", "744201e5", "902ddd4d"])
def core(request, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMemoryCore]:
    with embedded_memory_core(tmp_path_factory.mktemp(request.param), tokens=TOKENS, shape=request.param) as running:
        yield running


@pytest.fixture
def operator(tmp_path, core) -> Operator:
    """These tests look at the refusals themselves."""
    return Operator(tmp_path, core.url, core.token)


@pytest.fixture
def operations(core) -> Iterator[Callable[[str], Operations]]:
    """The client's operations under a token."""
    opened: list[Session] = []

    def make(token: str) -> Operations:
        opened.append(Session(Endpoint(core.url, Token(token))))
        return Operations(opened[-1])

    yield make
    for session in opened:
        session.close()

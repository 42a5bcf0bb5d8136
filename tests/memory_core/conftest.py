"""One Memory Core in local-bearer mode for the whole session, and one with identities."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nl_cutover.testing import EmbeddedMemoryCore, embedded_memory_core

from .mcp_caller import Caller, Connect


@pytest.fixture
def connect() -> Iterator[Connect]:
    opened: list[Caller] = []

    def make(core: EmbeddedMemoryCore, token: str | None = None) -> Caller:
        opened.append(Caller(core.url, token or core.token))
        return opened[-1]

    yield make
    for caller in opened:
        caller.http.close()


@pytest.fixture(scope="session")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMemoryCore]:
    with embedded_memory_core(tmp_path_factory.mktemp("core"), tokens="local-token") as running:
        yield running


@pytest.fixture(scope="session")
def seats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMemoryCore]:
    tokens = {"vega": "token-of-vega", "ada": "token-of-ada"}
    with embedded_memory_core(tmp_path_factory.mktemp("seats"), tokens=tokens) as running:
        yield running

"""Who sees which tools: the launch's forced mode, else what the client asks for, else the whole surface."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ..contract.surface import MEMORY_CORE, META_KEY, NEURAL_LINK, Surface, Tool, not_visible
from .auth import Identity
from .jsontext import stringify


class SurfaceName(StrEnum):
    MEMORY_CORE = "memory-core"
    NEURAL_LINK = "neural-link"

    @property
    def document(self) -> Path:
        return MEMORY_CORE if self is SurfaceName.MEMORY_CORE else NEURAL_LINK


def load_document(path: Path = MEMORY_CORE) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


class Answer(msgspec.Struct, frozen=True):
    """What a tools/call comes to: the text of the content, and `structured` as compact JSON text where there is any."""

    text: str
    structured: str | None = None
    refused: bool = False  # by policy: an error that carries structured content

    def result(self) -> str:
        """The JSON text of the CallToolResult."""
        content = stringify([{"type": "text", "text": self.text}])
        if self.structured is None:
            return f'{{"content":{content},"isError":true}}'
        if self.refused:
            return f'{{"content":{content},"isError":true,"structuredContent":{self.structured}}}'
        return f'{{"content":{content},"structuredContent":{self.structured},"isError":false}}'


class Backend(Protocol):
    """Executes the tools of a surface."""

    def call(self, name: str, arguments: Any, caller: Identity, tools: Mapping[str, Tool]) -> Answer: ...


class Desk:
    """Lists and calls. `forced` None: a client may ask for a projection; a string, even an empty one, is the ceiling."""

    def __init__(self, surface: Surface, backend: Backend, forced: str | None = None) -> None:
        self._surface = surface
        self._backend = backend
        self._forced = forced

    def listing(self, params: Mapping[str, Any]) -> str:
        """The JSON text of a tools/list result."""
        tools, _, _ = self._view(params)
        return stringify({"tools": [tool.listed() for tool in tools.values()]})

    def call(self, params: Mapping[str, Any], name: str, arguments: Any, caller: Identity) -> Answer:
        tools, projected, mode = self._view(params)
        if projected and name not in tools:
            reason = not_visible(name, mode)
            told = {"error": "Policy Refused", "code": "POLICY_REFUSED", "reason": reason}
            return Answer(f"Policy Refused executing {name}: {reason}", stringify(told), refused=True)
        return self._backend.call(name, arguments, caller, tools)

    def _view(self, params: Mapping[str, Any]) -> tuple[Mapping[str, Tool], bool, object]:
        """The tools, whether they are projected, and by which mode."""
        meta = params.get("_meta")
        if self._forced is not None:
            return self._surface.view(self._forced), True, self._forced
        if isinstance(meta, dict) and META_KEY in meta:
            return self._surface.view(meta[META_KEY]), True, meta[META_KEY]
        return self._surface.tools, False, None

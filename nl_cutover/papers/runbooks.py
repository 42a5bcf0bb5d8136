"""Runbooks with an operator's own names in the places of the example's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from shlex import quote

import msgspec

from ..contract.wire import DEFAULT_URL, PLANE_ID
from ..resources import resource

_OWNER = "neo-operator"


class Own(msgspec.Struct, frozen=True):
    """What is known of the place. `checkouts` are quoted for a shell; `settings` is a settings file as text, or None to
    leave what the runbook shows."""

    url: str
    plane: str
    custody: str
    owner: str | None
    checkouts: Sequence[str]
    settings: str | None
    facts: Sequence[tuple[str, str]]  # for the head of the page


def names() -> dict[str, str]:
    """Every runbook by name, with its first sentence."""
    found = {}
    for path in sorted(resource("runbooks").glob("*.md")):
        sentence = re.search(r"^Use this .*?\.(?=\s)", path.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        found[path.stem] = _plain(sentence[0]) if sentence else ""
    return found


def filled(name: str, own: Own) -> str:
    """The runbook's Markdown. Raises KeyError for a name that is none."""
    if name not in names():
        raise KeyError(name)
    text = resource("runbooks", f"{name}.md").read_text("utf-8")
    text = re.sub(r"<!-- scene: .*? -->\n\n", "", text)
    if own.settings is not None:
        text = re.sub(
            r"^```toml\n.*?^```$", f"```toml\n{own.settings}```".replace("\\", r"\\"), text, flags=re.M | re.S
        )
    if own.checkouts:
        count = str(len(own.checkouts))
        text = re.sub(r"(--expect-checkouts )6\b", rf"\g<1>{count}", text)
        text = text.replace("CHECKOUT...", " ".join(own.checkouts))
    for example, real in (
        (DEFAULT_URL, own.url),
        (re.sub(r":\d+/", ":<port>/", DEFAULT_URL), own.url),
        (PLANE_ID, own.plane),
        ("<path>/custody", own.custody),
        (" custody/", f" {quote(own.custody)}/"),
        (_OWNER, own.owner or _OWNER),
    ):
        text = text.replace(example, real)
    title, _, rest = text.partition("\n")
    head = "".join(f"- {key}: {value}\n" for key, value in own.facts)
    return f"{title}\n\n{head}\nNumbers and rows in what commands print are an example's.\n{rest}"


def _plain(sentence: str) -> str:
    return " ".join(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", sentence).split())

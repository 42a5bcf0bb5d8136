"""`nl-cutover runbook`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from .common import (
    ConfigOption,
    ContainerOption,
    CustodyOption,
    OwnerOption,
    PlaneOption,
    UrlOption,
    say,
)


def runbook(
    name: Annotated[str | None, typer.Argument(help="Which one.  [default: list them]", show_default=False)] = None,
    url: UrlOption = None,
    plane: PlaneOption = None,
    owner: OwnerOption = None,
    container: ContainerOption = None,
    custody: CustodyOption = None,
    config: ConfigOption = None,
) -> None:
    """Print a runbook as Markdown, with your own paths and ids in it."""
    import textwrap

    from ..errors import UsageError
    from ..papers.runbooks import Own, filled, names
    from .settings import as_toml, load

    if name is None:
        width = max(map(len, names()))
        for known, sentence in names().items():
            indent = f"{known:<{width}}  "
            say(textwrap.fill(sentence, 80, initial_indent=indent, subsequent_indent=" " * len(indent)) + "\n")
        return
    settings = load(config=config, url=url, plane=plane, owner=owner, container=container, custody=custody)
    own = Own(
        url=settings.url,
        plane=settings.plane_id,
        custody=str(settings.custody),
        owner=settings.owner,
        checkouts=[quote(str(path.absolute())) for path, _ in settings.checkouts],
        settings=as_toml(
            url=settings.url,
            custody=str(settings.custody),
            owner=settings.owner,
            plane=settings.plane_id,
            checkouts=[(seat, str(path.absolute())) for path, seat in settings.checkouts],
            identities=settings.identities,
        )
        if settings.checkouts
        else None,
        facts=[
            (
                "checkouts",
                ", ".join(str(path) for path, _ in settings.checkouts) or "none named; those below are an example",
            ),
            ("url", settings.url),
            ("plane", settings.plane_id),
            ("container", settings.container or "not named"),
            ("custody", str(settings.custody)),
            ("run", _run(settings.custody)),
        ],
    )
    try:
        say(filled(name, own))
    except KeyError:
        raise UsageError(f"there is no runbook {name}", f"there are: {', '.join(names())}") from None


def _run(custody: Path) -> str:
    """The id of the run in that custody, by its newest receipt."""
    from ..custody.receipts import chain, read

    links = chain(custody)
    return str(read(links[-1].path)[1].get("run") or "not begun") if links else "not begun"

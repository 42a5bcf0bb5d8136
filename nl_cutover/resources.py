"""Where `migrations/`, `checks/` and `runbooks/` are: inside the wheel, or beside the package in a checkout."""

from __future__ import annotations

from pathlib import Path


def resource(*parts: str) -> Path:
    """The path of a packaged resource, e.g. `resource("runbooks", "cut.md")`.

    Raises FileNotFoundError with both places that were looked at.
    """
    package = Path(__file__).resolve().parent
    places = [package / "_resources", package.parent]
    for place in places:
        path = place.joinpath(*parts)
        if path.exists():
            return path
    raise FileNotFoundError(f"{'/'.join(parts)} is neither in {places[0]} nor in {places[1]}")

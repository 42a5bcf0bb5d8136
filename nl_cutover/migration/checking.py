"""A verification with its receipt: snapshot, id map, ingress. Like `verify`, it owes nothing to the run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from ..custody import receipts
from ..custody.reading import LedgerReader
from ..errors import CustodyError
from ..ingress.preflight import Plane, preflight
from ..ingress.sessions import Sessions
from ..stores.report import Report
from .preparing import measured_facts, source_of, tool_facts, utc
from .progress import Progress
from .verify import VerifyReport, verify


def verify_run(
    report: Report,
    *,
    custody: Path,
    sessions: Sessions,
    expected_plane: str,
    expected_root: str | None,
    clock: Callable[[], int],
    progress: Progress,
    container: Callable[[Plane], dict[str, Any]] | None = None,
) -> VerifyReport:
    """Verify the run of a custody directory against its stores and its plane. Raises CutoverError.

    `container` looks at the plane's other side, and says for the receipt what it found.
    """
    with ExitStack() as places:
        reader = places.enter_context(LedgerReader(custody))
        run = reader.run()
        if run is None:
            raise CustodyError(f"custody {custody} holds no run", "begin one with: nl-cutover migrate")
        source = places.enter_context(source_of(report))
        session = sessions.operations("").session
        plane = preflight(session, expected_plane=expected_plane, expected_root=expected_root, telemetry=False)
        hint = "verify against the plane that holds the run's archives"
        plane.must_be(run["plane_id"], run["data_root"], f"run {run['id']}", hint)
        beside = {} if container is None else container(plane)
        result = verify(
            source,
            reader.mapped,
            reader.excluded(),
            sessions,
            url=plane.url,
            run=run["id"],
            at=utc(clock()),
            progress=progress,
        )
    result = msgspec.structs.replace(result, waited_s=round(sessions.waited, 1), proxy=plane.proxy)
    link = receipts.write(
        custody,
        "verify",
        {
            "schema": "nl-cutover/receipt/1",
            "run": run["id"],
            "at": result.at,
            "tool": tool_facts(),
            "plane": msgspec.to_builtins(plane),
            "container": beside,
            "measured": measured_facts(report),
            "outcome": {
                key: value
                for key, value in msgspec.to_builtins(result).items()
                if key not in ("schema", "run", "at", "receipt", "next_steps")
            },
        },
    )
    return msgspec.structs.replace(result, receipt=str(link.path))

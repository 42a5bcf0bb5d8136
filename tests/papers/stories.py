"""Stories for the report's tests: one of a real run, and one whose every name tries to break the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from nl_cutover.custody.reading import Odd
from nl_cutover.migration.plan import Loss
from nl_cutover.migration.verify import Difference
from nl_cutover.papers.kinds import MeasuredCheckout, MeasuredFacts, MeasuredStore, MeasuredTable, Settled
from nl_cutover.papers.story import Story, tell
from nl_cutover.papers.verifying import Paper
from nl_cutover.stores.sealing import SealState

HOSTILE = (
    '<script>document.title="broken"</script>',
    '"><img src=x onerror=alert(1)>',
    "</style><b>bold",
    "&lt;already&gt;",
    'end"] --> x["',
    "`**md**` [link](http://x)",
    "1. list",
    "列" * 60,
    "\u202egnp.exe",
    "line\nbreak\r\x1b[31m",
    "%%{init: {}}%%; click a",
    "#quot;#35;",
)


def told(receipts: Sequence[Path]) -> Story:
    return tell(Paper(receipts).chains[0])


def hostile(story: Story) -> Story:
    """The same run with hostile names everywhere, and one of everything that can go wrong."""
    tables = [
        MeasuredTable("nl_action_log", "measured", 7, None, 1),
        MeasuredTable("nl_transaction_archive", "unmeasurable", None, None, None),
    ]
    stores = [MeasuredStore(name, f"/x/{name}", [], None, tables, SealState()) for name in HOSTILE[:3]]
    checkouts = [
        MeasuredCheckout(
            name, f"/home/{name}", "measured" if at % 4 else "unmeasurable", stores[at % 4].id if at % 4 < 3 else None
        )
        for at, name in enumerate(HOSTILE)
    ]
    assert story.plane is not None
    return msgspec.structs.replace(
        story,
        run=HOSTILE[0],
        host=HOSTILE[1],
        verdict=HOSTILE[2],
        exit_code=8,
        measured=MeasuredFacts(checkouts, stores),
        plane=msgspec.structs.replace(story.plane, url=HOSTILE[1], plane_id=HOSTILE[7]),
        losses=[Loss("custodian", 3, f"will be readable by {name} alone") for name in HOSTILE],
        odd=[Odd("archive", name, "refused", name) for name in HOSTILE],
        differences=[Difference(name, name, name) for name in HOSTILE],
        settled=[Settled(1, "archive", name, "resend", name, name) for name in HOSTILE],
        id_map=[msgspec.structs.replace(story.id_map[0], old=name, new=name) for name in HOSTILE],
        timeline=[
            msgspec.structs.replace(event, sentence=name) for event, name in zip(story.timeline, HOSTILE, strict=False)
        ],
    )


def crowded(story: Story) -> Story:
    """A store that forty checkouts reach, forty more that reach none, and names that all have to be written in codes."""
    name = '"' * 40
    (store,) = story.measured.stores
    checkouts = [MeasuredCheckout(name, name, "measured", store.id if at % 2 else None) for at in range(80)]
    return msgspec.structs.replace(story, measured=MeasuredFacts(checkouts, [store]))

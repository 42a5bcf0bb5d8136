"""One archive's way, by its old or its new id, from receipts alone; and whether Memory Core still gives it back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ..contract.archives import carried_digest
from ..custody.reading import Mapped
from ..errors import RefusedError
from ..ingress.preflight import ANY_PLANE, Plane, error_of, preflight
from ..ingress.sessions import Sessions
from ..verdicts import Delivered, ExitCode, NotSent
from .kinds import MigrateReceipt
from .verifying import Paper, Read

SCHEMA = "nl-cutover/resolve/1"


class Way(msgspec.Struct, frozen=True):
    """What the newest receipt that knows it says of one archive. `stores` are paths; `binding`: what vouches for the
    receipt's bytes besides themselves; `entry` as in its id map."""

    entry: Mapped
    stores: list[str]
    plane: Plane
    run: str | None
    at: str
    receipt: str
    receipt_sha256: str
    binding: str


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """`nl-cutover/resolve/1`. `verdict`: resolved | not read back | ambiguous | equal | different | not told.
    `answer`: what Memory Core said now, where it was asked."""

    schema: str = SCHEMA
    verdict: str
    exit_code: int
    id: str
    archives: list[Way]
    answer: str | None = None


def resolve(paper: Paper, name: str) -> Resolution:
    """The ways of the archives that had this id in a store, or have it in MC. Within a run the newest receipt counts;
    what two runs saved twice is told twice."""
    found = list(_ways(paper, name))
    if len(found) > 1:
        verdict, code = "ambiguous", ExitCode.REFUSED
    elif found and found[0].entry.confirmed:
        verdict, code = "resolved", ExitCode.PROVED
    else:
        verdict, code = "not read back", ExitCode.PARTIAL
    return Resolution(verdict=verdict, exit_code=int(code), id=name, archives=found)


def ask(resolution: Resolution, sessions: Sessions) -> Resolution:
    """Read the archive from MC and compare digests. Raises RefusedError where several have the id, WrongPlaneError
    where another plane answers, CutoverError when the ingress ends the reading."""
    if len(resolution.archives) > 1:
        raise RefusedError(
            f"{len(resolution.archives)} archives had the id {resolution.id}", "ask for one of their new ids"
        )
    (way,) = resolution.archives
    session = sessions.operations("").session
    plane = preflight(session, expected_plane=ANY_PLANE, telemetry=False)
    plane.must_be(way.plane.plane_id, way.plane.data_root, "the archive", "ask the plane that the receipt names")
    code, said = _answer(way.entry, sessions, plane.url)
    verdict = {ExitCode.PROVED: "equal", ExitCode.DIFFERENCE: "different"}.get(code, "not told")
    return msgspec.structs.replace(resolution, verdict=verdict, exit_code=int(code), answer=said)


def _answer(entry: Mapped, sessions: Sessions, url: str) -> tuple[ExitCode, str]:
    if entry.carried_digest is None:
        return ExitCode.PARTIAL, "the receipt has no digest of what was carried: an older version wrote it"
    outcome = sessions.operations(entry.identity).get(entry.new)
    if isinstance(outcome, NotSent):
        raise error_of(outcome, url)
    if not isinstance(outcome, Delivered):
        return ExitCode.PARTIAL, f"Memory Core could not say: {outcome.reason}"
    found: dict[str, Any] = outcome.result
    if found["status"] != "found":
        whose = entry.custodian or "the identity that saved it"
        return ExitCode.PARTIAL, f"Memory Core answers {found['status']}; it shows an archive to {whose} alone"
    digest, replays = carried_digest(found, entry.new), found.get("replayCount")
    if digest != entry.carried_digest:
        return ExitCode.DIFFERENCE, f"what Memory Core gives back now has the carried digest {digest}"
    if not isinstance(replays, int | float) or replays < entry.marks_made:
        return ExitCode.DIFFERENCE, f"Memory Core counts {replays} replays, {entry.marks_made} were made"
    return ExitCode.PROVED, f"Memory Core gives back now what was carried: the digest is equal, {replays:g} replays"


def _ways(paper: Paper, name: str) -> Iterator[Way]:
    latest: dict[tuple[str | None, str, str], tuple[Mapped, MigrateReceipt, Read]] = {}
    for one in sorted(paper.read.values(), key=lambda one: (one.receipt.at, one.receipt.number)):
        if isinstance(one.receipt, MigrateReceipt):
            for entry in one.receipt.id_map:
                if name in (entry.old, entry.new):
                    latest[one.receipt.run, entry.old, entry.content_digest] = entry, one.receipt, one
    for entry, receipt, one in {(found[0].old, found[0].new): found for found in latest.values()}.values():
        paths = {store.id: store.path for store in receipt.plan.stores}
        stores = [paths.get(store, store) for store in entry.stores]
        sha256, binding = one.sha256, _binding(paper, one)
        yield Way(entry, stores, receipt.plane, receipt.run, receipt.at, str(one.path), sha256, binding)


def _binding(paper: Paper, one: Read) -> str:
    chain = next(chain for chain in paper.chains if one in chain)
    after = chain[chain.index(one) :]
    if (signed := next((link for link in after if link.signer is not None), None)) is not None:
        return f"{signed.signer} signed {signed.path.name}"
    if len(after) > 1:
        return f"{after[1].path.name} names its bytes; nothing here binds {after[-1].path.name}"
    return "nothing here binds it: compare its sha256 with what you were told"

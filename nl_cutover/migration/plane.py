"""The plane as its verbs report it: how it stands, what its graph holds, a backup, and the proof that it keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..custody import directory
from ..errors import CutoverError, RefusedError, UnreachableError
from ..ingress.preflight import Plane, preflight
from ..ingress.session import Session
from ..ingress.sessions import Sessions
from ..plane import durability
from ..plane.backup import Backup, backup
from ..plane.durability import Returned
from ..plane.engine import Engine, EngineFacts, NoEngine
from ..plane.evidence import Facts, graph_facts
from ..plane.locate import Pin, Wanted, finished, leads, locate, raw, tied
from ..plane.mounts import Health, Mount, health_of, mounts_of
from ..stores.report import Report
from ..verdicts import ExitCode
from .checking import verify_run
from .containers import BACKUPS, Container, not_durable
from .evidence import StoredArchive
from .preparing import utc
from .progress import Progress
from .verify import VerifyReport
from .words import verdict_word

_CLOCK_WARNING_S = 30


class StatusReport(msgspec.Struct, frozen=True, kw_only=True):
    """`nl-cutover/plane/1`. What could not be told is None, and `troubles` says why; PROVED means there are none."""

    schema: str = "nl-cutover/plane/1"
    verdict: str
    exit_code: int
    at: str
    engine: EngineFacts | None = None
    container: Pin | None = None
    health: Health | None = None
    mounts: list[Mount] = []
    graph: Facts | None = None
    reader: str | None = None
    clock_offset_s: float | None = None
    ingress: Plane | None = None
    tied: list[str] = []
    not_proved: list[str] = []
    troubles: list[str]
    next_steps: list[str]


class EvidenceReport(msgspec.Struct, frozen=True, kw_only=True):
    """`nl-cutover/evidence/1`. `actions`: how many rows have each digest. Nothing later than `as_of` is known."""

    schema: str = "nl-cutover/evidence/1"
    verdict: str = "proved"
    exit_code: int = 0
    container: str
    reader: str
    as_of: str
    clock_offset_s: float
    archives: list[StoredArchive]
    actions: dict[str, int] | None


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    """`nl-cutover/backup/1`."""

    schema: str = "nl-cutover/backup/1"
    verdict: str = "proved"
    exit_code: int = 0
    at: str
    container: str
    backup: Backup


class ProveReport(msgspec.Struct, frozen=True, kw_only=True):
    """`nl-cutover/prove/1`. `returned`: how the container was taken away and came back before everything was read."""

    schema: str = "nl-cutover/prove/1"
    verdict: str
    exit_code: int
    returned: Returned
    verified: VerifyReport
    next_steps: list[str]


def status(
    engine: Engine | NoEngine, wanted: Wanted, ingress: Callable[[], Plane], *, clock: Callable[[], int]
) -> StatusReport:
    """Look at everything that can be looked at. Raises RefusedError where several containers could be meant."""
    troubles: list[CutoverError] = []
    known: dict[str, Any] = {}

    def tell(look: Callable[[], object]) -> None:
        try:
            look()
        except CutoverError as error:
            troubles.append(error)

    tell(lambda: known.update(ingress=ingress()))
    if isinstance(engine, NoEngine):
        troubles.append(engine.error())
    else:
        known["engine"] = engine.facts
        try:
            pin = locate(engine, wanted)
            tell(lambda: _look(engine, pin, wanted, known, clock))
        except UnreachableError as error:
            troubles.append(error)
    code = troubles[0].exit_code if troubles else ExitCode.PROVED
    return StatusReport(
        verdict=verdict_word(code),
        exit_code=int(code),
        at=utc(clock()),
        troubles=[error.message for error in troubles],
        next_steps=list(dict.fromkeys(error.hint for error in troubles if error.hint)),
        **known,
    )


def _look(engine: Engine, pin: Pin, wanted: Wanted, known: dict[str, Any], clock: Callable[[], int]) -> None:
    facts = raw(engine, pin.id)
    health = health_of(facts)
    known.update(container=pin, health=health, mounts=mounts_of(facts))
    finished(engine, pin)
    pin.running()
    known["graph"], answer = graph_facts(engine, pin, clock)
    known.update(reader=answer.reader, clock_offset_s=answer.clock_offset_s)
    if (plane := known.get("ingress")) is not None:
        ties = tied(engine, pin, wanted.url, plane.plane_id, plane.data_root)
        known.update(tied=ties.proved, not_proved=ties.not_proved)
    if (trouble := not_durable(engine, pin)) is not None:
        raise RefusedError(trouble, "put the graph on a named volume before anything is migrated")
    if health.kind == "unhealthy":
        raise UnreachableError(f"{pin.words} is unhealthy: {health.said}", f"docker logs {pin.name}")
    if abs(answer.clock_offset_s) > _CLOCK_WARNING_S:
        raise RefusedError(
            f"the clock of {pin.words} is {answer.clock_offset_s:+g} s off this host's",
            "set it: tokens and stamps are judged by it",
        )
    if "ingress" in known and leads(engine, pin, wanted.url) is None:  # a plane id alone is what others may say too
        hint = (
            "name the --url whose port it publishes; behind a proxy, or on another machine, only `nl-cutover plane prove` "
            "can show it, by a stop"
        )
        raise RefusedError(known["not_proved"][0], hint)


def evidence(found: Container, *, since_ms: float, tokens: Collection[str]) -> EvidenceReport:
    """Archive nodes stored since then, and the admitted rows under these tokens. Raises CutoverError."""
    source = found.evidence
    archives = source.archives(since_ms)
    actions = dict(source.actions(tokens)) if tokens else None
    answer = source.answer
    assert answer is not None
    return EvidenceReport(
        container=found.pin.words,
        reader=answer.reader,
        as_of=utc(int(source.as_of)),
        clock_offset_s=answer.clock_offset_s,
        archives=archives,
        actions=actions,
    )


def take_backup(found: Container, custody: Path, *, clock: Callable[[], int]) -> BackupReport:
    """A backup of the graph in the custody directory, restored and counted. Raises CutoverError."""
    directory.create(custody)
    made = backup(found.engine, found.pin, custody / BACKUPS, clock=clock)
    return BackupReport(at=utc(clock()), container=found.pin.words, backup=made)


def prove(
    found: Container,
    report: Report,
    *,
    custody: Path,
    identities: Mapping[str, Callable[[], Session]],
    expected_plane: str,
    expected_root: str | None,
    recreate: bool,
    deadline_s: float,
    clock: Callable[[], int],
    progress: Progress,
) -> ProveReport:
    """Take the container away, bring it back, and read every archive of the run again. Raises CutoverError.

    What would be gone with the container is refused before it is stopped; so is, while it is stopped, an ingress that
    answers without it.
    """

    def look() -> Plane:
        with identities[""]() as session:
            return preflight(session, expected_plane=expected_plane, expected_root=expected_root, telemetry=False)

    def silent() -> None:
        try:
            look()
        except UnreachableError:
            return
        raise RefusedError(
            f"{plane.url} still answers while {found.pin.words} is stopped: it is not what stands behind it",
            "correct --url or --container; it is started again",
        )

    plane = look()
    found.facts(plane)
    act = durability.recreate if recreate else durability.restart
    returned = act(found.engine, found.pin, stopped=silent, deadline_s=deadline_s, progress=progress.note)
    _until_it_answers(look, deadline_s)
    now = Container(found.engine, returned.after, found.clock, found.url)
    with Sessions(identities) as sessions:
        verified = verify_run(
            report,
            custody=custody,
            sessions=sessions,
            expected_plane=expected_plane,
            expected_root=expected_root,
            clock=clock,
            progress=progress,
            container=lambda plane: now.facts(plane, silent=True) | {"returned": msgspec.to_builtins(returned)},
        )
    return ProveReport(
        verdict=verified.verdict,
        exit_code=verified.exit_code,
        returned=returned,
        verified=verified,
        next_steps=verified.next_steps,
    )


def _until_it_answers(look: Callable[[], Plane], deadline_s: float) -> None:
    until = time.monotonic() + deadline_s
    while True:
        try:
            look()
            return
        except UnreachableError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)

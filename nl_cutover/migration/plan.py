"""The plan: what would be sent, what cannot be, what is lost on the way. Equal rows and policy give an equal digest."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import rfc8785

from ..contract.archives import save_call
from ..contract.rows import ACTIONS, ARCHIVES, Row, Twins, key_text
from ..contract.telemetry import project
from ..contract.wire import BODY_LIMIT, RETENTION_MS
from ..custody.entries import ActionEntry, ArchiveEntry
from ..verdicts import ExitCode, Refused
from ..wording import counted, fitted
from .choosing import Choice, Left, chosen, with_left
from .contents import Contents
from .lives import Lives, lives_of
from .policy import Policy, Replays, TelemetryMode
from .source import Source, SourceStore

SCHEMA = "nl-cutover/plan/1"


class RefusedRow(msgspec.Struct, frozen=True):
    """A row that will not be sent, by its source key."""

    table: str
    key: str
    store: str
    reason: str


class Loss(msgspec.Struct, frozen=True):
    """A meaning that the four operations cannot carry, in words."""

    kind: str
    count: int
    sentence: str


class TablePlan(msgspec.Struct, frozen=True):
    rows: int
    digest: str  # SHA-256 over the row digests in key order


class StorePlan(msgspec.Struct, frozen=True):
    id: str
    path: str
    archives: TablePlan
    actions: TablePlan


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`digest` covers everything but itself, `notes`, which depend on the hour, and `receipt`."""

    schema: str = SCHEMA
    verdict: str  # ready | blocked
    exit_code: int
    stores: list[StorePlan]
    owner: str | None
    owner_stated: bool
    writers: dict[str, int]
    identities: dict[str, int]  # credential slot -> archives that it saves; empty when one token saves all
    slots: dict[str, str]  # writer -> credential slot
    telemetry: str
    replays: str
    life_gap_hours: float
    archives: int
    archives_to_send: int
    duplicates: int
    marks: int
    actions: int
    actions_to_send: int
    refused: list[RefusedRow]
    choices: list[Choice] = []  # of ids that stand with several contents
    losses: list[Loss]
    blockers: list[str]
    notes: list[str]
    digest: str = ""
    receipt: str | None = None


class _Tally:
    """What one pass over the rows finds."""

    def __init__(self, choices: dict[str, Choice], contents: Contents) -> None:
        self.choices, self.contents = choices, contents
        self.left: dict[str, list[Left]] = {}
        self.writers: Counter[str] = Counter()
        self.slots: Counter[str] = Counter()
        self.refused: list[RefusedRow] = []
        self.archives = self.to_send = self.duplicates = self.marks = self.unnamed_marked = self.trimmed = 0
        self.replayed = self.actions = self.actions_to_send = self.expiring = self.undated = 0
        self.seen: set[int] = set()  # hashes of action digests, 64 bits: the ledger keeps equal rows once
        self.twice = 0
        self.conflicts: list[str] = []
        self.extra: Counter[str] = Counter()


def build_plan(
    source: Source,
    policy: Policy,
    *,
    now_ms: int,
    entry: Callable[[ArchiveEntry | ActionEntry], None] = lambda _: None,
) -> Plan:
    """Walk every row once, flat in memory. `entry` receives each row as it would enter the ledger.

    Raises UsageError or RefusedError for a choice that cannot be made.
    """
    with Contents() as contents:
        tally = _Tally(chosen(source, policy.choices), contents)
        stores = [_store_plan(source, store, policy, tally, now_ms, entry) for store in source.stores.values()]
    alone = len(tally.writers) == 1 and not tally.slots
    owner = policy.owner or (next(iter(tally.writers)) if alone else None)
    blockers = _blockers(tally, policy)
    plan = Plan(
        verdict="blocked" if blockers else "ready",
        exit_code=int(ExitCode.REFUSED if blockers else ExitCode.PROVED),
        stores=stores,
        owner=owner,
        owner_stated=policy.owner is not None,
        writers=dict(sorted(tally.writers.items())),
        identities=dict(sorted(tally.slots.items())),
        slots={writer: policy.identities[writer] for writer in sorted(tally.writers) if tally.slots},
        telemetry=str(policy.telemetry),
        replays=policy.replays,
        life_gap_hours=policy.life_gap_hours,
        archives=tally.archives,
        archives_to_send=tally.to_send,
        duplicates=tally.duplicates,
        marks=tally.marks,
        actions=tally.actions,
        actions_to_send=tally.actions_to_send if policy.telemetry.mode is TelemetryMode.ADMIT else 0,
        refused=tally.refused,
        choices=with_left(tally.choices, tally.left),
        losses=_losses(tally, policy, owner),
        blockers=blockers,
        notes=_notes(tally, policy, lives_of(source, policy.life_gap_hours)),
    )
    return msgspec.structs.replace(plan, digest=digest_of(plan))


def digest_of(plan: Plan) -> str:
    """SHA-256 of the plan's canonical JSON without `digest`, `notes` and `receipt`."""
    body: dict[str, Any] = msgspec.to_builtins(plan)
    del body["digest"], body["notes"], body["receipt"]
    return hashlib.sha256(rfc8785.dumps(body)).hexdigest()


def _store_plan(
    source: Source,
    store: SourceStore,
    policy: Policy,
    tally: _Tally,
    now_ms: int,
    entry: Callable[[ArchiveEntry | ActionEntry], None],
) -> StorePlan:
    tables: dict[str, TablePlan] = {}
    for table, take in ((ARCHIVES, _archive), (ACTIONS, _action)):
        running, rows, twins = hashlib.sha256(), 0, Twins()
        if table == ARCHIVES or policy.telemetry.mode is TelemetryMode.ADMIT:
            tally.extra.update(source.extra(store, table))
        for row in source.rows(store, table):
            digest = row.digest
            running.update(bytes.fromhex(digest))
            rows += 1
            entry(take(row, twins.tell(row.key, digest), store, policy, tally, now_ms))
        tables[table] = TablePlan(rows, running.hexdigest())
    return StorePlan(store.id, store.path, tables[ARCHIVES], tables[ACTIONS])


def _archive(row: Row, digest: str, store: SourceStore, policy: Policy, tally: _Tally, _: int) -> ArchiveEntry:
    key, content = key_text(row.key, digest), row.content_digest
    choice = tally.choices.get(key)
    if choice is not None and content != choice.content:
        tally.left.setdefault(key, []).append(Left(store.id, content))
        reason = f"not chosen: store {choice.store} holds the content that is sent"
        return ArchiveEntry(key, content, digest, store.id, refusal=reason, not_chosen=True)
    before = tally.contents.meet(key, content)
    first = not before
    if before and before[0] != content:
        tally.conflicts.append(
            f"archive {key} stands twice with different contents ({before[0][:12]} and {content[:12]}, store {store.id}); "
            f"choose one: --choose {key}=STORE"
        )
    if first:
        tally.archives += 1
    else:
        tally.duplicates += 1
    call = save_call(row)
    if isinstance(call, Refused):
        if first:
            tally.refused.append(RefusedRow(ARCHIVES, key, store.id, call.reason))
        return ArchiveEntry(key, content, digest, store.id, refusal=call.reason)
    slot = policy.slot_of(call.writer)
    if slot is None:
        reason = f"no-credential: [identities] names no slot for the writer {call.writer}"
        if first:
            tally.refused.append(RefusedRow(ARCHIVES, key, store.id, reason))
        return ArchiveEntry(key, content, digest, store.id, refusal=reason)
    if first:
        tally.to_send += 1
        tally.slots.update([slot] if slot else [])
        tally.writers[call.writer] += 1
        tally.marks += call.replays
        tally.unnamed_marked += bool(call.replays and not call.named)
        tally.replayed += row["last_replayed_at"] is not None
        tally.trimmed += call.name_trimmed
    return ArchiveEntry(
        key=key,
        content_digest=content,
        digest=digest,
        store=store.id,
        source_tx_id=call.source_tx_id,
        call_digest=call.digest,
        identity=slot,
        host_facts=_host_facts(row),
        marks_wanted=call.replays if policy.replays is Replays.MARKS else 0,
    )


def _host_facts(row: Row) -> str:
    """What the four operations cannot carry of an archive, as the host has it."""
    kept = ("archived_at", "replay_count", "last_replayed_at")
    values = {name: v if isinstance(v := row[name], int | float) and abs(v) < 2**53 else None for name in kept}
    return json.dumps(values)


def _action(row: Row, digest: str, store: SourceStore, _: Policy, tally: _Tally, now_ms: int) -> ActionEntry:
    key, action = key_text(row.key, digest), project(row)
    refusal = action.reason if isinstance(action, Refused) else ""
    if (known := hash(digest)) in tally.seen:
        tally.twice += 1
        return ActionEntry(key, digest, store.id, refusal=refusal)
    tally.seen.add(known)
    tally.actions += 1
    if isinstance(action, Refused):
        tally.refused.append(RefusedRow(ACTIONS, key, store.id, refusal))
        return ActionEntry(key, digest, store.id, refusal=refusal)
    tally.actions_to_send += 1
    tally.undated += action.timestamp is None
    tally.expiring += action.timestamp is not None and action.timestamp < now_ms - RETENTION_MS
    return ActionEntry(key, digest, store.id)


def _losses(tally: _Tally, policy: Policy, owner: str | None) -> list[Loss]:
    admitted = tally.actions_to_send if policy.telemetry.mode is TelemetryMode.ADMIT else 0
    discarded = tally.actions if policy.telemetry.mode is TelemetryMode.DISCARD else 0
    in_marks = policy.replays is Replays.MARKS
    candidates = [
        _loss("archive_id", tally.to_send, "gets|get a new id from MC; the map from old to new stands in the receipt"),
        _loss(
            "archived_at", tally.to_send, "loses|lose its|their time of archiving: MC stamps the time of the migration"
        ),
        Loss("custodian", tally.to_send, f"will be readable and markable by {_whom(tally, owner)} alone"),
        _loss("last_replayed_at", tally.replayed, "loses|lose the time of its|their last replay"),
        _loss(
            "replay_count",
            0 if in_marks else tally.marks,
            "replay|s stays|stay in the receipt alone; MC counts from 0",
        ),
        _loss(
            "replay_time",
            tally.marks if in_marks else 0,
            "replay|s gets|get the time at which MC counts it|them, not its|their own",
        ),
        _loss(
            "name",
            tally.unnamed_marked if in_marks else 0,
            "unnamed archive|s gets|get its|their new id as a name with the first mark",
        ),
        _loss(
            "not_chosen",
            sum(map(len, tally.left.values())),
            "archive|s stays|stay on the host: the operator chose the other content under its|their id",
        ),
        _loss("name_blanks", tally.trimmed, "name|s loses|lose its|their outer blanks"),
        _loss(
            "telemetry_identity",
            admitted,
            "action|s loses|lose id, agent_id, sequence_id, args, result and reward; a random token keeps the grouping",
        ),
        _loss("telemetry_rows", discarded, "action|s is|are discarded by the operator's decision"),
        *(
            _loss(column, count, "row|s has|have a value in this column, which none of the operations carries")
            for column, count in sorted(tally.extra.items())
        ),
    ]
    return [loss for loss in candidates if loss.count]


def _loss(kind: str, count: int, words: str) -> Loss:
    return Loss(kind, count, fitted(count, words))


def _whom(tally: _Tally, owner: str | None) -> str:
    return owner or ("the identity of each writer's token" if tally.slots else "the token's identity")


def _blockers(tally: _Tally, policy: Policy) -> list[str]:
    blockers = list(tally.conflicts)
    if len(tally.writers) > 1 and policy.owner is None and not policy.identities:
        names = ", ".join(f"{name} ({count})" for name, count in sorted(tally.writers.items()))
        blockers.append(
            f"archives of {len(tally.writers)} writers would all belong to the one identity that saves them: {names}; "
            "name that owner with --owner"
        )
    if policy.telemetry.mode is TelemetryMode.DISCARD and policy.telemetry.count != tally.actions:
        twice = (
            f" ({tally.twice} more {fitted(tally.twice, 'stands|stand')} with equal id and content)"
            if tally.twice
            else ""
        )
        blockers.append(
            f"--telemetry {policy.telemetry} does not name the number of action rows, {tally.actions}{twice}"
        )
    return blockers


def _notes(tally: _Tally, policy: Policy, lives: Lives) -> list[str]:
    notes = []
    if tally.twice:
        notes.append(
            counted(tally.twice, "more action|s stands|stand on the host with equal id and content: each counts once")
        )
    if policy.telemetry.mode is TelemetryMode.ADMIT and tally.expiring:
        notes.append(
            f"{tally.expiring} of {counted(tally.actions_to_send, 'action|s')} "
            f"{fitted(tally.expiring, 'is|are')} older than 14 days: MC's retention will delete {fitted(tally.expiring, 'it|them')}"
        )
    if policy.telemetry.mode is TelemetryMode.ADMIT and tally.undated:
        notes.append(counted(tally.undated, "action|s has|have no timestamp: MC keeps it|them and never reads it|them"))
    if policy.telemetry.mode is TelemetryMode.ADMIT and lives.split:
        notes.append(
            f"{counted(lives.split, 'sequence id|s recurs|recur')} after more than {policy.life_gap_hours:g} hours: "
            "each process life gets a token of its own"
        )
    if policy.telemetry.mode is TelemetryMode.LEAVE and tally.actions:
        notes.append(counted(tally.actions, "action|s is|are left on the host: the cut stays refused"))
    if any(row.table == ARCHIVES for row in tally.refused):
        notes.append(f"a save request takes {BODY_LIMIT:,} bytes at most; refused archives stay on the host")
    return notes

"""Rows as they enter the ledger, and as they are handed out to be carried."""

from __future__ import annotations

import msgspec

from .journal import Change


class ArchiveEntry(msgspec.Struct, frozen=True):
    """An archive row as it enters the ledger; `refusal` is the plan's reason not to send it.

    `not_chosen`: it stays on the host by the operator's word, for another content under its id.
    """

    key: str
    content_digest: str
    digest: str
    store: str
    source_tx_id: str = ""
    call_digest: str = ""
    identity: str = ""
    marks_wanted: int = 0
    host_facts: str = "{}"  # JSON of what MC cannot carry and the receipt keeps
    refusal: str = ""
    not_chosen: bool = False


class ActionEntry(msgspec.Struct, frozen=True):
    key: str
    digest: str
    store: str
    refusal: str = ""


class ArchiveWork(msgspec.Struct, frozen=True):
    """An archive that still has something to be done; `store` is the first of the run's stores that hold it, and
    `digest` the row's digest there."""

    id: int
    key: str
    digest: str
    store: str
    state: str
    identity: str
    archive_id: str | None
    marks_wanted: int
    marks_made: int
    marks_state: str


class ActionWork(msgspec.Struct, frozen=True):
    id: int
    key: str
    digest: str
    store: str


# What an earlier plan refused, or nobody has sent yet, stands as the newest plan says.
_REPLANNED = ", ".join(
    f"{name} = CASE WHEN state = 'pending' OR refused_by = 'plan' AND state = 'refused' OR refused_by = 'choice' "
    f"THEN excluded.{name} ELSE {name} END"
    for name in ("reason", "source_tx_id", "call_digest", "identity", "refused_by", "state")
)
_ORIGIN = (
    "INSERT INTO origins (row_table, row_id, store, digest) SELECT '{0}', id, ?, ? FROM {0} WHERE key = ? AND {1} = ? "
    "ON CONFLICT DO UPDATE SET digest = excluded.digest"
)


def archive_changes(entry: ArchiveEntry) -> list[Change]:
    """Enter an archive row, or what is new about it: more replays, another store, another plan."""
    return [
        Change(
            "INSERT INTO archives (key, content_digest, digest, state, reason, refused_by, source_tx_id, call_digest, "
            "identity, marks_wanted, host_facts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (key, content_digest) DO UPDATE SET digest = excluded.digest, host_facts = excluded.host_facts, "
            f"marks_wanted = max(marks_wanted, excluded.marks_wanted), {_REPLANNED}",
            (
                entry.key,
                entry.content_digest,
                entry.digest,
                "excluded" if entry.not_chosen else "refused" if entry.refusal else "pending",
                entry.refusal,
                "choice" if entry.not_chosen else "plan" if entry.refusal else "",
                entry.source_tx_id,
                entry.call_digest,
                entry.identity,
                entry.marks_wanted,
                entry.host_facts,
            ),
        ),
        Change(
            _ORIGIN.format("archives", "content_digest"),
            (entry.store, entry.digest, entry.key, entry.content_digest),
        ),
    ]


def action_changes(entry: ActionEntry) -> list[Change]:
    return [
        Change(
            "INSERT INTO actions (key, digest, state, reason) VALUES (?, ?, ?, ?) ON CONFLICT (key, digest) DO UPDATE "
            "SET state = excluded.state, reason = excluded.reason WHERE state = 'refused' AND batch IS NULL",
            (entry.key, entry.digest, "refused" if entry.refusal else "pending", entry.refusal),
            None,
        ),
        Change(_ORIGIN.format("actions", "digest"), (entry.store, entry.digest, entry.key, entry.digest)),
    ]

"""The road of one archive: intent, save, id, read-back, marks. Each step is on disk before the next begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from ..contract.archives import compare, save_arguments
from ..contract.rows import ARCHIVES, Row
from ..custody.entries import ArchiveWork
from ..custody.journal import Change
from ..custody.ledger import Ledger, move_archive, set_archive
from ..errors import RefusedError
from ..ingress.operations import Operations
from ..verdicts import Confirmed, Delivered, Mismatch, NotSent, Refused, Unknown
from ..wording import counted
from .progress import Barrier
from .source import Source
from .stop import Stop


class ArchiveRoad:
    """Carries archives for one worker. `carried` holds outcomes that become durable with the next intent."""

    def __init__(
        self, ledger: Ledger, source: Source, operations: Callable[[str], Operations], stop: Stop, barrier: Barrier
    ) -> None:
        self._ledger, self._source, self._operations, self._stop = ledger, source, operations, stop
        self._barrier = barrier
        self._carried: list[Change] = []
        self.sent = 0

    def carry(self, work: ArchiveWork) -> None:
        """Take one archive as far as it goes. Raises CustodyError when the ledger cannot keep up."""
        try:
            row = self._source.fetch(work.store, ARCHIVES, work.key, work.digest)
        except RefusedError as error:  # the host took it back; the other rows are not to suffer for it
            self._carried.append(set_archive(work.id, reason=error.message))
            return
        archive_id = work.archive_id
        if work.state == "pending":
            archive_id = self._save(work, row)
        if archive_id is None:
            return
        if work.state != "confirmed" and not self._confirm(work, row, archive_id):
            return
        self._mark(work, row, archive_id)

    def flush(self) -> None:
        """Make the last outcome durable."""
        if self._carried:
            changes, self._carried = self._carried, []
            self._ledger.commit(*changes)

    def _commit(self, *changes: Change) -> None:
        carried, self._carried = self._carried, []
        self._ledger.commit(*carried, *changes)

    def _save(self, work: ArchiveWork, row: Row) -> str | None:
        operations = self._operations(work.identity)
        self._barrier("before intent")
        self._commit(move_archive(work.id, "intended", intended_at=self._ledger.now()))
        self._barrier("after intent")
        outcome = operations.save(save_arguments(row))
        self._barrier("after answer")
        self.sent += 1
        match outcome:
            case Delivered(result=result):
                archive_id = str(result["archiveId"])
                if self._ledger.knows(archive_id):
                    reason = "MC answered with the id of another row's archive"
                    given_up = self._ledger.now()
                    self._carried.append(move_archive(work.id, "unknown", reason=reason, given_up_at=given_up))
                    return None
                # The reply is the only chance to learn the id: it is on disk before anything else is asked.
                self._commit(move_archive(work.id, "delivered", archive_id=archive_id))
                self._barrier("after record")
                return archive_id
            case Refused(reason=reason, proven=proven):
                by = "server" if proven else "server, unproven"
                self._carried.append(move_archive(work.id, "refused", reason=reason, refused_by=by))
            case NotSent(kind="too-large", reason=reason):
                self._carried.append(move_archive(work.id, "refused", reason=reason, refused_by="server"))
            case NotSent(reason=reason):
                self.sent -= 1
                self._carried.append(move_archive(work.id, "pending", reason=reason))
                self._stop.at_wall(outcome)
            case Unknown(reason=reason):
                given_up = self._ledger.now()
                self._carried.append(move_archive(work.id, "unknown", reason=reason, given_up_at=given_up))
        return None

    def _confirm(self, work: ArchiveWork, row: Row, archive_id: str) -> bool:
        found = self._read(work, archive_id)
        if found is None:
            return False
        if found.result["status"] != "found":
            # Another identity reads not-found too: this is no proof of a difference, and no reason to save again.
            reason = f"MC said saved, and answers this token {found.result['status']}"
            self._carried.append(set_archive(work.id, reason=reason))
            return False
        self._barrier("after read-back")
        comparison = compare(row, found.result, found.reply)
        if isinstance(comparison, Mismatch):
            self._keep_evidence(work, row, found.reply, comparison)
            reason = f"reads back differently at {comparison.path}"
            self._carried.append(move_archive(work.id, "differs", reason=reason))
            return False
        custodian = found.result.get("custodian")
        self._carried.append(
            move_archive(
                work.id,
                "confirmed",
                reason="",
                bytes_equal=int(comparison.bytes_equal),
                custodian=custodian if isinstance(custodian, str) else None,
            )
        )
        return True

    def _mark(self, work: ArchiveWork, row: Row, archive_id: str) -> None:
        made = work.marks_made
        if work.marks_wanted <= made:
            return
        if (before := self._read(work, archive_id)) is None:
            return
        count = before.result.get("replayCount")
        if count != made:
            self._mark_unknown(
                work,
                made,
                f"MC counts {counted(count, 'replay|s')} where {counted(made, 'mark|s was|were')} made",
            )
            return
        while made < work.marks_wanted:
            self._commit(set_archive(work.id, marks_made=made, marks_state="intended"))
            self._barrier("before mark")
            outcome = self._operations(work.identity).mark(archive_id)
            self._barrier("after mark")
            self.sent += 1
            match outcome:
                case Delivered(result=result):
                    if result.get("replayCount", made + 1) != made + 1:
                        self._mark_unknown(work, made + 1, "somebody else replays this archive while it is marked")
                        return
                    made += 1
                case NotSent(reason=reason):
                    self.sent -= 1
                    self._carried.append(set_archive(work.id, marks_state="idle", reason=reason))
                    self._stop.at_wall(outcome)
                    return
                case Refused(reason=reason) | Unknown(reason=reason):
                    self._mark_unknown(work, made, f"mark {made + 1} of {work.marks_wanted}: {reason}")
                    return
        after = self._read(work, archive_id)
        if after is None:
            # Not durable as made yet: a later run must look again, and only evidence says how far it came.
            self._mark_unknown(work, made - 1, "the archive could not be read after its marks")
            return
        comparison = compare(row, after.result, after.reply, named_by_mark=archive_id)
        if not isinstance(comparison, Confirmed) or after.result.get("replayCount") != made:
            self._mark_unknown(work, made, "the archive reads back differently after its marks")
            return
        self._carried.append(set_archive(work.id, marks_made=made, marks_state="idle", reason=""))

    def _mark_unknown(self, work: ArchiveWork, made: int, reason: str) -> None:
        given_up = self._ledger.now()
        self._carried.append(
            set_archive(work.id, marks_made=made, marks_state="unknown", reason=reason, given_up_at=given_up)
        )

    def _read(self, work: ArchiveWork, archive_id: str) -> Delivered | None:
        """A read that answers, or None: the row stays where it is and a later run reads again."""
        for _ in range(2):
            outcome = self._operations(work.identity).get(archive_id)
            if isinstance(outcome, Delivered) and outcome.result["status"] != "unavailable":
                return outcome
            if isinstance(outcome, NotSent):
                break
        if isinstance(outcome, NotSent):
            self._stop.at_wall(outcome)
        reason = "unavailable" if isinstance(outcome, Delivered) else outcome.reason
        self._carried.append(set_archive(work.id, reason=f"not read back yet: {reason}"))
        return None

    def _keep_evidence(self, work: ArchiveWork, row: Row, reply: bytes, mismatch: Mismatch) -> None:
        """Both copies of a difference, for a person to look at. They hold ops: the folder is as private as custody."""
        folder: Path = self._ledger.directory / "evidence" / f"archive-{work.id}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "source-ops.json").write_bytes(bytes(row["ops"]))  # type: ignore[arg-type]
        (folder / "reply.json").write_bytes(reply)
        (folder / "difference.json").write_bytes(msgspec.json.encode(mismatch))

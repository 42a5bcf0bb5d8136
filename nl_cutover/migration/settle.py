"""Unknown outcomes, decided by evidence or by the operator; each decision goes into the ledger and the receipt.

archive   as many unclaimed nodes as rows with that content, or fewer   adopt, one each; the rest is sent again
          more of them than rows                                        left unknown: nobody can tell which
batch     rows found under its tokens                                   admitted
          rows not found                                                sent again
mark      MC's file counts one more than was made                       made
          it counts what was made                                       not made
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from ..contract import javascript as js
from ..contract.rows import ACTIONS
from ..contract.telemetry import Action, project
from ..custody.journal import Change
from ..custody.ledger import ActionWork, Ledger, move_action, move_archive, set_archive
from ..errors import RefusedError, UsageError
from .evidence import Evidence, StoredArchive, action_digest
from .lives import Lives
from .source import Source
from .telemetry import Tokens

_CLOCKS_MS = 5_000  # by how much two clocks may disagree beyond the offset that was measured
_UNKNOWN = "state IN ('unknown', 'mixed')"
_TOO_EARLY = "tried too recently; settle again later"
QUIET_S = 15.0  # a server that waits for a lock may still commit this long after the call was given up


class Decision(msgspec.Struct, frozen=True):
    """`what`: archive | batch | mark. `decision`: adopted | resend | excluded | admitted | made | not-made | undecided."""

    what: str
    key: str
    decision: str
    by: str
    detail: str = ""


class Settler:
    """Decides the unknown rows of a ledger. `offset_ms` is MC's clock minus ours."""

    def __init__(self, ledger: Ledger, *, offset_ms: float = 0.0, quiet_ms: float = QUIET_S * 1000) -> None:
        self._ledger, self._offset, self._quiet = ledger, offset_ms, quiet_ms
        self.decisions: list[Decision] = []

    def by_operator(self, words: Iterable[str]) -> None:
        """`KEY=resend|exclude`, `KEY=saved:ARCHIVE`, `batch:N=resend|admitted`, `mark:KEY=made|not-made`.

        Raises UsageError for words that are none of these, RefusedError for a row that is not unknown.
        """
        for word in words:
            name, equals, choice = word.rpartition("=")
            if not equals:
                raise UsageError(f"--row takes ROW=DECISION, not {word!r}", "for example: --row ID=resend")
            if name.startswith("batch:") and choice in ("resend", "admitted"):
                self._batch_by_operator(name.removeprefix("batch:"), choice)
            elif name.startswith("mark:") and choice in ("made", "not-made"):
                self._mark(name.removeprefix("mark:"), choice == "made", "operator", "")
            elif choice == "exclude":
                self._exclude(name)
            elif not name.startswith(("batch:", "mark:")) and (choice == "resend" or choice.startswith("saved:")):
                self._archive_by_operator(name, choice.removeprefix("saved:") if ":" in choice else None)
            else:
                raise UsageError(
                    f"--row {word!r} is no decision", "resend, exclude, saved:ARCHIVE, admitted, made or not-made"
                )

    def by_evidence(self, evidence: Evidence, source: Source, lives: Lives) -> None:
        """Decide everything that the evidence decides. Rows tried too recently stay as they are."""
        nodes = self._nodes(evidence)
        self._archives(evidence, nodes)
        self._marks(evidence, nodes)
        self._batches(evidence, source, lives)

    def _nodes(self, evidence: Evidence) -> list[StoredArchive]:
        asked = "SELECT DISTINCT source_tx_id FROM archives WHERE state = 'unknown' OR marks_state = 'unknown'"
        wanted = [name for (name,) in self._ledger.read(asked)]
        return evidence.archives(wanted) if wanted else []

    def _archives(self, evidence: Evidence, nodes: list[StoredArchive]) -> None:
        claimed = {i for (i,) in self._ledger.read("SELECT archive_id FROM archives WHERE archive_id IS NOT NULL")}
        groups: dict[str, list[tuple[int, str, int]]] = defaultdict(list)
        for row_id, key, digest, at in self._ledger.read(
            "SELECT id, key, call_digest, intended_at FROM archives WHERE state = 'unknown' ORDER BY id"
        ):
            groups[digest].append((row_id, key, at))
        for digest, rows in groups.items():
            if self._too_early(max(at for _, _, at in rows)):
                self._undecided(
                    "archive", [key for _, key, _ in rows], evidence, "tried too recently; settle again later"
                )
                continue
            earliest = min(at for _, _, at in rows) + self._offset - _CLOCKS_MS
            found = [n for n in nodes if n.digest == digest and n.archive_id not in claimed and n.stored_at >= earliest]
            if len(found) > len(rows):
                ids = ", ".join(node.archive_id for node in found)
                self._undecided("archive", [key for _, key, _ in rows], evidence, f"MC holds more than one: {ids}")
                continue
            found.sort(key=lambda node: node.stored_at)
            for index, (row_id, key, _) in enumerate(rows):
                if index < len(found):
                    node = found[index]
                    change = move_archive(
                        row_id, "delivered", archive_id=node.archive_id, delivered_at=self._ledger.now(), reason=""
                    )
                    self._decide(Decision("archive", key, "adopted", evidence.words, node.archive_id), change)
                else:
                    change = move_archive(row_id, "pending", reason="")
                    self._decide(Decision("archive", key, "resend", evidence.words, "MC does not hold it"), change)

    def _marks(self, evidence: Evidence, nodes: list[StoredArchive]) -> None:
        counts = {node.archive_id: node.replays for node in nodes}
        for key, archive_id, made in self._ledger.read(
            "SELECT key, archive_id, marks_made FROM archives WHERE marks_state = 'unknown' ORDER BY id"
        ):
            count = counts.get(archive_id)
            if count in (made, made + 1):
                self._mark(key, count == made + 1, evidence.words, f"MC's file counts {count}")
            else:
                self._undecided("mark", [key], evidence, f"MC's file counts {count}, {made} marks were made")

    def _batches(self, evidence: Evidence, source: Source, lives: Lives) -> None:
        tokens = Tokens(self._ledger, lives, new_token=lambda: "")
        unknown = self._ledger.read(
            "SELECT id, intended_at FROM batches WHERE state IN ('unknown', 'mixed') ORDER BY id"
        )
        rows = {number: self._rows(number, source) for number, _ in unknown}
        sent = {t for members in rows.values() for work, action in members if (t := tokens.known(work, action))}
        if not sent:
            return
        stored = evidence.actions(sent)
        for work, action in self._projected("state = 'admitted'", (), source):
            token = tokens.known(work, action)
            if token in sent:
                stored[_digest(action, token)] -= 1
        for number, at in unknown:
            if self._too_early(at):
                self._undecided("batch", [str(number)], evidence, _TOO_EARLY)
                continue
            changes, admitted = [], 0
            for work, action in rows[number]:
                digest = _digest(action, tokens.known(work, action) or "")
                if stored[digest] > 0:
                    stored[digest] -= 1
                    admitted += 1
                    changes.append(move_action(work.id, "admitted", reason=""))
                else:
                    changes.append(move_action(work.id, "pending", reason="", batch=None))
            decision = "admitted" if admitted == len(rows[number]) else "resend"
            detail = f"{admitted} of {len(rows[number])} rows found"
            state = "admitted" if admitted else "not-sent"
            changes.append(Change("UPDATE batches SET state = ?, admitted = ? WHERE id = ?", (state, admitted, number)))
            self._decide(Decision("batch", str(number), decision, evidence.words, detail), *changes)

    def _rows(self, number: int, source: Source) -> list[tuple[ActionWork, Action]]:
        return list(self._projected("state = 'unknown' AND batch = ?", (number,), source))

    def _projected(
        self, condition: str, parameters: tuple[int, ...], source: Source
    ) -> Iterable[tuple[ActionWork, Action]]:
        for row in self._ledger.read(
            "SELECT id, key, digest, (SELECT min(store) FROM origins o WHERE o.row_table = 'actions' "
            f"AND o.row_id = actions.id) FROM actions WHERE {condition} ORDER BY id",
            parameters,
        ):
            work = ActionWork(*row)
            action = project(source.fetch(work.store, ACTIONS, work.key, work.digest))
            if isinstance(action, Action):
                yield work, action

    def _batch_by_operator(self, number: str, choice: str) -> None:
        known = self._ledger.read(f"SELECT 1 FROM batches WHERE id = ? AND {_UNKNOWN}", (number,))
        if not known:
            raise RefusedError(f"batch {number} has no unknown outcome", "nl-cutover status lists those that have")
        to, batch, state = ("admitted", "batch", choice) if choice == "admitted" else ("pending", "NULL", "not-sent")
        self._decide(
            Decision("batch", number, choice, "operator"),
            Change(
                f"UPDATE actions SET state = '{to}', reason = '', batch = {batch} "
                "WHERE batch = ? AND state = 'unknown'",
                (number,),
                None,
            ),
            Change("UPDATE batches SET state = ? WHERE id = ?", (state, number)),
        )

    def _archive_by_operator(self, key: str, archive_id: str | None) -> None:
        rows = self._ledger.read("SELECT id FROM archives WHERE key = ? AND state = 'unknown'", (key,))
        if len(rows) != 1:
            raise RefusedError(f"archive {key} has no unknown outcome", "nl-cutover status lists those that have")
        if archive_id is None:
            change = move_archive(rows[0][0], "pending", reason="")
            self._decide(Decision("archive", key, "resend", "operator"), change)
            return
        if self._ledger.read("SELECT 1 FROM archives WHERE archive_id = ?", (archive_id,)):
            raise RefusedError(f"{archive_id} is another row's archive already", "look at the id map in the receipt")
        change = move_archive(
            rows[0][0], "delivered", archive_id=archive_id, delivered_at=self._ledger.now(), reason=""
        )
        self._decide(Decision("archive", key, "adopted", "operator", archive_id), change)

    def _exclude(self, key: str) -> None:
        for table, move in (("archives", move_archive), ("actions", move_action)):
            for row_id, reason in self._ledger.read(
                f"SELECT id, reason FROM {table} WHERE key = ? AND state = 'refused'", (key,)
            ):
                self._decide(Decision(table[:-1], key, "excluded", "operator", reason), move(row_id, "excluded"))
                return
        raise RefusedError(f"{key} is not a refused row", "nl-cutover status lists those that are")

    def _mark(self, key: str, landed: bool, by: str, detail: str) -> None:
        rows = self._ledger.read(
            "SELECT id, marks_made FROM archives WHERE key = ? AND marks_state = 'unknown'", (key,)
        )
        if len(rows) != 1:
            raise RefusedError(f"the marks of {key} are not unknown", "nl-cutover status lists those that are")
        change = set_archive(rows[0][0], marks_made=rows[0][1] + landed, marks_state="idle", reason="")
        self._decide(Decision("mark", key, "made" if landed else "not-made", by, detail), change)

    def _too_early(self, intended_at: int) -> bool:
        return self._ledger.now() - intended_at < self._quiet

    def _undecided(self, what: str, keys: Iterable[str], evidence: Evidence, why: str) -> None:
        self.decisions += [Decision(what, key, "undecided", evidence.words, why) for key in keys]

    def _decide(self, decision: Decision, *changes: Change) -> None:
        """The decision and its consequence become durable together."""
        self._ledger.commit(
            *changes,
            Change(
                "INSERT INTO settlements (at, row_table, key, decision, by, detail) VALUES (?, ?, ?, ?, ?, ?)",
                (self._ledger.now(), decision.what, decision.key, decision.decision, decision.by, decision.detail),
            ),
        )
        self.decisions.append(decision)


def _digest(action: Action, token: str) -> str:
    fields = js.parse(action.encode(token))
    assert isinstance(fields, dict)
    return action_digest(fields)

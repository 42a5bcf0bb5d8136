"""Unknown outcomes, decided by evidence or by the operator; each decision goes into the ledger and the receipt.

What is not found is sent again only if the evidence is known to be the run's own graph: it is tied to the ingress, or
holds an archive that MC gave back to this run, or a random token of its telemetry. Else the rest is left unknown.

archive   as many unclaimed nodes as rows with that content, or fewer   adopt, one each; the rest is sent again
          more of them than rows                                        left unknown: nobody can tell which
batch     rows found under its tokens                                   admitted
          rows not found                                                sent again
mark      MC's file counts one more than was made                       made
          it counts what was made                                       not made
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec

from ..custody.journal import Change
from ..custody.ledger import Ledger, move_action, move_archive, move_rows, set_archive
from ..errors import RefusedError, UsageError
from ..wording import counted
from .evidence import Evidence, StoredArchive

_CLOCKS_MS = 60_000  # by how much two clocks may disagree without anybody noticing
_UNKNOWN = "state = 'unknown'"
_UNKNOWN_ARCHIVES = "state = 'unknown' OR marks_state = 'unknown'"
_TOO_OLD = "the evidence is older than the call; take a newer one"
_TOO_EARLY = "tried too recently; settle again later"
_UNTIED = (
    "it holds nothing by which it is known as the graph of this run: say --row, or --evidence container with a --url "
    "whose port that container publishes; once one row of this run is read back, it is known by that"
)
QUIET_S = 15.0  # a server that waits for a lock may still commit this long after the call was given up


_Row = tuple[int, str, int, int]  # id, key, when it was intended, when its call was given up


class Decision(msgspec.Struct, frozen=True):
    """`what`: archive | batch | mark. `decision`: adopted | resend | excluded | admitted | made | not-made | undecided."""

    what: str
    key: str
    decision: str
    by: str
    detail: str = ""


class Settler:
    """Decides the unknown rows of a ledger. `quiet_ms`: how long after a call was given up its absence is believed."""

    def __init__(self, ledger: Ledger, *, quiet_ms: float = QUIET_S * 1000) -> None:
        self._ledger, self._quiet = ledger, quiet_ms
        self.decisions: list[Decision] = []

    def by_operator(self, words: Sequence[str]) -> None:
        """`KEY=resend|exclude`, `KEY=saved:ARCHIVE`, `batch:N=resend|admitted|exclude`, `mark:KEY=made|not-made`.

        Raises UsageError for words that are none of these, before anything is decided; RefusedError for a row that has
        no unknown outcome.
        """
        steps = []
        for word in words:
            name, equals, choice = word.rpartition("=")
            kind, _, rest = name.partition(":")
            if not equals or not name:
                raise UsageError(f"--row takes ROW=DECISION, not {word!r}", "for example: --row ID=resend")
            if kind == "batch" and choice in ("resend", "admitted"):
                steps.append(partial(self._batch_by_operator, rest, choice))
            elif kind == "batch" and choice == "exclude":
                steps.append(partial(self._exclude_batch, rest))
            elif kind == "mark" and choice in ("made", "not-made"):
                steps.append(partial(self._mark, rest, choice == "made", "operator", ""))
            elif kind not in ("batch", "mark") and choice == "exclude":
                steps.append(partial(self._exclude, name))
            elif kind not in ("batch", "mark") and (
                choice == "resend" or (choice.startswith("saved:") and choice != "saved:")
            ):
                archive_id = choice.removeprefix("saved:") if choice != "resend" else None
                steps.append(partial(self._archive_by_operator, name, archive_id))
            else:
                known = "resend, exclude, saved:ARCHIVE, admitted, made or not-made"
                raise UsageError(f"--row {word!r} is no decision", known)
        for step in steps:
            step()

    def by_evidence(self, evidence: Evidence) -> None:
        """Decide everything that the evidence decides. Rows tried too recently stay as they are.

        Raises RefusedError when the evidence lacks an archive that MC is known to hold: it is of another plane or time.
        """
        if not self._ledger.read(f"SELECT 1 FROM archives WHERE {_UNKNOWN_ARCHIVES} LIMIT 1") and not self._batches():
            return
        confirmed = {
            i
            for (i,) in self._ledger.read(
                "SELECT archive_id FROM archives WHERE archive_id IS NOT NULL AND state = 'confirmed'"
            )
        }
        missing = set(confirmed)
        wanted = {d for (d,) in self._ledger.read(f"SELECT call_digest FROM archives WHERE {_UNKNOWN}")}
        marked = {i for (i,) in self._ledger.read("SELECT archive_id FROM archives WHERE marks_state = 'unknown'")}
        nodes = []
        for node in evidence.archives():
            missing.discard(node.archive_id)
            if node.digest in wanted or node.archive_id in marked:
                nodes.append(node)
        tied = evidence.tied or bool(confirmed)
        if missing:
            raise RefusedError(
                f"the {evidence.words} lacks {counted(len(missing), 'archive|s that was|were')} read back from MC, "
                f"{min(missing)} among them",
                "it is another plane's graph, or an older copy: what it does not hold proves nothing",
            )
        stored = self._stored(evidence, everything=not tied)
        tied = tied or bool(stored)
        self._archives(evidence, nodes, tied=tied)
        self._marks(evidence, nodes)
        self._settle_batches(evidence, stored, tied=tied)

    def _archives(self, evidence: Evidence, nodes: list[StoredArchive], *, tied: bool) -> None:
        claimed = {i for (i,) in self._ledger.read("SELECT archive_id FROM archives WHERE archive_id IS NOT NULL")}
        groups: dict[str, list[_Row]] = defaultdict(list)
        for row_id, key, digest, at, given_up in self._ledger.read(
            "SELECT id, key, call_digest, intended_at, given_up_at FROM archives WHERE state = 'unknown' ORDER BY id"
        ):
            groups[digest].append((row_id, key, at, given_up))
        for digest, rows in groups.items():
            keys = [key for _, key, _, _ in rows]
            newest, oldest = max(given_up for *_, given_up in rows), min(at for _, _, at, _ in rows)
            found = [n for n in nodes if n.digest == digest and n.archive_id not in claimed]
            early = [n for n in found if n.stored_at < oldest - _CLOCKS_MS]
            if self._too_early(newest):
                self._undecided("archive", keys, evidence, _TOO_EARLY)
            elif early:
                # A clock that was set may have stamped our own node so: never a reason to send again.
                why = f"an equal archive is stamped before the call: {early[0].archive_id}"
                self._undecided("archive", keys, evidence, why)
            elif len(found) > len(rows):
                self._undecided(
                    "archive", keys, evidence, f"MC holds more than one: {', '.join(n.archive_id for n in found)}"
                )
            elif len(found) < len(rows) and evidence.as_of < newest:
                self._undecided("archive", keys, evidence, _TOO_OLD)
            else:
                self._adopt(evidence, rows, sorted(found, key=lambda node: node.stored_at), tied=tied)

    def _adopt(self, evidence: Evidence, rows: list[_Row], found: list[StoredArchive], *, tied: bool) -> None:
        for index, (row_id, key, _, _) in enumerate(rows):
            if index < len(found):
                new = found[index].archive_id
                change = move_archive(row_id, "delivered", archive_id=new, reason="")
                self._decide(Decision("archive", key, "adopted", evidence.words, new), change)
            elif not tied:
                self._undecided("archive", [key], evidence, _UNTIED)
            else:
                change = move_archive(row_id, "pending", reason="")
                self._decide(Decision("archive", key, "resend", evidence.words, "MC does not hold it"), change)

    def _marks(self, evidence: Evidence, nodes: list[StoredArchive]) -> None:
        counts = {node.archive_id: node.replays for node in nodes}
        for key, archive_id, made, at in self._ledger.read(
            "SELECT key, archive_id, marks_made, coalesce(given_up_at, 0) FROM archives WHERE marks_state = 'unknown' ORDER BY id"
        ):
            count = counts.get(archive_id)
            if self._too_early(at) or evidence.as_of < at:
                self._undecided("mark", [key], evidence, _TOO_EARLY if self._too_early(at) else _TOO_OLD)
            elif count in (made, made + 1):
                self._mark(key, count == made + 1, evidence.words, f"MC's file counts {count}")
            else:
                self._undecided(
                    "mark", [key], evidence, f"MC's file counts {count}, {counted(made, 'mark|s was|were')} made"
                )

    def _batches(self) -> list[tuple[int, str, int]]:
        asked = "SELECT id, state, coalesce(given_up_at, intended_at) FROM batches WHERE state IN ('unknown', 'mixed') ORDER BY id"
        return [(number, state, at) for number, state, at in self._ledger.read(asked)]

    def _tokens(self, state: str) -> list[tuple[str, str]]:
        asked = "SELECT token, sent_digest FROM actions WHERE state = ? AND token IS NOT NULL"
        return [(token, digest) for token, digest in self._ledger.read(asked, (state,))]

    def _stored(self, evidence: Evidence, *, everything: bool) -> Counter[str]:
        """What the evidence holds under the tokens of unknown rows; `everything`: of admitted ones too."""
        tokens = {token for token, _ in self._tokens("unknown") + (self._tokens("admitted") if everything else [])}
        return evidence.actions(tokens) if tokens else Counter()

    def _settle_batches(self, evidence: Evidence, stored: Counter[str], *, tied: bool) -> None:
        for _, digest in self._tokens("admitted"):
            stored[digest] -= 1
        for number, state, at in self._batches():
            if self._too_early(at) or evidence.as_of < at:
                self._undecided("batch", [str(number)], evidence, _TOO_EARLY if self._too_early(at) else _TOO_OLD)
                continue
            rows = self._ledger.read(
                "SELECT id, sent_digest FROM actions WHERE batch = ? AND state = 'unknown' ORDER BY id", (number,)
            )
            found = [row_id for row_id, digest in rows if self._take(stored, digest)]
            rest = [row_id for row_id, _ in rows if row_id not in set(found)]
            if rest and not tied:
                self._undecided("batch", [str(number)], evidence, _UNTIED)
                continue
            changes = [move_action(row_id, "admitted", reason="") for row_id in found]
            if state == "mixed":  # MC itself said that it refused some: these
                changes += [move_action(row_id, "refused", reason="MC refused it") for row_id in rest]
            else:
                changes += [move_action(row_id, "pending", reason="", batch=None) for row_id in rest]
            changes.append(
                move_rows(
                    "batches",
                    "admitted" if found else "not-sent",
                    "id = ?",
                    (len(found), number),
                    also="admitted = ?, proven = 1",
                    rows=1,
                )
            )
            decision = "admitted" if not rest else "refused" if state == "mixed" else "resend"
            detail = f"{len(found)} of {counted(len(rows), 'row|s')} found"
            self._decide(Decision("batch", str(number), decision, evidence.words, detail), *changes)

    @staticmethod
    def _take(stored: Counter[str], digest: str) -> bool:
        if stored[digest] <= 0:
            return False
        stored[digest] -= 1
        return True

    def _batch_by_operator(self, number: str, choice: str) -> None:
        if not self._ledger.read("SELECT 1 FROM batches WHERE id = ? AND state = 'unknown'", (number,)):
            raise RefusedError(f"batch {number} has no unknown outcome", "nl-cutover status lists those that have")
        to, batch, state = ("admitted", "batch", choice) if choice == "admitted" else ("pending", "NULL", "not-sent")
        self._decide(
            Decision("batch", number, choice, "operator"),
            move_rows(
                "actions", to, "batch = ? AND state = 'unknown'", (number,), also=f"reason = '', batch = {batch}"
            ),
            move_rows("batches", state, "id = ?", (number,), rows=1),
        )

    def _archive_by_operator(self, key: str, archive_id: str | None) -> None:
        states = (
            "state IN ('unknown', 'refused') OR state = 'delivered' AND reason <> ''"
            if archive_id is None
            else _UNKNOWN
        )
        rows = self._ledger.read(
            f"SELECT id FROM archives WHERE key = ? AND ({states}) AND refused_by <> 'plan'", (key,)
        )
        if len(rows) != 1:
            raise RefusedError(f"archive {key} has no outcome to decide", "nl-cutover status lists those that have")
        if archive_id is None:
            change = move_archive(rows[0][0], "pending", reason="", archive_id=None)
            self._decide(Decision("archive", key, "resend", "operator"), change)
            return
        if self._ledger.read("SELECT 1 FROM archives WHERE archive_id = ?", (archive_id,)):
            raise RefusedError(f"{archive_id} is another row's archive already", "look at the id map in the receipt")
        change = move_archive(rows[0][0], "delivered", archive_id=archive_id, reason="")
        self._decide(Decision("archive", key, "adopted", "operator", archive_id), change)

    def _exclude(self, key: str) -> None:
        for table, move in (("archives", move_archive), ("actions", move_action)):
            for row_id, reason in self._ledger.read(
                f"SELECT id, reason FROM {table} WHERE key = ? AND (state = 'refused' OR state = 'delivered' AND reason <> '')",
                (key,),
            ):
                self._decide(Decision(table[:-1], key, "excluded", "operator", reason), move(row_id, "excluded"))
                return
        raise RefusedError(f"{key} is not a refused row", "nl-cutover status lists those that are")

    def _exclude_batch(self, number: str) -> None:
        """The rows of a batch that MC refused as one stay on the host."""
        found = self._ledger.read(
            "SELECT id, key, reason FROM actions WHERE batch = ? AND state = 'refused'", (number,)
        )
        if not found:
            raise RefusedError(f"batch {number} holds no refused row", "nl-cutover status lists those that do")
        for row_id, key, reason in found:
            self._decide(Decision("action", key, "excluded", "operator", reason), move_action(row_id, "excluded"))

    def _mark(self, key: str, landed: bool, by: str, detail: str) -> None:
        asked = "SELECT id, marks_made FROM archives WHERE key = ? AND marks_state = 'unknown'"
        rows = self._ledger.read(asked, (key,))
        if len(rows) != 1:
            raise RefusedError(f"the marks of {key} are not unknown", "nl-cutover status lists those that are")
        change = set_archive(rows[0][0], marks_made=rows[0][1] + landed, marks_state="idle", reason="")
        self._decide(Decision("mark", key, "made" if landed else "not-made", by, detail), change)

    def _too_early(self, at: int) -> bool:
        return self._ledger.now() - at < self._quiet

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

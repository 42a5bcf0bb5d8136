"""A Memory Core in memory, in process, whose fate for each writing call is told beforehand. It is its own evidence."""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Collection

import httpx

from nl_cutover.contract import javascript as js
from nl_cutover.contract.archives import COMPARED
from nl_cutover.contract.telemetry import action_digest
from nl_cutover.migration.evidence import StoredArchive
from tests.ingress.fake import Scripted, event, message, sse, tool_result

WRITING = {"save_nl_transaction": "save", "mark_nl_transaction_replayed": "mark", "admit_nl_actions": "admit"}


class Killed(BaseException):
    """The process of the client ends here."""


def _lose(error: type[httpx.TransportError]) -> Callable[[object], httpx.Response]:
    def lose(_: object) -> httpx.Response:
        raise error("lost")

    return lose


def _kill(_: object) -> httpx.Response:
    raise Killed


def _misnumber(_: object) -> httpx.Response:
    return sse(event(message(987654, tool_result({"saved": True, "updated": True, "archiveId": "of another"}))))


def _error(body: dict) -> httpx.Response:
    return sse(
        event(
            message(
                body["id"], {"content": [{"type": "text", "text": "Cannot execute it: not available"}], "isError": True}
            )
        )
    )


# Executed, and then this becomes of the answer.
EXECUTED: dict[str, Callable[[httpx.Response], httpx.Response]] = {
    "answered": lambda answer: answer,
    "lost": _lose(httpx.ReadError),
    "late": _lose(httpx.ReadTimeout),
    "cut": _lose(httpx.RemoteProtocolError),
    "gateway": lambda _: httpx.Response(502),
    "misnumbered": _misnumber,
    "killed after": _kill,
}
# Not executed, and this is the answer.
NOT_EXECUTED: dict[str, Callable[[dict], httpx.Response]] = {
    "refused": _error,
    "too large": lambda _: httpx.Response(413),
    "unreachable": _lose(httpx.ConnectError),
    "credentials": lambda _: httpx.Response(401),
    "busy": lambda _: httpx.Response(429, headers={"retry-after": "999"}),
    "swallowed": _lose(httpx.ReadError),
    "gateway before": lambda _: httpx.Response(503),
    "killed before": _kill,
}
LATE = "travelling"  # executed when the test lets it arrive, long after the client gave it up
HALF = "half"  # of a batch; a mark in memory alone; nothing of a save
FATES = (*EXECUTED, *NOT_EXECUTED, LATE, HALF)
WALLS = frozenset({"unreachable", "credentials", "busy"})
IN_DOUBT = frozenset(FATES) - WALLS - {"answered", "refused", "too large", HALF}


class FakeCore(Scripted):
    """`fates` holds those of the next writing calls, first come first served; "answered" where there is none.

    `meet` is told the tool and the fate of each before anything comes of it.

    A mark that meets a locked database is counted in memory and not on disk, as by the real server.
    """

    words = "the fake's own memory"
    tied = True

    def __init__(self, clock: Callable[[], int], meet: Callable[[str, str], None]) -> None:
        super().__init__(self._answer)
        self._clock, self._meet = clock, meet
        self.fates: list[str] = []
        self.saved: dict[str, dict] = {}
        self.on_disk: Counter[str] = Counter()
        self.half_marked: set[str] = set()
        self.admitted: list[dict] = []
        self._travelling: list[tuple[str, dict]] = []

    def arrive(self) -> None:
        """What was still on its way is executed now."""
        for name, arguments in self._travelling:
            getattr(self, f"_{WRITING[name]}")(arguments, False)
        self._travelling.clear()

    # the server

    def _answer(self, request: httpx.Request, body: dict) -> httpx.Response:
        name, arguments = body["params"]["name"], body["params"]["arguments"]
        if name not in WRITING:
            return self._say(body, self._found(arguments["archiveId"]))
        fate = self.fates.pop(0) if self.fates else "answered"
        self._meet(WRITING[name], fate)
        if fate in NOT_EXECUTED:
            return NOT_EXECUTED[fate](body)
        if fate == LATE:
            self._travelling.append((name, arguments))
            raise httpx.ReadTimeout("late")
        value = getattr(self, f"_{WRITING[name]}")(arguments, fate == HALF)
        return EXECUTED["answered" if fate == HALF else fate](self._say(body, value))

    def _say(self, body: dict, value: dict) -> httpx.Response:
        return sse(event(message(body["id"], tool_result(value))))

    def _save(self, arguments: dict, half: bool) -> dict:
        if half:
            return {"saved": False, "reason": "archive-store-unavailable: database is locked"}
        archive_id, transaction = str(uuid.uuid4()), arguments["transaction"]
        self.saved[archive_id] = {
            "archiveId": archive_id,
            "name": arguments["name"],
            "sourceTxId": transaction["txId"],
            "appSessionId": arguments["appSessionId"],
            "replayCount": 0,
            "storedAt": self._clock(),
        } | {name: transaction[name] for name in ("originWriter", "committedAt", "ops")}
        return {"saved": True, "archiveId": archive_id}

    def _mark(self, arguments: dict, half: bool) -> dict:
        archive = self.saved[arguments["archiveId"]]
        archive["replayCount"] += 1
        if half:
            self.half_marked.add(archive["archiveId"])
            return {"updated": False, "status": "unavailable", "reason": "database is locked"}
        self.on_disk[archive["archiveId"]] = archive["replayCount"]
        return {"updated": True, "replayCount": archive["replayCount"]}

    def _admit(self, arguments: dict, half: bool) -> dict:
        actions = arguments["actions"]
        taken = actions[: len(actions) // 2] if half else actions
        self.admitted += taken
        return {"admitted": len(taken), "refused": len(actions) - len(taken)}

    def _found(self, archive_id: str) -> dict:
        found = self.saved.get(archive_id)
        return {"status": "not-found"} if found is None else {"status": "found", **found}

    # the evidence

    @property
    def as_of(self) -> float:
        return float("inf")

    def archives(self) -> list[StoredArchive]:
        return [
            StoredArchive(
                archive_id=archive_id,
                source_tx_id=archive["sourceTxId"],
                digest=js.digest(js.parse(json.dumps({name: archive[name] for name in COMPARED}))),
                stored_at=archive["storedAt"],
                replays=self.on_disk[archive_id],
            )
            for archive_id, archive in self.saved.items()
        ]

    def actions(self, tokens: Collection[str]) -> Counter[str]:
        return Counter(
            action_digest(js.parse(json.dumps(action))) for action in self.admitted if action["sequenceId"] in tokens
        )

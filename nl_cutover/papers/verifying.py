"""Receipts checked offline, by their bytes alone: no store, no ledger, no Memory Core.

A receipt is bound by the one that follows it, so nothing binds the last one but a signature or somebody who knows its
SHA-256. The check says so instead of keeping silent.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from ..custody import receipts
from ..custody.signatures import signature_path
from ..errors import CustodyError, DifferenceError
from ..verdicts import ExitCode
from .kinds import Kinds, MigrateReceipt
from .sums import contradictions

SCHEMA = "nl-cutover/receipt-check/1"

SignerOf = Callable[[Path, bytes], str | None]  # the receipt's path and bytes -> who signed them


class CheckedReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """One file. Everything but `file` and `problems` is None where it could not be read."""

    file: str
    number: int | None = None
    kind: str | None = None
    host: str | None = None
    run: str | None = None
    at: str | None = None
    says: str | None = None
    sha256: str | None = None
    signer: str | None = None
    problems: list[str] = []


class ReceiptCheck(msgspec.Struct, frozen=True, kw_only=True):
    """`nl-cutover/receipt-check/1`. `verdict`: intact | broken | unreadable | unsigned. It judges the paper, not the
    run: `says` of each receipt has the run's own verdict. `cannot` lists what no reader of these files can know."""

    schema: str = SCHEMA
    verdict: str
    exit_code: int
    receipts: list[CheckedReceipt]
    proves: list[str]
    cannot: list[str]
    next_steps: list[str]


class Read(msgspec.Struct, frozen=True):
    """A file that is a receipt of a known kind."""

    path: Path
    sha256: str
    receipt: Kinds
    signer: str | None


class Paper:
    """Receipt files, read and compared. `problems` by file; `chains` are in the order of their numbers."""

    def __init__(self, files: Sequence[Path], signer_of: SignerOf | None = None) -> None:
        self.files = list(dict.fromkeys(files))
        self.signed = signer_of is not None
        self.problems: dict[Path, list[str]] = defaultdict(list)
        self.unreadable: set[Path] = set()
        self.read: dict[Path, Read] = {}
        for path in self.files:
            try:
                self.read[path] = _read(path, signer_of)
            except CustodyError as error:
                self.unreadable.add(path)
                self.problems[path].append(error.message)
        self.chains: list[list[Read]] = []
        for one in sorted(self.read.values(), key=lambda one: one.receipt.number):
            self.problems[one.path] += contradictions(one.receipt)
            self._chain_of(one).append(one)
        for chain in self.chains:
            self._check_links(chain)

    @property
    def broken(self) -> bool:
        return any(problems for path, problems in self.problems.items() if path not in self.unreadable)

    def _chain_of(self, one: Read) -> list[Read]:
        """The chain that it follows; else, as a break in it, that of its host and folder; else a new one."""
        for chain in self.chains:
            if chain[-1].sha256 == one.receipt.previous:
                return chain
        for chain in self.chains:
            if (chain[-1].path.parent, chain[-1].receipt.tool.host) == (one.path.parent, one.receipt.tool.host):
                return chain
        self.chains.append([])
        return self.chains[-1]

    def _check_links(self, chain: Sequence[Read]) -> None:
        first = chain[0].receipt
        if (first.previous is None) != (first.number == 1):
            self.problems[chain[0].path].append("its number and the receipt that it names before it do not fit")
        for before, after in pairwise(chain):
            found = self.problems[after.path]
            if after.receipt.number == before.receipt.number:
                found.append(f"two receipts have the number {after.receipt.number}: {before.path.name} is the other")
            elif after.receipt.number != before.receipt.number + 1:
                found.append(f"receipt {before.receipt.number + 1} is missing before it")
            elif after.receipt.previous != before.sha256:
                found.append(f"it does not follow {before.path.name}: one of the two was changed, or is another run's")
            if after.receipt.at < before.receipt.at:
                found.append(f"it is dated before {before.path.name}")


def consistent(files: Sequence[Path]) -> Paper:
    """Receipts that may be told from. Raises CustodyError for one that cannot be read, DifferenceError for one that
    contradicts itself or does not follow."""
    paper = Paper(files)
    for path, problems in paper.problems.items():
        for problem in problems:
            error = CustodyError if path in paper.unreadable else DifferenceError
            raise error(f"receipt {path}: {problem}", "see all of it: nl-cutover receipt verify FILE...")
    return paper


def check(paper: Paper) -> ReceiptCheck:
    """What these files prove, what they cannot, and whether anything in them is wrong."""
    unsigned = [chain[-1] for chain in paper.chains if paper.signed and chain[-1].signer is None]
    if paper.broken:
        verdict, code = "broken", ExitCode.DIFFERENCE
    elif paper.unreadable:
        verdict, code = "unreadable", ExitCode.UNMEASURABLE
    elif unsigned:
        verdict, code = "unsigned", ExitCode.REFUSED
    else:
        verdict, code = "intact", ExitCode.PROVED
    return ReceiptCheck(
        verdict=verdict,
        exit_code=int(code),
        receipts=[_checked(path, paper) for path in paper.files],
        proves=_proves(paper) if code in (ExitCode.PROVED, ExitCode.REFUSED) else [],
        cannot=_cannot(paper),
        next_steps=_next_steps(verdict, unsigned),
    )


def _read(path: Path, signer_of: SignerOf | None) -> Read:
    body, parsed = receipts.read(path)
    try:
        receipt: Kinds = msgspec.convert(parsed, Kinds)
    except msgspec.ValidationError as error:
        raise CustodyError(f"receipt {path} is of no kind that this version knows: {error}") from None
    signer = None if signer_of is None else signer_of(path, body)
    return Read(path, hashlib.sha256(body).hexdigest(), receipt, signer)


def says(receipt: Kinds) -> str:
    outcome = getattr(receipt, "outcome", None)
    return "the landing begins" if outcome is None else f"{outcome.verdict} (exit {outcome.exit_code})"


def kind_of(receipt: Kinds) -> str:
    return str(receipt.__struct_config__.tag)


def _checked(path: Path, paper: Paper) -> CheckedReceipt:
    problems = paper.problems[path]
    if path not in paper.read:
        return CheckedReceipt(file=str(path), problems=problems)
    one = paper.read[path]
    return CheckedReceipt(
        file=str(path),
        number=one.receipt.number,
        kind=kind_of(one.receipt),
        host=one.receipt.tool.host,
        run=one.receipt.run,
        at=one.receipt.at,
        says=says(one.receipt),
        sha256=one.sha256,
        signer=one.signer,
        problems=problems,
    )


def _proves(paper: Paper) -> list[str]:
    found = ["each file is one canonical receipt; its counts add up and do not contradict its verdict"]
    if any(len(chain) > 1 for chain in paper.chains):
        found.append("every receipt but the last of its chain has the very bytes that the next one names")
    if any(isinstance(one.receipt, MigrateReceipt) for one in paper.read.values()):
        found.append("every id map gives each archive one new id, and no id to two archives")
    for chain in paper.chains:
        if chain[-1].signer is not None:
            found.append(f"{chain[-1].signer} signed {chain[-1].path.name}, and by it all that it follows")
    return found


def _cannot(paper: Paper) -> list[str]:
    found = []
    for chain in paper.chains:
        first, last = chain[0], chain[-1]
        if first.receipt.number > 1:
            found.append(f"what came before {first.path.name}: number {first.receipt.number - 1} was not given")
        if last.signer is None:
            found.append(
                f"whether {last.path.name} is as it was written: nothing here binds it; "
                f"compare its sha256 {last.sha256} with what you were told"
            )
            found.append(f"who wrote {last.path.name} and what it follows: no signature was checked for it")
        found.append(f"whether another receipt came after {last.path.name}")
    return [
        *found,
        "whether Memory Core still holds what it held then: ask it for one archive with nl-cutover resolve ID --ask, "
        "for all with nl-cutover verify, which needs stores and custody folder",
        "whether telemetry is stored: Memory Core has no operation that reads it",
    ]


def _next_steps(verdict: str, unsigned: Sequence[Read]) -> list[str]:
    match verdict:
        case "broken":
            return ["do not act on these receipts; bring the folder back from a backup, or ask who wrote them"]
        case "unreadable":
            return [
                "a file was changed, is torn, is no receipt, or is of a newer version: bring it back, or name the others alone"
            ]
        case "unsigned":
            wrong = [one.path.name for one in unsigned if signature_path(one.path).exists()]
            names = " ".join(str(one.path) for one in unsigned)
            return [
                *(f"the signature of {name} is not one of an allowed signer over these bytes" for name in wrong),
                f"have it signed by somebody who is allowed to: nl-cutover receipt sign {names} --key KEY",
            ]
        case _:
            return []

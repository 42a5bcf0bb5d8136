"""`nl-cutover receipt`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..verdicts import ExitCode
from ..wording import counted
from .common import ConfigOption, CustodyOption, Format, FormatOption, finish, finite

if TYPE_CHECKING:
    from ..papers.verifying import Paper

app = typer.Typer(help="Read, check, sign and merge receipts.", no_args_is_help=True)

Files = Annotated[list[Path], typer.Argument(help="Receipt files.", metavar="FILE")]
SignersOption = Annotated[
    Path | None,
    typer.Option(
        "--allowed-signers", help="Ask for a signature by one of these, as ssh-keygen reads them.", metavar="FILE"
    ),
]
SignerOption = Annotated[str | None, typer.Option("--signer", help="Ask for this one's signature.", metavar="NAME")]


@app.command("show")
def show(
    which: Annotated[
        str | None,
        typer.Argument(help="Its number, or its file.  [default: the last]", show_default=False, metavar="NUMBER|FILE"),
    ] = None,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Show one receipt, after checking it with the chain that it stands in."""
    from ..custody.receipts import chain, read
    from ..errors import UsageError
    from ..output.documents import Table
    from ..output.views import ending
    from ..papers.verifying import consistent, kind_of, says
    from .settings import load

    if which is None or which.isdigit():
        settings = load(config=config, custody=custody)
        files, where = [link.path for link in chain(settings.custody)], f"custody {settings.custody}"
    else:
        files, where = [Path(which)], which
    paper = consistent(files)
    number = int(which) if which is not None and which.isdigit() else None
    found = [one for one in paper.read.values() if number in (None, one.receipt.number)][-1:]
    if not found:
        raise UsageError(
            f"{where} holds {counted(len(files), 'receipt|s')}, none with number {which or 'any'}",
            "a receipt is left by migrate, settle, verify and cut, and by measure and plan with --receipt",
        )
    (one,) = found
    body: dict[str, Any] = read(one.path)[1]
    facts = [
        ("receipt", f"{one.receipt.number} of {len(files)}, {kind_of(one.receipt)}"),
        ("run", str(one.receipt.run)),
        ("at", one.receipt.at),
        ("chain", "every receipt follows the one before it" if len(files) > 1 else "this one alone was looked at"),
        ("sha256", one.sha256),
        ("path", str(one.path)),
        ("says", says(one.receipt)),
    ]
    rows = [[entry["old"], entry["new"], entry["digest"][:16]] for entry in body.get("id_map", [])]
    tables = [Table("id map", ["old id", "new id", "row digest"], rows)]
    finish(body, ending("receipt", "intact", ExitCode.PROVED, facts, tables), format)


@app.command("verify")
def verify(
    files: Files,
    allowed_signers: SignersOption = None,
    signer: SignerOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Check receipts offline: chain, digests, sums, id map, signatures. Says what that proves and what it cannot."""
    from ..output.paper_views import check_document
    from ..papers.verifying import check

    result = check(_paper(files, allowed_signers, signer))
    finish(result, check_document(result), format)


@app.command("sign")
def sign(
    files: Files,
    key: Annotated[
        Path, typer.Option("--key", help="SSH key, or the .pub of one that an agent holds.", metavar="FILE")
    ],
    format: FormatOption = Format.TABLE,
) -> None:
    """Sign receipts with an SSH key: FILE.sig. The signature of the last one covers all that it follows."""
    from ..custody.signatures import sign as sign_receipt
    from ..errors import DifferenceError
    from ..output.paper_views import check_document
    from ..papers.verifying import check

    paper = _paper(files, None, None)
    if paper.broken or paper.unreadable:
        first = next(problem for problems in paper.problems.values() for problem in problems)
        raise DifferenceError(f"nothing was signed: {first}", "see all of it: nl-cutover receipt verify FILE...")
    for path in paper.files:
        sign_receipt(path, key)
    result = check(paper)
    finish(result, check_document(result, "receipt sign"), format)


@app.command("merge")
def merge(
    files: Files,
    expect_host: Annotated[
        list[str], typer.Option("--expect-host", help="A host whose receipt must be here; repeatable.", metavar="NAME")
    ],
    max_age: Annotated[
        float, typer.Option("--max-age", help="Oldest receipt that is good enough, in minutes.", min=0, callback=finite)
    ] = 15,
    allowed_signers: SignersOption = None,
    signer: SignerOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """One verdict for a fleet: clear only if every expected host's newest receipt is here, fresh, sealed and clear."""
    from ..output.paper_views import merge_document
    from ..papers.merging import merge as merge_receipts
    from .measuring import now_iso, now_ms

    paper = _paper(files, allowed_signers, signer)
    result = merge_receipts(paper, expect_host, now_ms=now_ms(), max_age_ms=int(max_age * 60_000), at=now_iso())
    finish(result, merge_document(result), format)


def _paper(files: list[Path], allowed_signers: Path | None, signer: str | None) -> Paper:
    from functools import partial

    from ..custody.signatures import signer_of
    from ..errors import UsageError
    from ..papers.verifying import Paper

    if signer is not None and allowed_signers is None:
        raise UsageError(f"--signer {signer} needs a file that says which key is whose", "add --allowed-signers FILE")
    if allowed_signers is None:
        return Paper(files)
    return Paper(files, partial(signer_of, allowed=allowed_signers, signer=signer))

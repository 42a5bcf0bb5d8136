"""`nl-cutover resolve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..verdicts import ExitCode
from .common import ConfigOption, CustodyOption, Format, FormatOption, ReceiptsOption, finish


def resolve(
    old_id: Annotated[str, typer.Argument(help="An archive's id of before the cut.", metavar="OLD_ID")],
    receipt: ReceiptsOption = None,
    custody: CustodyOption = None,
    config: ConfigOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Say what Memory Core calls an archive that a host store had, by the receipts of its migration."""
    from ..custody.receipts import moved
    from ..errors import RefusedError
    from ..output.documents import Table
    from ..output.views import ending

    entries = moved(bodies(receipt, custody, config)).get(old_id, [])
    if not entries:
        raise RefusedError(
            f"no receipt here says where archive {old_id} went",
            "name the receipt of the run that moved it with --receipt, or its --custody",
        )
    code = exit_code(entries)
    rows = [
        [e["new"], e["custodian"] or "(not told)", "yes" if e["confirmed"] else "no", e["content_digest"][:16]]
        for e in entries
    ]
    several = "several archives had this id in different stores: the digest of the content tells them apart"
    document = ending(
        "resolve",
        _WORDS[code],
        code,
        [("old id", old_id)],
        [Table("", ["new id", "custodian", "read back", "content digest"], rows)],
        [several] if code is ExitCode.REFUSED else [],
        ["prove it: nl-cutover verify CHECKOUT..."] if code is ExitCode.PARTIAL else [],
    )
    told = [{key: e[key] for key in ("new", "custodian", "confirmed", "content_digest", "stores")} for e in entries]
    report = {
        "schema": "nl-cutover/resolve/1",
        "verdict": document.verdict,
        "exit_code": int(code),
        "old": old_id,
        "archives": told,
    }
    finish(report, document, format)


_WORDS = {ExitCode.PROVED: "resolved", ExitCode.PARTIAL: "not read back", ExitCode.REFUSED: "ambiguous"}


def exit_code(entries: list[dict[str, Any]]) -> ExitCode:
    """One archive, read back equal, is proved."""
    if len(entries) > 1:
        return ExitCode.REFUSED
    return ExitCode.PROVED if entries[0]["confirmed"] else ExitCode.PARTIAL


def bodies(receipts: list[Path] | None, custody: Path | None, config: Path | None) -> list[dict[str, Any]]:
    """The receipts that were named, or all of a custody directory, its chain checked. Oldest first."""
    from ..custody.receipts import chain, read
    from .settings import load

    paths = receipts or [link.path for link in chain(load(config=config, custody=custody).custody)]
    return [read(path)[1] for path in paths]

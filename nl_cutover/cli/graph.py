"""`nl-cutover graph`: Memory and Session nodes in a Memory Core's graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ..memory_core.sources import MEMORIES, SESSIONS
from ..verdicts import ExitCode
from ..wording import counted
from .common import Format, FormatOption, finish

if TYPE_CHECKING:
    import sqlite3

    from ..memory_core.ingestion import Outcome, Source
    from ..memory_core.integrity import Integrity

_NAMED = 20  # errors that a printed report names; JSON has all

app = typer.Typer(
    name="graph",
    help="Memory and Session nodes in a Memory Core's graph. A real Memory Core keeps nodes in memory: stop it first.",
    no_args_is_help=True,
)

DbOption = Annotated[Path, typer.Option("--db", help="The graph's SQLite file.")]
JsonlOption = Annotated[
    Path | None,
    typer.Option(
        "--jsonl", help='Lines of {"kind": "session"|"memory", "id": ..., "metadata": {...}}.', metavar="FILE"
    ),
]
ChromaOption = Annotated[
    str | None, typer.Option("--chroma", help="A Chroma server, read through its own client.", metavar="URL")
]
SessionsOption = Annotated[str, typer.Option("--sessions", help="Chroma's collection of summaries.", metavar="NAME")]
MemoriesOption = Annotated[str, typer.Option("--memories", help="Chroma's collection of memories.", metavar="NAME")]


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "nl-cutover/graph-migrate/1"
    db: str
    verdict: str
    exit_code: int
    applied: list[str]


class Ingested(msgspec.Struct, frozen=True, kw_only=True):
    """`waiting`: memories whose session has no summary yet. `errors`: `[id] why`, a row or a session each."""

    schema: str = "nl-cutover/graph-ingest/1"
    db: str
    verdict: str
    exit_code: int
    sessions: int
    sessions_written: int
    memories_written: int
    memories_equal: int
    edges_written: int
    waiting: int
    errors: list[str]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "nl-cutover/graph-check/1"
    db: str
    verdict: str
    exit_code: int
    integrity: Integrity


@app.command()
def migrate(db: DbOption, format: FormatOption = Format.TABLE) -> None:
    """Bring the graph's schema up to date: labels Memory and Session with their indices. Forward only."""
    from ..memory_core.graph import migrate_graph
    from ..output.views import document

    applied = migrate_graph(db)
    report = Migrated(db=str(db), verdict="current", exit_code=int(ExitCode.PROVED), applied=applied)
    facts = [("db", str(db)), ("applied", ", ".join(applied) or "nothing: the schema was current")]
    finish(report, document("graph migrate", report, facts), format)


@app.command()
def ingest(
    db: DbOption,
    jsonl: JsonlOption = None,
    chroma: ChromaOption = None,
    sessions: SessionsOption = SESSIONS,
    memories: MemoriesOption = MEMORIES,
    format: FormatOption = Format.TABLE,
) -> None:
    """Write a node per summarized session and per memory, and the edge between them. Equal rows are skipped."""
    from ..memory_core.ingestion import ingest

    _run(db, ingest, _source(jsonl, chroma, sessions, memories), format, minimal=False)


@app.command()
def backfill(
    db: DbOption,
    jsonl: JsonlOption = None,
    chroma: ChromaOption = None,
    sessions: SessionsOption = SESSIONS,
    memories: MemoriesOption = MEMORIES,
    format: FormatOption = Format.TABLE,
) -> None:
    """Write what is absent, for rows older than the schema. A session without a summary gets a minimal node."""
    from ..memory_core.ingestion import backfill

    _run(db, backfill, _source(jsonl, chroma, sessions, memories), format, minimal=True)


@app.command()
def check(db: DbOption, format: FormatOption = Format.TABLE) -> None:
    """Examine the graph, read-only: every memory has its edge, every edge its ends and owner; counts."""
    from ..memory_core import integrity
    from ..memory_core.graph import open_migrated
    from ..output.documents import Table
    from ..output.views import document

    with open_migrated(db, read_only=True) as connection:
        found = integrity.check(connection)
    code = ExitCode.DIFFERENCE if found.faults else ExitCode.PROVED
    report = Checked(db=str(db), verdict="faulty" if found.faults else "sound", exit_code=int(code), integrity=found)
    faults = [[fault.kind, str(fault.count), " ".join(fault.ids[:3])] for fault in found.faults]
    counts = [(f"nodes {label}", str(count)) for label, count in found.labels.items()]
    counts += [(f"edges {kind}", str(count)) for kind, count in found.edges.items()]
    facts = [("db", str(db)), *counts, ("orphans", str(found.orphans)), ("digest", found.digest)]
    tables = [Table("", ["fault", "count", "first"], faults)] if faults else []
    steps = ["nl-cutover graph ingest, which repairs lost edges"] if found.faults else []
    finish(report, document("graph check", report, facts, tables, next_steps=steps), format)


def _source(jsonl: Path | None, chroma: str | None, sessions: str, memories: str) -> Source:
    from ..errors import UsageError
    from ..memory_core import sources
    from ..memory_core.ingestion import read_source

    if (jsonl is None) == (chroma is None):
        raise UsageError("one source is needed", "give --jsonl FILE or --chroma URL")
    if jsonl is not None:
        return read_source(sources.read_jsonl(jsonl))
    return read_source(sources.read_chroma(chroma or "", sessions=sessions, memories=memories))


def _run(
    db: Path,
    write: Callable[[sqlite3.Connection, Source], Iterator[Outcome]],
    source: Source,
    format: Format,
    *,
    minimal: bool,
) -> None:
    from ..memory_core.graph import open_migrated
    from ..output.documents import Table
    from ..output.views import document

    with open_migrated(db) as connection:
        outcomes = list(write(connection, source))
    errors = [*source.errors, *(error for outcome in outcomes for error in outcome.errors)]
    waiting = 0 if minimal else sum(len(source.memories[session]) for session in source.unsummarized)
    report = Ingested(
        db=str(db),
        verdict="partial" if errors else "complete",
        exit_code=int(ExitCode.PARTIAL if errors else ExitCode.PROVED),
        sessions=len(outcomes),
        sessions_written=sum(outcome.session_written for outcome in outcomes),
        memories_written=sum(outcome.memories_written for outcome in outcomes),
        memories_equal=sum(outcome.memories_equal for outcome in outcomes),
        edges_written=sum(outcome.edges_written for outcome in outcomes),
        waiting=waiting,
        errors=errors,
    )
    facts = [(n.replace("_", " "), str(getattr(report, n))) for n in report.__struct_fields__[4:-1]]
    tables = [Table("", ["row", "why"], [_split(error) for error in errors[:_NAMED]])] if errors else []
    notes = [counted(len(errors) - _NAMED, "more error|s: --format json has them all")] if len(errors) > _NAMED else []
    if waiting:
        wait = counted(waiting, "memory|memories waits|wait for a summary of its|their session")
        notes.append(f"{wait}; graph backfill writes minimal ones")
    steps = ["mend these rows; the same command resumes"] if errors else []
    title = "graph backfill" if minimal else "graph ingest"
    finish(report, document(title, report, [("db", str(db)), *facts], tables, notes, steps), format)


def _split(error: str) -> list[str]:
    where, _, why = error.removeprefix("[").partition("] ")
    return [where, why]

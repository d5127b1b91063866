"""`rekindle output`: the committed rows of a query, in a form that people or programs read.

Reads with `rekindle_store` and writes with `output_formats`; imports nothing of the runtime.
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.console import Console

from rekindle.model.errors import InputError
from rekindle_cli import cli_options, output_formats
from rekindle_cli.output_formats import FORMATS
from rekindle_store import committed_files, query_output
from rekindle_store.committed_files import DEAD_LETTERS, LATE
from rekindle_store.query_output import NoOutputYet

SUFFIXES = {"parquet": "parquet", "csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json"}
MOMENT = pa.timestamp("us", "UTC")
SUMMARY = pa.schema(
    [
        ("query", pa.string()),
        ("files", pa.int64()),
        ("rows", pa.int64()),
        ("first_epoch", pa.int64()),
        ("last_epoch", pa.int64()),
        ("committed_at", MOMENT),
    ]
)
FILES = pa.schema(
    [
        ("query", pa.string()),
        ("partition", pa.int64()),
        ("epoch", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("commit", pa.int64()),
        ("committed_at", MOMENT),
        ("path", pa.string()),
        ("first_row", pa.int64()),
    ]
)
# Files that are listed together in one table.
FILES_MAX = 1_000

Store = Annotated[
    str,
    typer.Argument(metavar="STORE", help="The checkpoint store: a folder, or a URL of S3 or HDFS."),
]
Query = Annotated[
    str | None,
    typer.Argument(
        metavar="[QUERY]",
        help="The name of a query, or of what a step keeps beside.",
        show_default="none: all are listed",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="One of table, json (an object a line), csv and parquet.",
        show_default="by the ending of --output, else table",
    ),
]
OutputFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="Where the rows go; it takes the place of what is there once it is whole.",
        show_default="standard output",
    ),
]
Since = Annotated[int, typer.Option(metavar="EPOCH", min=0, help="Epochs from this one on.")]
Limit = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, help="So many rows at most.", show_default="all"),
]
Follow = Annotated[
    bool, typer.Option("--follow", help="Go on with what is committed, until it is ended.")
]
OnlyNew = Annotated[
    bool, typer.Option("--only-new", help="With --follow, leave out what is there already.")
]
DeadLetters = Annotated[
    bool, typer.Option("--dead-letters", help="QUERY is a step: show the rows that it left out.")
]
Late = Annotated[
    bool, typer.Option("--late", help="QUERY is a step: show the rows that came too late for it.")
]
Files = Annotated[
    bool, typer.Option("--files", help="List the Parquet files with the rows, not the rows.")
]


def output(
    store: Store,
    query: Query = None,
    output_format: Format = None,
    file: OutputFile = None,
    since: Since = 0,
    limit: Limit = None,
    follow: Follow = False,
    only_new: OnlyNew = False,
    dead_letters: DeadLetters = False,
    late: Late = False,
    files: Files = False,
) -> None:
    """Show the committed rows of a query, also while its pipeline runs.

    Example: rekindle output /shared/flights busiest --limit 20
    """
    chosen = _format(output_format, file)
    given = {
        "--follow": follow,
        "--only-new": only_new,
        "--dead-letters": dead_letters,
        "--late": late,
        "--files": files,
        "--since": since > 0,
    }
    _check_together([name for name, is_given in given.items() if is_given], query, file)
    name = query
    if query is not None and (dead_letters or late):
        name = f"{query}{LATE if late else DEAD_LETTERS}"
    if name is None:
        tables: Iterable[pa.Table] = [_summary(store).slice(0, limit)]
    elif files:
        tables = _listing(store, name, since, limit)
    else:
        found = query_output.read(store, name, since=since, limit=limit)
        tables = (
            found.follow(only_new=only_new, waiting=_tell_waiting) if follow else found.tables()
        )
    try:
        if file is not None:
            _write_file(file, chosen, tables)
        else:
            _print(chosen, tables, at_once=follow)
    except NoOutputYet:
        if name == query:
            raise
        why = "no row has come too late for it" if late else "it has left out no row"
        print(f"step {query}: {why} so far", file=sys.stderr)


def _format(name: str | None, file: Path | None) -> str:
    """The format that was asked for, or that the file's name asks for."""
    if name is not None:
        cli_options.check_choice("--format", name, FORMATS)
    suffix = "" if file is None else file.suffix.removeprefix(".").lower()
    if name is None and file is not None and suffix not in SUFFIXES:
        raise InputError(
            where=f"--output {file}",
            what="has a name that does not say which format it is to have",
            remedy="give --format, or a name that ends in .parquet, .csv or .json",
        )
    chosen = name or SUFFIXES.get(suffix, "table")
    if chosen == "parquet" and file is None:
        raise InputError(
            where="--format parquet",
            what="is given without a file",
            remedy="add --output FILE, for Parquet is no text",
        )
    return chosen


def _check_together(given: list[str], query: str | None, file: Path | None) -> None:
    """Refuse options that mean nothing beside each other."""
    if query is None and given:
        raise InputError(
            where=given[0],
            what="is given without a query",
            remedy="name one; `rekindle output STORE` lists them",
        )
    if "--only-new" in given and "--follow" not in given:
        raise InputError(
            where="--only-new", what="is given without --follow", remedy="add it, or leave this out"
        )
    if "--late" in given and "--dead-letters" in given:
        cli_options.check_absent("--dead-letters", True, "--late, which shows other rows")
    if "--follow" in given and "--files" in given:
        cli_options.check_absent("--files", True, "--follow, which shows rows")
    if "--follow" in given and file is not None:
        raise InputError(
            where="--output",
            what="is given beside --follow, and a file is written only once it is whole",
            remedy="send standard output to a file instead, as json or csv",
        )


def _summary(store: str) -> pa.Table:
    """A row for each query."""
    with Console(stderr=True).status("reading the commit log"):
        found = committed_files.summaries(store)
    return _rows(found, SUMMARY)


def _listing(store: str, query: str, since: int, limit: int | None) -> Iterator[pa.Table]:
    """A row for each file, one table at least."""
    listed = committed_files.committed_files(store, query, since=since, version=2)
    found = islice(listed, limit)
    yield _rows(islice(found, FILES_MAX), FILES)
    while (table := _rows(islice(found, FILES_MAX), FILES)).num_rows:
        yield table


def _rows(values: Iterable[Any], schema: pa.Schema) -> pa.Table:
    """A row for each value, with its attributes; times are in seconds there."""
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for value in values:
        for name in schema.names:
            columns[name].append(getattr(value, name))
    seconds = columns["committed_at"]
    columns["committed_at"] = [None if at is None else round(at * 1e6) for at in seconds]
    return pa.table(columns, schema=schema)


def _print(chosen: str, tables: Iterable[pa.Table], *, at_once: bool) -> None:
    """To standard output; `at_once` each table as it comes."""
    rows = output_formats.text_rows(
        chosen, on_terminal=sys.stdout.isatty(), encoding=sys.stdout.encoding
    )
    sys.stdout.flush()
    for table in tables:
        for data in rows.of(table):
            sys.stdout.buffer.write(data)
        if at_once:
            sys.stdout.buffer.flush()
    sys.stdout.buffer.flush()


def _write_file(file: Path, chosen: str, tables: Iterable[pa.Table]) -> None:
    """To a file, with the number of rows so far on a terminal."""
    rows = 0

    def counted() -> Iterator[pa.Table]:
        nonlocal rows
        for table in tables:
            yield table
            rows += table.num_rows
            status.update(f"{rows:,} rows")

    with Console(stderr=True).status("reading the commit log") as status:
        output_formats.write_file(file, chosen, counted())
    typer.echo(f"{file}: {rows:,} row{'' if rows == 1 else 's'} as {chosen}")


def _tell_waiting(why: str | None) -> None:
    """Why nothing comes, where there is somebody to tell."""
    text = "the store answers again" if why is None else f"{why}: waiting"
    print(text, file=sys.stderr, flush=True)

"""Runs the queries over the whole input at once and compares the run's output, row by row.

The batch engine is DuckDB, which shares no code with the runtime. What a source delivered is a
view of the same name over its Parquet file: rows in file order, repeated with shifted event time
as often as the run read it, and `row_index`. `report_check` calls `compare`, the demo
`exactly_once`.

Splits `queries.sql` into its sections: a prelude, then one SELECT per query.

    -- prelude
    CREATE VIEW late AS SELECT * FROM flights WHERE dep_delay > 15;
    -- query: late-by-carrier
    SELECT carrier, count(*) AS flights FROM late GROUP BY carrier;

Runs nothing.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rekindle.model.errors import InputError
from rekindle.report.input_record import InputFile, Inputs, query_of
from rekindle.verification import row_differences
from rekindle.verification.duckdb_engine import BatchEngine, literal, quoted
from rekindle.verification.evidence_files import REMEDY, output_file
from rekindle.verification.row_differences import RowDifferences

HEADING = re.compile(r"^--\s*(?:(prelude)|query:\s*(\S+))\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Statements:
    """`prelude` is run first; `queries` gives one SELECT per query, without semicolon."""

    prelude: str
    queries: Mapping[str, str]


def split(sql: str, where: str = "queries.sql") -> Statements:
    """Split the text; InputError for text before the first heading and for empty sections."""
    headings = list(HEADING.finditer(sql))
    opening = sql[: headings[0].start()] if headings else sql
    if _without_comments(opening):
        raise _bad(where, "has a statement before the first `-- prelude` or `-- query: NAME`")
    ends = [heading.start() for heading in headings[1:]] + [len(sql)]
    prelude: list[str] = []
    queries: dict[str, str] = {}
    for heading, end in zip(headings, ends, strict=True):
        body, name = sql[heading.end() : end].strip(), heading.group(2)
        if name is None:
            prelude.append(body)
            continue
        if name in queries:
            raise _bad(where, f"has the query {name} twice")
        if not _without_comments(body):
            raise _bad(where, f"has no statement for the query {name}")
        queries[name] = body.rstrip().rstrip(";")
    return Statements("\n".join(prelude), queries)


def _without_comments(sql: str) -> str:
    return re.sub(r"--[^\n]*", "", sql).strip()


def _bad(where: str, what: str) -> InputError:
    return InputError(
        where=where, what=what, remedy="restore the file from the run, or run the demo again"
    )


CHUNK_BYTES = 1 << 20


def exactly_once(directory: Path, inputs: Inputs, sql: str) -> dict[str, int]:
    """Compare `outputs/` with the batch answers of all queries; give the `totals`."""
    return totals(compare(directory, inputs, sql, lambda _: None))


def totals(compared: tuple[RowDifferences, ...]) -> dict[str, int]:
    """Give the sums over the queries.

    `expected_rows`; `missing`, rows that the output lacks; `duplicated`, copies beyond the first
    (with keys) or beyond the expected number; `wrong`, rows that differ from the expected row of
    their key, or that nothing expects.
    """
    return {
        "expected_rows": sum(found.expected for found in compared),
        **{kind: sum(found.counts[kind] for found in compared) for kind in row_differences.KINDS},
    }


def compare(
    directory: Path, inputs: Inputs, sql: str, say: Callable[[str], None]
) -> tuple[RowDifferences, ...]:
    """Compare the output of each query with its batch answer, as multisets.

    Floats may differ by 1e-9 relative where a query has keys. `say` is told what is being
    compared. InputError names an unusable file.
    """
    parts = split(sql)
    unknown = sorted(set(inputs.priorities) - set(parts.queries))
    if unknown:
        raise InputError(where="queries.sql", what=f"has no query {unknown[0]}", remedy=REMEDY)
    compared = []
    with BatchEngine() as engine:
        for file in inputs.files:
            say(f"checking the input file {file.path}")
            _create_view(engine, directory, file, inputs.offsets[file.name])
        engine.ask(parts.prelude, "queries.sql: prelude")
        for n, query in enumerate(sorted(inputs.priorities), start=1):
            say(f"checking the rows of {query}, query {n} of {len(inputs.priorities)}")
            compared.append(_query(engine, directory, inputs, query, parts.queries[query]))
    return tuple(compared)


def _create_view(engine: BatchEngine, directory: Path, file: InputFile, offset: int) -> None:
    path, where = directory / file.path, f"input file {file.path}"
    _check_file(path, file)
    shift = ""
    if file.event_time and file.repeat_every_seconds is not None:
        microseconds = round(file.repeat_every_seconds * 1_000_000)
        column = quoted(file.event_time)
        shift = f"REPLACE ({column} + to_microseconds({microseconds} * cycle) AS {column})"
    cycles = -(-offset // file.rows) if file.repeat_every_seconds is not None else 1
    engine.ask(
        f"CREATE VIEW {quoted(file.name)} AS "
        f"SELECT * EXCLUDE (cycle, file_row_number) {shift}, "
        f"cycle * {file.rows} + file_row_number AS row_index "
        f"FROM read_parquet({literal(str(path))}, file_row_number = true), "
        f"(SELECT unnest(range({cycles})) AS cycle) "
        f"WHERE cycle * {file.rows} + file_row_number < {offset}",
        where,
    )
    found = engine.number(f"SELECT count(*) FROM read_parquet({literal(str(path))})", where)
    _check_rows(found, file, offset)


def _check_rows(found: int, file: InputFile, offset: int) -> None:
    if found != file.rows:
        raise InputError(
            where=f"input.json: {file.name}: rows",
            what=f"is {file.rows}, but {file.path} has {found}",
            remedy=REMEDY,
        )
    if offset > found and file.repeat_every_seconds is None:
        raise InputError(
            where=f"input.json: offsets.{file.name}",
            what=f"is {offset}, but {file.path} has {found} rows and does not repeat",
            remedy=REMEDY,
        )


def _check_file(path: Path, file: InputFile) -> None:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise InputError(
            where=f"input file {file.path}",
            what=f"cannot be read ({error.strerror})",
            remedy="put the file back where input.json says, relative to the report",
        ) from error
    if digest.hexdigest() != file.sha256:
        raise InputError(
            where=f"input file {file.path}",
            what="has another SHA-256 than input.json says",
            remedy="put the file back that the run read",
        )


def _query(
    engine: BatchEngine, directory: Path, inputs: Inputs, query: str, select: str
) -> RowDifferences:
    where, keys = f"queries.sql: {query}", inputs.keys.get(query, ())
    engine.ask(f"CREATE OR REPLACE TEMP TABLE expected AS ({select})", where)
    columns = engine.columns("expected", where)
    unknown = [key for key in keys if key not in columns]
    if unknown:
        raise InputError(
            where=f"input.json: queries.{query}.keys",
            what=f"names {unknown[0]}, which the query does not give",
            remedy=f"name some of {', '.join(columns)}",
        )
    _load_output(engine, directory, inputs.partitions(query), columns)
    return row_differences.compare(engine, query, columns, keys)


def _load_output(
    engine: BatchEngine, directory: Path, partitions: Sequence[str], columns: Iterable[str]
) -> None:
    """Read the files of all partitions of a query, each row with its epoch and partition."""
    names = ", ".join(quoted(name) for name in columns)
    parts = [
        f"SELECT {names}, epoch AS {quoted(row_differences.EPOCH)}, "
        f"{literal(partition)} AS {quoted(row_differences.PARTITION)} "
        f"FROM read_parquet({literal(str(output_file(directory, partition)))}, "
        "hive_partitioning = false)"
        for partition in partitions
    ]
    engine.ask(
        f"CREATE OR REPLACE TEMP TABLE output AS {' UNION ALL '.join(parts)}",
        f"outputs/{query_of(partitions[0])}",
    )

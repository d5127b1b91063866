"""Runs the queries over the whole input at once and compares the run's output, row by row.

The batch engine is DuckDB, which shares no code with the runtime. What a source delivered is a
view of the same name over its Parquet file: rows in file order, repeated with shifted event time
as often as the run read it, and `row_index`. `report_check` calls `compare`, the demo
`exactly_once`.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import duckdb

from rekindle.model.errors import InputError, first_line
from rekindle.report.input_record import InputFile, Inputs, query_of
from rekindle.verification.evidence_files import REMEDY, output_file

# DuckDB as the batch engine: runs statements, and turns its errors into ours.
#
# It knows nothing of reports and queries.
#
# Why: docs/decisions/0021-one-sql-engine-checks-the-output.md.


class BatchEngine:
    """A context manager: inside, a database in memory whose time zone is UTC.

    `where` names the file that a statement is about: what fails is bad input, an InputError
    that names it. Ctrl-C during a statement is a KeyboardInterrupt, as anywhere else.
    """

    def __init__(self) -> None:
        self._connection = duckdb.connect()

    def __enter__(self) -> Self:
        self.ask("SET TimeZone = 'UTC'", "the time zone")
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, sql: str, where: str) -> list[tuple[Any, ...]]:
        """Run one statement, give its rows."""
        try:
            answer = self._connection.execute(sql)
            return answer.fetchall() if answer else []  # comments alone give no answer
        except duckdb.InterruptException as error:
            raise KeyboardInterrupt from error
        except RuntimeError as error:  # what DuckDB makes of a KeyboardInterrupt in mid-query
            if "interrupted" not in str(error):
                raise
            raise KeyboardInterrupt from error
        except duckdb.Error as error:
            what = f"cannot be used ({first_line(error)})"
            raise InputError(where=where, what=what, remedy=REMEDY) from error

    def number(self, select: str, where: str) -> int:
        """Give the one number that a SELECT gives."""
        return int(self.ask(select, where)[0][0])

    def columns(self, table: str, where: str) -> Mapping[str, str]:
        """Give the columns of a table in order, each with its type."""
        return {str(row[0]): str(row[1]) for row in self.ask(f"DESCRIBE {table}", where)}


def literal(value: str) -> str:
    """A string in SQL."""
    return "'" + value.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def scan(path: str, first_row: int | None = None, rows: int = 0) -> str:
    """What a Parquet file has, in SQL behind FROM: all of it, or so many `rows` from one on."""
    read = f"read_parquet({literal(path)}, hive_partitioning = false"
    if first_row is None:
        return f"{read})"
    end = first_row + rows
    part = f"{read}, file_row_number = true) WHERE file_row_number >= {first_row}"
    return f"(FROM {part} AND file_row_number < {end})"


# The rows of one query: how the output differs from the batch answer, with a row to look at.
#
# Compares the tables `expected` and `output`, both as multisets. Rows of `output` carry where they
# come from in two columns of their own.

KINDS = ("missing", "duplicated", "wrong")
# In `output` only. No column of a query that can be written without quotes is called so.
EPOCH, PARTITION = "#epoch", "#partition"
# Sums of floats depend on the order of addition; DuckDB's differs from the runtime's fixed one.
TOLERANCE = 1e-9
FLOATS = ("FLOAT", "DOUBLE")
SAMPLE_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class RowDifferences:
    """One query: `counts` of bad rows by kind; of each kind that there is, one row in words."""

    query: str
    expected: int
    counts: Mapping[str, int]
    samples: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Kind:
    """How to count the rows of a kind, and how to list them."""

    count: str
    rows: str


def compare_rows(
    engine: BatchEngine, query: str, columns: Mapping[str, str], keys: Sequence[str]
) -> RowDifferences:
    """Count the bad rows of a query; `columns` are those of `expected` with their types."""
    where = f"outputs/{query}"
    if keys:
        _check_keys(engine, keys, where)
        kinds = _by_key(columns, keys)
    else:
        kinds = _by_row(columns)
        engine.ask(
            "CREATE OR REPLACE TEMP TABLE surplus AS "
            f"SELECT {_names(columns)} FROM output EXCEPT ALL FROM expected",
            where,
        )
    counts = {name: engine.number(kind.count, where) for name, kind in kinds.items()}
    return RowDifferences(
        query=query,
        expected=engine.number("SELECT count(*) FROM expected", where),
        counts=counts,
        samples={
            name: _sample(engine, kind.rows, where) for name, kind in kinds.items() if counts[name]
        },
    )


def _check_keys(engine: BatchEngine, keys: Sequence[str], where: str) -> None:
    alike = f"SELECT {_names(keys)} FROM expected GROUP BY ALL HAVING count(*) > 1 LIMIT 1"
    if engine.ask(alike, where):
        raise InputError(
            where="input.json: queries",
            what=f"the keys {', '.join(keys)} do not tell the rows of the batch answer apart",
            remedy="name enough key columns, or none to compare whole rows",
        )


def _by_key(columns: Mapping[str, str], keys: Sequence[str]) -> Mapping[str, _Kind]:
    names, same_key = _names(keys), _all_same(keys)
    same_row = " AND ".join(
        _close(name) if kind in FLOATS else _same(name)
        for name, kind in columns.items()
        if name not in keys
    )
    missing = f"FROM expected e ANTI JOIN output o ON {same_key}"
    wrong = f"FROM output o ANTI JOIN expected e ON {same_key} AND {same_row or 'true'}"
    copies = f"row_number() OVER (PARTITION BY {names} ORDER BY {quoted(EPOCH)})"
    return {
        "missing": _Kind(f"SELECT count(*) {missing}", missing),
        "duplicated": _Kind(
            "SELECT (SELECT count(*) FROM output) - "
            f"(SELECT count(*) FROM (SELECT DISTINCT {names} FROM output))",
            f"FROM output QUALIFY {copies} > 1",
        ),
        "wrong": _Kind(f"SELECT count(*) FROM (SELECT DISTINCT {names} {wrong})", wrong),
    }


def _by_row(columns: Mapping[str, str]) -> Mapping[str, _Kind]:
    same_row = _all_same(columns)
    missing = f"FROM (FROM expected EXCEPT ALL SELECT {_names(columns)} FROM output)"
    foreign = f"FROM surplus o ANTI JOIN expected e ON {same_row}"
    copies = f"(FROM surplus o SEMI JOIN expected e ON {same_row})"
    return {
        "missing": _Kind(f"SELECT count(*) {missing}", missing),
        "duplicated": _Kind(
            f"SELECT count(*) FROM {copies}",
            f"FROM output o SEMI JOIN {copies} e ON {same_row}",
        ),
        "wrong": _Kind(
            f"SELECT count(*) {foreign}", f"FROM output o ANTI JOIN expected e ON {same_row}"
        ),
    }


def _sample(engine: BatchEngine, rows: str, where: str) -> str:
    """The first row of some, in words, with epoch and partition where they are known."""
    engine.ask(
        f"CREATE OR REPLACE TEMP TABLE sample AS SELECT * {rows} ORDER BY ALL LIMIT 1", where
    )
    columns = engine.columns("sample", where)
    row = dict(zip(columns, engine.ask("FROM sample", where)[0], strict=True))
    partition, epoch = row.pop(PARTITION, None), row.pop(EPOCH, None)
    text = ", ".join(f"{name}={value}" for name, value in row.items())
    if len(text) > SAMPLE_CHARACTERS_MAX:
        text = f"{text[: SAMPLE_CHARACTERS_MAX - 3]}..."
    return text if partition is None else f"{text} (epoch {epoch} of {partition})"


def _names(columns: Iterable[str]) -> str:
    return ", ".join(quoted(name) for name in columns)


def _all_same(columns: Iterable[str]) -> str:
    return " AND ".join(_same(column) for column in columns)


def _same(column: str) -> str:
    return f"e.{quoted(column)} IS NOT DISTINCT FROM o.{quoted(column)}"


def _close(column: str) -> str:
    # Only finite numbers: DuckDB orders NaN above all, so any two would be close with it.
    name = quoted(column)
    return (
        f"({_same(column)} OR (isfinite(e.{name}) AND isfinite(o.{name}) AND "
        f"abs(e.{name} - o.{name}) <= {TOLERANCE} * greatest(abs(e.{name}), abs(o.{name}))))"
    )


# Splits `queries.sql` into its sections: a prelude, then one SELECT per query.
#
#     -- prelude
#     CREATE VIEW late AS SELECT * FROM flights WHERE dep_delay > 15;
#     -- query: late-by-carrier
#     SELECT carrier, count(*) AS flights FROM late GROUP BY carrier;

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
        **{kind: sum(found.counts[kind] for found in compared) for kind in KINDS},
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
    return compare_rows(engine, query, columns, keys)


def _load_output(
    engine: BatchEngine, directory: Path, partitions: Sequence[str], columns: Iterable[str]
) -> None:
    """Read the files of all partitions of a query, each row with its epoch and partition."""
    names = ", ".join(quoted(name) for name in columns)
    parts = [
        f"SELECT {names}, epoch AS {quoted(EPOCH)}, "
        f"{literal(partition)} AS {quoted(PARTITION)} "
        f"FROM read_parquet({literal(str(output_file(directory, partition)))}, "
        "hive_partitioning = false)"
        for partition in partitions
    ]
    engine.ask(
        f"CREATE OR REPLACE TEMP TABLE output AS {' UNION ALL '.join(parts)}",
        f"outputs/{query_of(partitions[0])}",
    )

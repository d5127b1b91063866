"""Runs the queries over the whole input at once and compares the run's output, row by row.

The batch engine is DuckDB, which shares no code with the runtime. What a source delivered is a
view of the same name over its Parquet file: rows in file order, repeated with shifted event time
as often as the run read it, and `row_index`. `check` and the demo call `exactly_once`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from rekindle.errors import InputError
from rekindle.report.inputs import InputFile, Inputs
from rekindle.verification import statements

__all__ = ["TOLERANCE", "exactly_once"]

# Sums of floats depend on the order of addition; DuckDB's differs from the runtime's fixed one.
TOLERANCE = 1e-9
CHUNK_BYTES = 1 << 20
OWN_COLUMNS = ("epoch", "committed_at")
FLOATS = ("FLOAT", "DOUBLE")
REMEDY = "restore the file from the run, or run the demo again"


def exactly_once(directory: Path, inputs: Inputs, sql: str) -> dict[str, int]:
    """Compare `outputs/` with the batch answers of all queries, as multisets.

    Gives the sums over the queries: `expected_rows`; `missing`, rows that the output lacks;
    `duplicated`, copies beyond the first (with keys) or beyond the expected number; `wrong`,
    rows that differ from the expected row of their key, or that nothing expects. Floats may
    differ by 1e-9 relative where a query has keys. InputError names an unusable file.
    """
    parts = statements.split(sql)
    unknown = sorted(set(inputs.priorities) - set(parts.queries))
    if unknown:
        raise InputError(where="queries.sql", what=f"has no query {unknown[0]}", remedy=REMEDY)
    totals = {"expected_rows": 0, "missing": 0, "duplicated": 0, "wrong": 0}
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for file in inputs.files:
            _create_view(connection, directory, file, inputs.offsets[file.name])
        _run(connection, parts.prelude, "queries.sql: prelude")
        for query in sorted(inputs.priorities):
            counts = _query(
                connection, directory, query, parts.queries[query], inputs.keys.get(query, ())
            )
            totals = {name: totals[name] + counts[name] for name in totals}
    return totals


def _create_view(
    connection: duckdb.DuckDBPyConnection, directory: Path, file: InputFile, offset: int
) -> None:
    path = directory / file.path
    _check_file(path, file)
    shift = ""
    if file.event_time and file.repeat_every_seconds is not None:
        microseconds = round(file.repeat_every_seconds * 1_000_000)
        column = _quoted(file.event_time)
        shift = f"REPLACE ({column} + to_microseconds({microseconds} * cycle) AS {column})"
    cycles = -(-offset // file.rows) if file.repeat_every_seconds is not None else 1
    _run(
        connection,
        f"CREATE VIEW {_quoted(file.name)} AS "
        f"SELECT * EXCLUDE (cycle, file_row_number) {shift}, "
        f"cycle * {file.rows} + file_row_number AS row_index "
        f"FROM read_parquet({_text(str(path))}, file_row_number = true), "
        f"(SELECT unnest(range({cycles})) AS cycle) "
        f"WHERE cycle * {file.rows} + file_row_number < {offset}",
        f"input file {file.path}",
    )
    _check_rows(connection, path, file, offset)


def _check_rows(
    connection: duckdb.DuckDBPyConnection, path: Path, file: InputFile, offset: int
) -> None:
    rows = _count(connection, f"FROM read_parquet({_text(str(path))})")
    if rows != file.rows:
        raise InputError(
            where=f"input.json: {file.name}: rows",
            what=f"is {file.rows}, but {file.path} has {rows}",
            remedy=REMEDY,
        )
    if offset > rows and file.repeat_every_seconds is None:
        raise InputError(
            where=f"input.json: offsets.{file.name}",
            what=f"is {offset}, but {file.path} has {rows} rows and does not repeat",
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
    connection: duckdb.DuckDBPyConnection,
    directory: Path,
    query: str,
    select: str,
    keys: Sequence[str],
) -> Mapping[str, int]:
    where = f"queries.sql: {query}"
    _run(connection, f"CREATE OR REPLACE TEMP TABLE expected AS ({select})", where)
    columns = _columns(connection, "expected")
    unknown = [key for key in keys if key not in columns]
    if unknown:
        raise InputError(
            where=f"input.json: queries.{query}.keys",
            what=f"names {unknown[0]}, which the query does not give",
            remedy=f"name some of {', '.join(columns)}",
        )
    _load_output(connection, directory, query, list(columns))
    expected_rows = _count(connection, "FROM expected")
    try:
        counts = _by_key(connection, columns, keys) if keys else _by_row(connection, columns)
    except duckdb.Error as error:
        raise _unusable(f"outputs/{query}", error) from error
    return {"expected_rows": expected_rows, **counts}


def _load_output(
    connection: duckdb.DuckDBPyConnection, directory: Path, query: str, columns: Sequence[str]
) -> None:
    files = sorted((directory / "outputs" / query).glob("*.parquet"))
    if not files:
        _run(connection, "CREATE OR REPLACE TEMP TABLE output AS FROM expected LIMIT 0", query)
        return
    paths = ", ".join(_text(str(path)) for path in files)
    names = ", ".join(_quoted(name) for name in (*columns, *OWN_COLUMNS))
    _run(
        connection,
        "CREATE OR REPLACE TEMP TABLE output AS "
        f"SELECT * EXCLUDE ({', '.join(OWN_COLUMNS)}) FROM (SELECT {names} "
        f"FROM read_parquet([{paths}], union_by_name = true, hive_partitioning = false))",
        f"outputs/{query}",
    )


def _by_key(
    connection: duckdb.DuckDBPyConnection, columns: Mapping[str, str], keys: Sequence[str]
) -> Mapping[str, int]:
    names = ", ".join(_quoted(key) for key in keys)
    if _count(connection, "FROM expected") != _distinct(connection, "expected", names):
        raise InputError(
            where="input.json: queries",
            what=f"the keys {', '.join(keys)} do not tell the rows of the batch answer apart",
            remedy="name enough key columns, or none to compare whole rows",
        )
    same_key = " AND ".join(_same(key) for key in keys)
    same_row = " AND ".join(
        _close(name) if kind in FLOATS else _same(name)
        for name, kind in columns.items()
        if name not in keys
    )
    rows = _count(connection, "FROM output")
    return {
        "missing": _count(connection, f"FROM expected e ANTI JOIN output o ON {same_key}"),
        "duplicated": rows - _distinct(connection, "output", names),
        "wrong": _distinct(
            connection,
            f"(SELECT o.* FROM output o ANTI JOIN expected e "
            f"ON {same_key} AND {same_row or 'true'})",
            names,
        ),
    }


def _by_row(connection: duckdb.DuckDBPyConnection, columns: Mapping[str, str]) -> Mapping[str, int]:
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE surplus AS FROM output EXCEPT ALL FROM expected"
    )
    same_row = " AND ".join(_same(column) for column in columns)
    wrong = _count(connection, f"FROM surplus o ANTI JOIN expected e ON {same_row}")
    return {
        "missing": _count(connection, "FROM (FROM expected EXCEPT ALL FROM output)"),
        "duplicated": _count(connection, "FROM surplus") - wrong,
        "wrong": wrong,
    }


def _same(column: str) -> str:
    return f"e.{_quoted(column)} IS NOT DISTINCT FROM o.{_quoted(column)}"


def _close(column: str) -> str:
    # Only finite numbers: DuckDB orders NaN above all, so any two would be close with it.
    name = _quoted(column)
    return (
        f"({_same(column)} OR (isfinite(e.{name}) AND isfinite(o.{name}) AND "
        f"abs(e.{name} - o.{name}) <= {TOLERANCE} * greatest(abs(e.{name}), abs(o.{name}))))"
    )


def _columns(connection: duckdb.DuckDBPyConnection, table: str) -> Mapping[str, str]:
    rows = connection.execute(f"DESCRIBE {table}").fetchall()
    return {str(row[0]): str(row[1]) for row in rows}


def _distinct(connection: duckdb.DuckDBPyConnection, table: str, names: str) -> int:
    return _count(connection, f"FROM (SELECT DISTINCT {names} FROM {table})")


def _count(connection: duckdb.DuckDBPyConnection, source: str) -> int:
    row = connection.execute(f"SELECT count(*) {source}").fetchone()
    assert row is not None
    return int(row[0])


def _run(connection: duckdb.DuckDBPyConnection, sql: str, where: str) -> None:
    try:
        connection.execute(sql)
    except duckdb.Error as error:
        raise _unusable(where, error) from error


def _unusable(where: str, error: duckdb.Error) -> InputError:
    line = str(error).strip().splitlines()[0]
    return InputError(where=where, what=f"cannot be used ({line})", remedy=REMEDY)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

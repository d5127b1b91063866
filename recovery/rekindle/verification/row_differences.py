"""The rows of one query: how the output differs from the batch answer, with a row to look at.

Compares the tables `expected` and `output`, both as multisets; who makes them is `batch_check`,
which calls `compare`. Rows of `output` carry where they come from in two columns of their own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rekindle.model.errors import InputError
from rekindle.verification.duckdb_engine import BatchEngine, quoted

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


def compare(
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

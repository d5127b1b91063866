"""A pipeline run in this process gives what SQL gives for the whole input at once.

Whatever the rows, the cut of epochs and the number of partitions. DuckDB gives the answers.
"""

from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle_spark.pipeline.steps import Pipeline, Stream, count, largest, mean, smallest, total
from rekindle_spark.testing import TableSource, run_pipeline

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("size", pa.int64())])
SECOND = 1_000_000
SPAN_SECONDS = 40

Rows = list[tuple[int, str | None, int | None]]

moments = st.integers(-5 * SECOND, SPAN_SECONDS * SECOND) | st.integers(0, 6).map(
    lambda seconds: seconds * SECOND
)
sizes = st.none() | st.integers(-50, 50)
inputs = st.lists(st.tuples(moments, st.sampled_from(["a", "b", "ü", None]), sizes), max_size=40)
epochs = st.integers(1, 9)
parallelisms = st.none() | st.integers(1, 5)
few = settings(max_examples=15)


def table(rows: Rows) -> pa.Table:
    """Rows in the order of their event times."""
    ordered = sorted(rows, key=lambda row: row[0])
    columns = [list(column) for column in zip(*ordered, strict=True)] or [[], [], []]
    return pa.table(
        [pa.array(v, f.type) for v, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def source(pipeline: Pipeline, name: str) -> Stream:
    return pipeline.source(name, TableSource(SCHEMA.empty_table(), "at"), parallelism=2)


def multiset(found: pa.Table) -> list[Any]:
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def answer(statement: str, **tables: pa.Table) -> list[Any]:
    """The rows that DuckDB gives for a statement on tables."""
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        for name, rows in tables.items():
            connection.register(name, rows)
        return sorted(connection.execute(statement).fetchall(), key=repr)


WINDOWS = """
    with starts as (
        select key, size, unnest(generate_series(
            (epoch_us("at") - {size} + 1 + 100::bigint * {slide} + {slide} - 1) // {slide} - 100,
            (epoch_us("at") + 100::bigint * {slide}) // {slide} - 100
        )) * {slide} as start from rows
    )
    select key, make_timestamp(start) as window_start, make_timestamp(start + {size}) as window_end,
        count(*) as n, sum(size)::bigint as total, avg(size) as mean, min(size) as least,
        max(size) as most
    from starts group by key, start
"""


@few
@given(inputs, epochs, parallelisms, st.integers(1, 12), st.integers(1, 12))
def test_windows_give_what_sql_gives(
    rows: Rows, epochs: int, parallelism: int | None, size: int, slide: int
) -> None:
    slide = min(size, slide)
    pipeline = Pipeline("windows")
    source(pipeline, "rows").window(
        "sizes",
        keys=["key"],
        size_seconds=size,
        slide_seconds=slide,
        aggregates={
            "n": count(),
            "total": total("size"),
            "mean": mean("size"),
            "least": smallest("size"),
            "most": largest("size"),
        },
        parallelism=3,
    ).sink("out")
    given_rows = table(rows)
    found = run_pipeline(pipeline, {"rows": given_rows}, epochs=epochs, parallelism=parallelism)[
        "out"
    ]
    statement = WINDOWS.format(size=size * SECOND, slide=slide * SECOND)
    assert multiset(found) == answer(statement, rows=given_rows)


TOPS = """
    select *, row_number() over (
        partition by "at", key order by size desc nulls last
    ) as rank from (select distinct * from rows)
    qualify rank <= {count}
"""


@few
@given(inputs, epochs, parallelisms, st.integers(1, 4))
def test_tops_give_what_sql_gives(
    rows: Rows, epochs: int, parallelism: int | None, count: int
) -> None:
    pipeline = Pipeline("tops")
    top = source(pipeline, "rows").top("best", by="size", count=count, keys=["key"], parallelism=2)
    top.sink("out")
    given_rows = table(list(set(rows)))
    found = run_pipeline(pipeline, {"rows": given_rows}, epochs=epochs, parallelism=parallelism)[
        "out"
    ]
    assert multiset(found) == answer(TOPS.format(count=count), rows=given_rows)


JOINS = """
    select l."at", l.key, l.size, r."at", r.size, greatest(l."at", r."at")
    from lefts l join rights r
    on l.key = r.key and abs(epoch_us(l."at") - epoch_us(r."at")) <= {within}
"""


@few
@given(inputs, inputs, epochs, parallelisms, st.integers(0, 10))
def test_joins_give_what_sql_gives(
    left: Rows, right: Rows, epochs: int, parallelism: int | None, within: int
) -> None:
    pipeline = Pipeline("joins")
    lefts, rights = source(pipeline, "lefts"), source(pipeline, "rights")
    lefts.join("near", rights, keys=["key"], within_seconds=within, parallelism=3).sink("out")
    tables = {"lefts": table(left), "rights": table(right)}
    found = run_pipeline(pipeline, tables, epochs=epochs, parallelism=parallelism)["out"]
    assert multiset(found) == answer(JOINS.format(within=within * SECOND), **tables)

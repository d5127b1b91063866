"""The flights pipeline gives what DuckDB gives for the same queries over the same rows.

The pipeline's own functions and operators run here epoch by epoch in one process, with the
parallelism of each keyed step, without frames, hosts or Spark.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from rekindle.verification import batch_check
from rekindle_local.flights import flight_data, flight_pipeline
from rekindle_spark.operators import FINAL_WATERMARK, INITIAL_WATERMARK, row_hash
from rekindle_spark.pipeline.steps import Pipeline, Step

SQL = Path(flight_pipeline.__file__).with_name("queries.sql")
HOUR = 3_600_000_000
DAY = 24 * HOUR
YEAR_BEGIN = 1_357_016_400_000_000
# Two weeks of files, 17 days of stream: the replay goes into its second lap.
FILE_DAYS, STREAM_DAYS = 14, 17


@dataclass
class Run:
    """All that the sinks have received, and the state of each keyed partition."""

    pipeline: Pipeline
    outputs: dict[str, list[pa.Table]] = field(default_factory=dict)
    states: dict[tuple[str, int], Any] = field(default_factory=dict)

    def epoch(self, begin: int, end: int, previous_watermark: int, watermark: int) -> None:
        """Rows with event time in (begin, end], then the watermark."""
        tables: dict[str, pa.Table] = {}
        for step in self.pipeline.steps.values():
            if step.kind == "union":
                tables[step.name] = pa.concat_tables(tables[name] for name in step.inputs)
                continue
            inputs = [tables[name] for name in step.inputs]
            if step.kind == "source":
                source = step.function
                tables[step.name] = source.read(source.rows_at(begin), source.rows_at(end))
            elif step.kind == "map":
                tables[step.name] = step.function(inputs[0])
                assert tables[step.name].schema.equals(step.schema), step.name
            elif step.kind == "filter":
                tables[step.name] = inputs[0].filter(step.function(inputs[0]))
            elif step.kind == "keyed":
                tables[step.name] = self.keyed(step, inputs, previous_watermark, watermark)
            else:
                self.outputs.setdefault(step.name, []).append(inputs[0])

    def keyed(
        self, step: Step, inputs: Sequence[pa.Table], previous_watermark: int, watermark: int
    ) -> pa.Table:
        operator = step.function
        combine = getattr(operator, "combine", lambda table: table)
        parts = [
            row_hash.split(combine(table), list(step.keys), step.parallelism)
            if step.parallelism > 1
            else {0: combine(table)}
            for table in inputs
        ]
        empty = [combine(table.slice(0, 0)) for table in inputs]
        results = []
        for index in range(step.parallelism):
            state = self.states.get((step.name, index)) or operator.initial()
            part = [found.get(index, none) for found, none in zip(parts, empty, strict=True)]
            state, table = operator.process(state, part, previous_watermark, watermark)
            assert state.late_rows == 0, step.name
            assert table.schema.equals(step.schema), step.name
            self.states[step.name, index] = state
            results.append(table)
        return pa.concat_tables(results)

    def checkpoint(self) -> None:
        """Put each state down as tables and take it up again."""
        for (name, index), state in self.states.items():
            operator = self.pipeline.steps[name].function
            self.states[name, index] = operator.load(operator.dump(state))


def run(flights: Pipeline, ends: Sequence[int]) -> Mapping[str, pa.Table]:
    """One epoch per end, the last with the final watermark; a checkpoint in the middle."""
    running = Run(flights)
    marks = [INITIAL_WATERMARK, *ends[:-1], FINAL_WATERMARK]
    for number, (begin, end) in enumerate(pairwise([YEAR_BEGIN, *ends])):
        running.epoch(begin, end, marks[number], marks[number + 1])
        if number == len(ends) // 2:
            running.checkpoint()
    return {query: pa.concat_tables(tables) for query, tables in running.outputs.items()}


def counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flights")
    flight_data.prepare(path, FILE_DAYS / flight_data.DAYS_OF_YEAR)
    return path


@pytest.fixture(scope="module")
def outputs(directory: Path) -> Mapping[str, pa.Table]:
    # 31 hours and 7 minutes: no window ends with an epoch.
    step = 31 * HOUR + HOUR * 7 // 60
    ends = [*range(YEAR_BEGIN + step, YEAR_BEGIN + STREAM_DAYS * DAY, step)]
    return run(flight_pipeline.build(directory), [*ends, YEAR_BEGIN + STREAM_DAYS * DAY])


@pytest.fixture(scope="module")
def batch(directory: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    steps = flight_pipeline.build(directory).steps
    with duckdb.connect() as connection:
        for name in flight_data.SOURCES:
            source = steps[name].function
            rows = source.read(0, source.rows_at(YEAR_BEGIN + STREAM_DAYS * DAY))
            connection.register(name, rows)
        connection.execute(batch_check.split(SQL.read_text()).prelude)
        yield connection


@pytest.mark.parametrize("query", flight_pipeline.QUERY_KEYS)
def test_a_query_gives_what_a_batch_engine_gives(
    query: str, outputs: Mapping[str, pa.Table], batch: duckdb.DuckDBPyConnection
) -> None:
    sql = batch_check.split(SQL.read_text()).queries[query]
    expected = batch.sql(sql).to_arrow_table()
    table = outputs[query]
    assert expected.schema.names == table.schema.names
    assert counted(expected.cast(table.schema)) == counted(table)
    assert table.num_rows > 0


@pytest.mark.parametrize("query", flight_pipeline.QUERY_KEYS)
def test_the_keys_of_a_query_tell_its_rows_apart(
    query: str, outputs: Mapping[str, pa.Table]
) -> None:
    rows = counted(outputs[query].select(flight_pipeline.keys(query)))
    assert max(rows.values()) == 1


def test_the_cut_of_epochs_does_not_show_in_the_output(
    directory: Path, outputs: Mapping[str, pa.Table]
) -> None:
    flights = flight_pipeline.build(directory)
    busiest = YEAR_BEGIN + 3 * DAY + 9 * HOUR
    # A minute a time through a busy stretch, a watermark right on the end of a window, the rest.
    minutes = [busiest + minute * HOUR // 60 for minute in range(12)]
    midnight = YEAR_BEGIN + 8 * DAY - 5 * HOUR - 1
    found = run(flights, [*minutes, midnight, midnight + 1, YEAR_BEGIN + STREAM_DAYS * DAY])
    assert {query: counted(rows) for query, rows in found.items()} == {
        query: counted(rows) for query, rows in outputs.items()
    }

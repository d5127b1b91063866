"""A pipeline on given tables in this process: what comes out, and what is found wrong."""

import re
import threading
from collections.abc import Callable
from datetime import datetime
from itertools import count as numbers
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rekindle.model.errors import InputError, RunError, StepError
from rekindle_spark.operators import StatefulOperator
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline, Stream, count, total
from rekindle_spark.testing import TableSource, run, run_pipeline

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("size", pa.int64())])
SUMS = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("sum", pa.int64())])
SECOND = 1_000_000


def rows(number: int, keys: int = 5) -> pa.Table:
    """Row `n` has event time n seconds, key n modulo `keys`, size n."""
    return pa.table(
        {
            "at": pa.array([n * SECOND for n in range(number)], pa.timestamp("us")),
            "key": [f"key-{n % keys}" for n in range(number)],
            "size": list(range(number)),
        },
        schema=SCHEMA,
    )


def started(parallelism: int = 2) -> tuple[Pipeline, Stream]:
    """A pipeline with one source of that schema."""
    pipeline = Pipeline("sizes")
    source = TableSource(SCHEMA.empty_table(), "at")
    return pipeline, pipeline.source("rows", source, parallelism=parallelism)


def mapped(function: Any, **options: Any) -> Pipeline:
    pipeline, stream = started()
    stream.map("changed", function, schema=SCHEMA, **options).sink("out")
    return pipeline


class Sums(StatefulOperator):
    """Emits the sum of a key's sizes with each of its rows."""

    value_schema = pa.schema([("sum", pa.int64())])

    def handle(self, key: Any, rows: Any, value: Any) -> Any:
        held = value.get()[0] if value.exists() else 0
        for row in rows:
            held += row["size"]
            yield {"at": row["at"], "key": key[0], "sum": held}
        value.update((held,))


def test_queries_give_what_their_steps_make_of_the_rows() -> None:
    pipeline, stream = started()
    stream.filter("even", lambda table: pc.equal(pc.bit_wise_and(table["size"], 1), 0)).sink(
        "evens"
    )
    stream.window(
        "tens", keys=["key"], size_seconds=10, aggregates={"n": count(), "sum": total("size")}
    ).sink("sums")
    outputs = run_pipeline(pipeline, {"rows": rows(20)})
    assert outputs["evens"]["size"].to_pylist() == list(range(0, 20, 2))
    found = {
        (row["key"], row["window_start"].second): row["sum"] for row in outputs["sums"].to_pylist()
    }
    assert found["key-3", 0] == 3 + 8
    assert found["key-3", 10] == 13 + 18
    assert len(found) == 10


def test_a_query_without_rows_gives_an_empty_table_of_its_schema() -> None:
    outputs = run_pipeline(mapped(lambda table: table), {"rows": rows(0)})
    assert outputs["out"].schema == SCHEMA
    assert outputs["out"].num_rows == 0


@pytest.mark.parametrize("epochs", [1, 2, 7, 40])
@pytest.mark.parametrize("parallelism", [None, 1, 3])
def test_state_goes_on_over_epochs_and_partitions(epochs: int, parallelism: int | None) -> None:
    pipeline, stream = started()
    stream.stateful("sums", Sums(), keys=["key"], schema=SUMS).sink("out")
    outputs = run_pipeline(pipeline, {"rows": rows(20)}, epochs=epochs, parallelism=parallelism)
    last = {
        row["key"]: row["sum"] for row in sorted(outputs["out"].to_pylist(), key=lambda r: r["at"])
    }
    assert last == {f"key-{n}": n * 4 + 5 * 6 for n in range(5)}


def test_rows_may_be_dicts_and_tables_of_polars() -> None:
    at = datetime(2024, 5, 1)
    dicts: list[dict[str, Any]] = [{"at": at, "size": 3}]
    outputs = run_pipeline(mapped(lambda table: table), {"rows": dicts})
    assert outputs["out"].to_pylist() == [{"at": at, "key": None, "size": 3}]
    frame = polars.DataFrame({"size": [3], "at": [at], "key": ["a"], "other": [1]})
    outputs = run_pipeline(mapped(lambda table: table), {"rows": frame})
    assert outputs["out"].to_pylist() == [{"at": at, "key": "a", "size": 3}]


@pytest.mark.parametrize("view", [pa.list_view, pa.large_list_view])
def test_views_of_lists_have_the_same_values(
    view: Callable[[pa.DataType], pa.DataType],
) -> None:
    schema = pa.schema([("at", pa.timestamp("us")), ("xs", pa.list_(pa.int8()))])
    pipeline = Pipeline("lists")
    pipeline.source("rows", TableSource(schema.empty_table(), "at")).sink("out")
    lists = [[1], None, [], [2, 3]]
    moments = pa.array(range(4), pa.timestamp("us"))
    table = pa.table({"at": moments, "xs": pa.array(lists, view(pa.int8()))})
    assert run_pipeline(pipeline, {"rows": table})["out"]["xs"].to_pylist() == lists


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"lines": []}, "inputs: there is no source 'lines'; name one of: rows"),
        ({"rows": 3}, "inputs: rows: is 3, no table"),
        (
            {"rows": [{"tine": 3}]},
            "inputs: rows: has the column 'tine' in row 0; the source has: at, key",
        ),
        ({"rows": [{"at": "today"}]}, "inputs: rows: does not fit the source's columns"),
        ({"rows": [{"at": 5.5}]}, "inputs: rows: does not fit the source's columns"),
        (
            {"rows": pa.table({"at": [1], "key": ["a"], "size": [1]})},
            "does not fit the source's columns (column 'at': has int64, and no unit of these: "
            "give it as timestamp[us])",
        ),
        ({"rows": rows(3).drop_columns(["key"])}, "inputs: rows: has no column 'key'"),
        ({"rows": rows(3).take([0, 2, 1])}, "is not sorted by 'at': row 2 is earlier"),
        ({"rows": [{"size": 1}]}, "step rows: its table: has no 'at' in row 0"),
        ([rows(3)], "inputs: is of type list"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        run_pipeline(mapped(lambda table: table), inputs)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"epochs": 0}, {"epochs": 1.5}, {"parallelism": 2000}, {"rows_max": 0}]
)
def test_numbers_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"^{next(iter(options))}: is .*; give a whole number"):
        run_pipeline(mapped(lambda table: table), {"rows": rows(1)}, **options)


def test_a_function_that_raises_is_named_with_its_file_and_the_row() -> None:
    def divide(table: pa.Table) -> pa.Table:
        return [1 // (size - 13) for size in table["size"].to_pylist()] and table

    with pytest.raises(StepError) as caught:
        run_pipeline(mapped(divide), {"rows": rows(20)})
    assert str(caught.value).startswith("step changed: raised ZeroDivisionError: ")
    assert "source row 13, at=1970-01-01 00:00:13" in str(caught.value)
    assert re.search(r", in divide \(\S*test_run_pipeline\.py:\d+\); mend", str(caught.value))
    assert "committed" not in str(caught.value)


def test_dead_letters_are_an_output_beside_the_queries() -> None:
    def refuse(table: pa.Table) -> pa.Table:
        if 13 in table["size"].to_pylist():
            raise ValueError("thirteen")
        return table

    outputs = run_pipeline(mapped(refuse, dead_letters=True), {"rows": rows(20)})
    assert outputs["out"].num_rows == 19
    letters = outputs["changed.dead-letters"].to_pylist()
    assert [(row["size"], row["dead_letter_error"]) for row in letters] == [
        (13, "raised ValueError: thirteen")
    ]
    outputs = run_pipeline(mapped(refuse, dead_letters=True), {"rows": rows(5)})
    assert outputs["changed.dead-letters"].num_rows == 0
    assert "dead_letter_step" in outputs["changed.dead-letters"].column_names


def test_a_repeat_that_differs_ends_the_run_and_names_the_step() -> None:
    ticks = numbers()

    def stamp(table: pa.Table) -> pa.Table:
        return table.set_column(2, "size", pa.array([next(ticks)] * len(table), pa.int64()))

    def built(**options: bool) -> Pipeline:
        pipeline, stream = started()
        stamped = stream.map("stamped", stamp, schema=SCHEMA, **options)
        stamped.filter("all", lambda table: pc.is_valid(table["at"])).sink("out")
        stamped.window("w", keys=["key"], size_seconds=5, aggregates={"s": total("size")}).sink("s")
        return pipeline

    with pytest.raises(RunError, match=r"^step stamped, epoch 2: gave another output when it ran"):
        run_pipeline(built(), {"rows": rows(20)}, epochs=4)
    assert run_pipeline(built(), {"rows": rows(20)}, repeat=False)["out"].num_rows == 20
    uncertain = run_pipeline(built(deterministic=False), {"rows": rows(20)})
    assert uncertain["out"].num_rows == 20


def test_what_an_operator_keeps_in_itself_is_found_as_after_a_failure() -> None:
    class Counts(Sums):
        seen = 0

        def handle(self, key: Any, rows: Any, _: Any) -> Any:
            for row in rows:
                self.seen += 1
                yield {"at": row["at"], "key": key[0], "sum": self.seen}

    pipeline, stream = started()
    stream.stateful("counts", Counts(), keys=["key"], schema=SUMS).sink("out")
    with pytest.raises(RunError, match=r"^step counts, epoch 2: gave another output"):
        run_pipeline(pipeline, {"rows": rows(20)})


def test_a_function_with_a_lock_is_refused_as_on_a_cluster() -> None:
    lock = threading.Lock()
    with pytest.raises(InputError, match=r"^step changed: uses the variable 'lock', which cannot"):
        run_pipeline(mapped(lambda table: table if lock else None), {"rows": rows(1)})


def test_a_null_where_none_may_be_names_the_step() -> None:
    schema = pa.schema([SCHEMA.field("at"), pa.field("key", pa.string(), nullable=False)])
    pipeline, stream = started()
    stream.map(
        "bare",
        lambda table: pa.table([table["at"], pa.nulls(len(table), pa.string())], schema=schema),
        schema=schema,
    ).sink("out")
    with pytest.raises(StepError, match=r"^step bare: raised ArrowInvalid: column 'key' has nulls"):
        run_pipeline(pipeline, {"rows": rows(2)})


@pytest.fixture
def replayed(tmp_path: Path) -> Pipeline:
    """A pipeline on two files, the second of which starts over every 20 seconds."""
    pq.write_table(rows(20), tmp_path / "rows.parquet")
    pipeline = Pipeline("sizes")
    path = tmp_path / "rows.parquet"
    pipeline.source("once", Replay(path, "at")).sink("once-rows")
    pipeline.source("again", Replay(path, "at", repeat_every_seconds=20.0)).sink("again-rows")
    return pipeline


def test_the_pipelines_own_files_are_read_in_the_order_of_event_time(replayed: Pipeline) -> None:
    found = run(replayed, rows_max=50)
    assert found.rows == {"once": 20, "again": 30}
    assert found.has_more
    outputs = run_pipeline(replayed, {"once": rows(3)}, rows_max=13)
    assert outputs["once-rows"].num_rows == 3
    assert outputs["again-rows"].num_rows == 10


def test_a_file_with_no_end_is_read_up_to_a_limit(replayed: Pipeline) -> None:
    assert sum(run(replayed, repeat=False).rows.values()) == 10_000


def test_rows_of_one_moment_stay_together_whatever_the_limit() -> None:
    same = rows(6).set_column(
        0, "at", pa.array([SECOND] * 4 + [2 * SECOND] * 2, pa.timestamp("us"))
    )
    assert run(mapped(lambda table: table), {"rows": same}, rows_max=1).rows == {"rows": 4}
    assert run(mapped(lambda table: table), {"rows": same}, rows_max=5).rows == {"rows": 4}


def test_late_rows_are_counted_for_the_step_that_drops_them() -> None:
    def back(table: pa.Table) -> pa.Table:
        moved = pc.subtract(table["at"], pa.scalar(60 * SECOND, pa.duration("us")))
        return table.set_column(
            0, "at", pc.if_else(pc.equal(table["size"], 19), moved, table["at"])
        )

    pipeline, stream = started()
    moved = stream.map("moved", back, schema=SCHEMA)
    tens: dict[str, Any] = {"keys": ["key"], "size_seconds": 10, "aggregates": {"n": count()}}
    moved.window("tens", **tens).sink("out")
    moved.window("kept", **tens, late=True).sink("other")
    result = run(pipeline, {"rows": rows(20)}, epochs=5)
    assert result.late_rows == {"tens": 1, "kept": 1}
    assert result.outputs["other"].equals(result.outputs["out"])
    (late,) = result.outputs["kept.late"].to_pylist()
    assert (late["size"], late["late_step"], late["late_epoch"]) == (19, "kept", 5)
    result = run(pipeline, {"rows": rows(20)}, epochs=1)
    assert result.late_rows == {"tens": 0, "kept": 0}
    assert result.outputs["kept.late"].num_rows == 0


def test_the_pipeline_itself_stays_as_it_is() -> None:
    pipeline = mapped(lambda table: table)
    before = dict(pipeline.steps)
    run_pipeline(pipeline, {"rows": rows(3)}, parallelism=4)
    assert pipeline.steps == before

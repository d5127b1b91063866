"""Steps as they are written: a wrong argument is refused with step and remedy, and in no other way.

The first tests feed every argument with values of every wrong kind; the others hold what single
mistakes are told.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from rekindle.model.errors import InputError
from rekindle_spark.operators import StatefulOperator
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import (
    Pipeline,
    Step,
    Stream,
    count,
    largest,
    mean,
    smallest,
    total,
)
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("size", pa.int64())])
SOURCE = UnreadSource(SCHEMA, "at")
# Each is wrong for every argument, but for those of `FITTING`.
WRONG = {
    "None": None,
    "5": 5,
    "empty": "",
    "nan": math.nan,
    "object": object(),
    "class": Pipeline,
    "bytes": b"key",
    "beyond all limits": 10**5_000,
}
FITTING = {
    ("source", "parallelism"): {"5"},
    ("source", "cost_hint"): {"5"},
    ("map", "event_time"): {"empty"},
    ("window", "size_seconds"): {"5"},
    ("window", "slide_seconds"): {"None", "5"},
    ("window", "parallelism"): {"5"},
    ("top", "count"): {"5"},
    ("top", "parallelism"): {"5"},
    ("stateful", "event_time"): {"empty"},
    ("stateful", "parallelism"): {"5"},
    ("join", "within_seconds"): {"5"},
    ("join", "parallelism"): {"5"},
    ("sink", "priority"): {"5"},
    ("sink", "lag_goal_seconds"): {"None", "5"},
}


class Latest(StatefulOperator):
    value_schema = pa.schema([("size", pa.int64())])

    def handle(self, *_: Any) -> Any:
        return ()


def keep(table: pa.Table) -> pa.Table:
    return table


def counted(rows: Stream, *, keys: Any = ("key",), parallelism: Any = 1, **aggregates: Any) -> Any:
    aggregates = aggregates or {"n": count()}
    return rows.window(
        "n", keys=keys, size_seconds=60, aggregates=aggregates, parallelism=parallelism
    )


ROWS = Pipeline("tried").source("rows", SOURCE)
SOUND: Mapping[str, Mapping[str, Any]] = {
    "source": {"source": SOURCE, "parallelism": 2, "cost_hint": 0.5},
    "map": {"function": keep, "schema": SCHEMA, "event_time": "at"},
    "filter": {"predicate": keep},
    "window": {
        "keys": ["key"],
        "size_seconds": 60,
        "slide_seconds": 30,
        "aggregates": {"n": count(), "least": smallest("size"), "most": largest("key")},
        "parallelism": 2,
    },
    "top": {"by": "size", "count": 3, "keys": ["key"], "ties": ["size"], "parallelism": 2},
    "stateful": {
        "operator": Latest(),
        "keys": ["key"],
        "schema": SCHEMA,
        "event_time": "at",
        "parallelism": 2,
        "arrival_order": True,
    },
    "join": {"other": ROWS, "keys": ["key"], "within_seconds": 0, "parallelism": 2},
    "sink": {"priority": 1, "lag_goal_seconds": 10},
}


def write(method: str, name: Any = "tried", **changes: Any) -> None:
    """Add one step of a kind to a pipeline that has nothing but rows."""
    rows = Pipeline("tried").source("rows", SOURCE)
    arguments = {**SOUND[method], **changes}
    if arguments.get("other") is ROWS:
        arguments["other"] = rows
    getattr(rows.pipeline if method == "source" else rows, method)(name, **arguments)
    assert name in rows.pipeline.steps


def refusal(mistake: Callable[[], object]) -> str:
    """The message of a mistake that must be refused."""
    with pytest.raises(InputError) as caught:
        mistake()
    assert "\n" not in str(caught.value)
    assert caught.value.remedy
    return str(caught.value)


@pytest.mark.parametrize("method", SOUND)
def test_sound_arguments_are_taken(method: str) -> None:
    write(method)


@pytest.mark.parametrize(
    ("method", "argument", "value"),
    [
        pytest.param(method, argument, value, id=f"{method}-{argument}-{kind}")
        for method, arguments in SOUND.items()
        for argument in arguments
        for kind, value in WRONG.items()
        if kind not in FITTING.get((method, argument), ())
    ],
)
def test_an_argument_of_a_wrong_kind_is_refused_with_the_step(
    method: str, argument: str, value: object
) -> None:
    assert refusal(lambda: write(method, **{argument: value})).startswith("step tried: ")


@pytest.mark.parametrize(
    ("method", "argument"),
    [("window", "keys"), ("top", "keys"), ("top", "ties"), ("stateful", "keys"), ("join", "keys")],
)
@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_a_list_of_columns_with_something_else_in_it_is_refused_with_step_and_argument(
    method: str, argument: str, value: object
) -> None:
    said = refusal(lambda: write(method, **{argument: ["key", value]}))
    assert said.startswith(f"step tried: {argument}: there is no column ")


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_an_aggregate_of_a_wrong_kind_is_refused_with_step_and_name(value: Any) -> None:
    place = "step tried: aggregates: "
    assert refusal(lambda: write("window", aggregates={"n": value})).startswith(f"{place}n: ")
    assert refusal(lambda: write("window", aggregates={value: count()})).startswith(place)
    for made in (total(value), mean(value), smallest(value), largest(value)):
        said = refusal(lambda made=made: write("window", aggregates={"n": made}))  # type: ignore[misc]
        assert said.startswith(f"{place}n: ")


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_a_union_of_something_else_is_refused_with_step_and_place(value: Any) -> None:
    said = refusal(lambda: ROWS.pipeline.union("both", ROWS, value))
    assert said.startswith("step both: input 2: is ")


NAMES = [*WRONG.values(), "a/b", ".hidden", "two words", "line\nline", "näher", "x" * 101, ["x"]]


@pytest.mark.parametrize("name", NAMES, ids=[str(place) for place in range(len(NAMES))])
def test_a_name_that_cannot_be_a_folders_is_refused_with_the_rule(name: Any) -> None:
    rule = ": is no usable name; use 1 to 100 letters from a to z or A to Z, digits, '-', '_'"
    for method in SOUND:
        said = refusal(lambda method=method: write(method, name))  # type: ignore[misc]
        assert said.startswith("step ")
        assert rule in said
    assert rule in refusal(lambda: ROWS.pipeline.union(name, ROWS))
    assert refusal(lambda: Pipeline(name)).startswith("pipeline ")


def test_a_name_may_have_a_hundred_characters() -> None:
    write("sink", "x" * 100)


@pytest.mark.parametrize(
    "parallelism", [0, -1, 1_025, 10**9, 1.0, 2.5, math.nan, math.inf, True, "2", None]
)
@pytest.mark.parametrize("method", ["source", "window", "top", "stateful", "join"])
def test_a_parallelism_is_a_whole_number_up_to_a_limit(method: str, parallelism: Any) -> None:
    said = refusal(lambda: write(method, parallelism=parallelism))
    assert (
        said == f"step tried: parallelism: is {parallelism!r}; give a whole number from 1 to 1,024"
    )


@pytest.mark.parametrize("method", ["window", "top", "stateful", "join"])
def test_a_keyed_step_without_keys_has_one_partition(method: str) -> None:
    write(method, keys=[], parallelism=1)
    said = refusal(lambda: write(method, keys=[], parallelism=2))
    assert said.startswith("step tried: parallelism: is 2, but without keys all rows go to one")


def test_a_step_that_is_added_by_value_is_held_to_the_same() -> None:
    step = Step("n", "keyed", ("rows",), 2, None, SCHEMA, "at")
    assert "but without keys" in refusal(lambda: ROWS.pipeline.add(step))


@pytest.mark.parametrize("hint", [0, -1, math.nan, math.inf, True, "2"])
def test_a_cost_hint_is_a_number_above_zero(hint: Any) -> None:
    said = refusal(lambda: write("source", cost_hint=hint))
    assert said == f"step tried: cost_hint: is {hint!r}; give a number from 0.01 to 10,000"


def test_a_stream_of_another_pipeline_is_refused_with_both_pipelines() -> None:
    stranger = Pipeline("other").source("rows", SOURCE)
    words = "is 'rows' of another pipeline, 'other'; give a stream of this one, 'tried'"
    assert words in refusal(lambda: write("join", other=stranger))
    assert words in refusal(lambda: ROWS.pipeline.union("both", ROWS, stranger))


@pytest.mark.parametrize("column", ["epoch", "committed_at"])
def test_a_column_that_reports_add_cannot_go_into_a_sink(column: str) -> None:
    schema = SCHEMA.append(pa.field(column, pa.int64()))
    rows = Pipeline("tried").source("rows", UnreadSource(schema, "at"))
    assert refusal(lambda: rows.sink("all")) == (
        f"step all: column '{column}': has the name of a column that reports add to a query's "
        "rows; rename it in a map step"
    )


def missing(rows: Stream, names: Sequence[str]) -> object:
    return rows.map("n", keep, schema=pa.schema([SCHEMA.field(name) for name in names]))


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda rows: rows.sink("rows"), "step rows: is there twice"),
        (lambda rows: rows.sink(5), "step 5: is no usable name"),
        (
            lambda rows: rows.sink("n", priority=10.1),
            "n: priority: is 10.1; give a number from 1 (",
        ),
        (lambda rows: rows.sink("n", priority=True), "step n: priority: is True"),
        (
            lambda rows: rows.sink("n", lag_goal_seconds=0),
            "n: lag_goal_seconds: is 0; give seconds from 0.01 to 86400, or None for no goal",
        ),
        (lambda rows: rows.sink("n", lag_goal_seconds=-10), "n: lag_goal_seconds: is -10"),
        (lambda rows: rows.sink("n", lag_goal_seconds=float("nan")), "seconds: is nan"),
        (lambda rows: rows.sink("n", lag_goal_seconds="10"), "lag_goal_seconds: is '10'"),
        (lambda rows: rows.sink("n", lag_goal_seconds=86_400.5), "seconds: is 86400.5"),
        (
            lambda rows: counted(rows, keys=["age"]),
            "keys: there is no column 'age'; name one of: at",
        ),
        (lambda rows: counted(rows, keys="key"), "keys: is 'key', not a list; write ['key']"),
        (lambda rows: counted(rows, n=count), "aggregates: n: is of type function; use count()"),
        (lambda rows: counted(rows, n="count"), "step n: aggregates: n: is 'count'; use count()"),
        (lambda rows: counted(rows, n=total("key")), "aggregates: n: column 'key' has type string"),
        (lambda rows: rows.top("n", by="age", count=1), "step n: by: there is no column 'age'"),
        (lambda rows: rows.map("n", 5, schema=SCHEMA), "n: function: is 5; give a function that"),
        (lambda rows: rows.map("n", keep, schema=5), "n: schema: is 5; give a pyarrow.Schema"),
        (
            lambda rows: missing(rows, ["key"]),
            "n: event time: there is no column 'at'; name one of: k",
        ),
        (lambda rows: missing(rows, ["at", "at"]), "step n: has more than one column 'at'"),
        (
            lambda rows: rows.map("n", keep, schema=SCHEMA, event_time="size"),
            "step n: event time 'size': has type int64; make it timestamp[us]",
        ),
        (lambda rows: rows.pipeline.union("n"), "step n: unites no streams; give it at least one"),
        (
            lambda rows: rows.pipeline.union("n", rows, missing(rows, ["at"])),
            "step n: input n: has another schema or event time than rows",
        ),
        (
            lambda rows: rows.pipeline.source("n", "rows.parquet"),
            "step n: source: is 'rows.parquet'; give a Replay(path, event_time), or",
        ),
        (
            lambda rows: rows.pipeline.source("n", Replay),
            "step n: source: is the class Replay; give",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place_and_remedy(mistake: Any, words: str) -> None:
    rows = Pipeline("wrong").source("rows", SOURCE)
    assert words in refusal(lambda: mistake(rows))

"""Limits of batches as options of sources, who takes one, and the pools of Spark's scheduler."""

from collections.abc import Callable
from typing import Any

import pytest

from rekindle.model.errors import InputError
from rekindle_spark.protection import start_terms
from rekindle_spark.protection.start_terms import BatchLimit

PRIORITIES = {"orders": 9.0, "fraud": 5.0, "report": 5.0, "archive": 1.0}


def test_at_the_first_start_no_source_is_limited() -> None:
    assert BatchLimit().options("kafka") == {}
    assert BatchLimit().options("json", rows_per_file=10) == {}


def test_a_batch_takes_what_was_worked_off_in_four_intervals_and_in_20_seconds_at_least() -> None:
    assert start_terms.of_rate(50.0, 60.0) == BatchLimit(12_000)
    assert start_terms.of_rate(50.0, 1.0) == BatchLimit(1_000)
    assert start_terms.of_rate(0.0, 60.0) == BatchLimit(None)


def test_rows_become_offsets_or_files_and_never_none_of_them() -> None:
    limit = BatchLimit(1_050)
    assert limit.options("kafka") == {"maxOffsetsPerTrigger": "1050"}
    assert limit.options("parquet", rows_per_file=100) == {"maxFilesPerTrigger": "10"}
    assert limit.options("parquet", rows_per_file=9_000) == {"maxFilesPerTrigger": "1"}


@pytest.mark.parametrize(
    ("source", "rows_per_file", "remedy"),
    [
        ("socket", None, "the value of `rows_max`"),
        ("csv", None, "give `rows_per_file`"),
        ("csv", 0, "give `rows_per_file`"),
    ],
    ids=["other", "no-size", "no-rows"],
)
def test_a_source_that_cannot_be_limited_is_refused_at_the_first_start(
    source: str, rows_per_file: int | None, remedy: str
) -> None:
    with pytest.raises(InputError) as refused:
        BatchLimit().options(source, rows_per_file=rows_per_file)
    assert remedy in refused.value.remedy


class Orders:
    def start(self, limit: BatchLimit) -> None:
        """A function of an object."""


def taking(limit: BatchLimit, *more: Any, **options: Any) -> None:
    """It takes a limit."""


def with_default(name: str = "orders", *, path: str | None = None) -> None:
    """It needs nothing, as `start` of a stream writer."""


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (taking, True),
        (Orders().start, True),
        (with_default, False),
        (lambda: None, False),
        (dict, False),
    ],
    ids=["function", "method", "defaults", "none", "built-in"],
)
def test_a_function_that_needs_an_argument_takes_a_limit(
    start: Callable[..., Any], expected: bool
) -> None:
    assert start_terms.is_taken_by(start, "orders") == expected


def two(spark: object, limit: BatchLimit) -> None:
    """It needs too much."""


def by_name(*, limit: BatchLimit) -> None:
    """Its argument has no place."""


@pytest.mark.parametrize("start", [two, by_name])
def test_a_function_that_needs_anything_else_is_refused(start: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match=r"query orders: its start function needs .*limit"):
        start_terms.is_taken_by(start, "orders")


def test_the_most_important_have_their_slots_first_as_far_as_there_are_some() -> None:
    loads = {"orders": 150.0, "fraud": 40.0, "report": 40.0, "archive": 40.0}
    assert start_terms.min_shares(loads, PRIORITIES, 5) == {
        "orders": 2,
        "fraud": 1,
        "report": 1,
        "archive": 1,
    }
    shares = start_terms.min_shares(loads, PRIORITIES, 4)
    assert shares == {"orders": 2, "fraud": 1, "report": 1, "archive": 0}


def test_of_equals_none_has_slots_that_the_others_cannot_have() -> None:
    loads = {"fraud": 40.0, "report": 40.0, "orders": 150.0, "archive": 1.0}
    shares = start_terms.min_shares(loads, PRIORITIES, 3)
    assert shares == {"orders": 2, "fraud": 0, "report": 0, "archive": 0}


def test_without_slots_nobody_has_any() -> None:
    assert start_terms.min_shares({"orders": 1.0}, PRIORITIES, 0) == {"orders": 0}


def test_pools_of_what_matters_more_have_names_that_come_first() -> None:
    order = {"a": 1.0, "b": 5.5, "c": 5.25, "d": 10.0}
    names = {name: start_terms.pool_name(name, order[name], 1) for name in order}
    assert sorted(names, key=lambda name: names[name]) == ["d", "b", "c", "a"]


def test_another_share_is_another_pool_for_what_a_pool_has_cannot_be_changed() -> None:
    assert start_terms.pool_name("a", 1.0, 1) != start_terms.pool_name("a", 1.0, 2)

"""Rates and lags by the commits of queries, and the pipeline of some queries alone."""

import math
from pathlib import Path
from typing import Any

import pytest

from rekindle.model.errors import RunError
from rekindle_bench import steady_benchmark
from rekindle_local.flights import flight_data, flight_pipeline
from rekindle_peers import freshness
from rekindle_peers.freshness import Commits, ReflectedRows
from rekindle_spark.pipeline import program


def cut(epoch: int, rows: int, cut_at: float, **more: Any) -> dict[str, Any]:
    return {"kind": "cut", "epoch": epoch, "rows": rows, "cut_at": cut_at, **more}


def commit(query: str, epoch: int, at: float) -> dict[str, Any]:
    return {"kind": "commit", "query": query, "epoch": epoch, "at": at}


def taken(queries: tuple[str, ...], *events: dict[str, Any]) -> Commits:
    commits = Commits(queries)
    for event in events:
        commits.add(event)
    return commits


def test_an_epoch_holds_the_rows_of_all_queries_and_rows_add_up() -> None:
    commits = taken(
        ("a", "b"),
        cut(1, 100, 1.0),
        commit("a", 1, 1.5),
        commit("b", 1, 1.5),
        cut(2, 50, 2.0),
        commit("a", 2, 2.5),
    )
    assert commits.of["a"] == [ReflectedRows(1.5, 1.0, 100), ReflectedRows(2.5, 2.0, 150)]
    found = commits.between(2.0, 3.0)
    assert {query: len(those) for query, those in found.items()} == {"a": 1, "b": 0}


def test_a_batch_is_a_querys_own_and_counts_from_the_begin() -> None:
    commits = taken(
        ("a", "b"),
        cut(0, 100, 1.0, query="a"),
        commit("a", 0, 3.0),
        cut(0, 300, 2.0, query="b"),
        commit("b", 0, 4.0),
        cut(1, 250, 5.0, query="a"),
        commit("a", 1, 6.0),
        commit("a", 2, 7.0),
    )
    assert commits.of["a"] == [ReflectedRows(3.0, 1.0, 100), ReflectedRows(6.0, 5.0, 250)]
    assert commits.of["b"] == [ReflectedRows(4.0, 2.0, 300)], "one without input says nothing"


def test_the_slowest_query_tells_the_rate() -> None:
    fast = [ReflectedRows(0.0, 0.0, 0), ReflectedRows(10.0, 0.0, 1000)]
    slow = [ReflectedRows(0.0, 0.0, 0), ReflectedRows(10.0, 0.0, 500)]
    assert freshness.rows_per_second({"a": fast, "b": slow}) == 50.0
    assert freshness.rows_per_second({"a": fast, "b": slow[:1]}) == 0.0


def test_an_epoch_that_each_partition_commits_is_one() -> None:
    """Three commits of a query in one epoch would be taken for enough to tell a rate by."""
    commits = taken(
        ("a", "b"),
        *(cut(epoch, 100, float(epoch)) for epoch in (1, 2)),
        *(commit("a", 1, 1.5 + part / 10) for part in range(3)),
        *(commit("b", epoch, epoch + 0.5) for epoch in (1, 2)),
    )
    assert freshness.fewest_epochs(commits.between(0.0, 9.0)) == 1


def test_cpu_is_told_per_row_where_all_queries_have_the_same_rate() -> None:
    commits = taken(
        ("a", "b"),
        *(cut(epoch, 1_000, float(epoch)) for epoch in range(1, 5)),
        *(commit(query, epoch, epoch + 0.5) for query in "ab" for epoch in range(1, 5)),
    )
    part = steady_benchmark._Run(commits, 0.0, 5.0, cpu_seconds=10.0)
    assert steady_benchmark._cpu_seconds_per_million_rows(part, Path("x")) == pytest.approx(2_000.0)
    with pytest.raises(RunError, match="not every query had 3 epochs"):
        steady_benchmark._cpu_seconds_per_million_rows(
            steady_benchmark._Run(commits, 8.0, 9.0, 1.0), Path("x")
        )


def test_lag_grows_with_the_clock_until_the_next_commit() -> None:
    commits = {"a": [ReflectedRows(1.0, 0.5, 10), ReflectedRows(2.0, 1.5, 20)]}
    found = freshness.lags(commits, 1.0, 3.0)
    assert found[0] == pytest.approx(0.5)
    assert found[-1] == pytest.approx(1.5, abs=0.06)
    assert len(found) == 40
    assert freshness.lags(commits, 0.5, 1.0)[-1] == math.inf


def test_some_queries_alone_are_what_they_need(tmp_path: Path) -> None:
    flight_data.prepare(tmp_path, year_fraction=0.05)
    part = flight_pipeline.build(tmp_path, names=("weather-days",))
    assert set(part.steps) == {"weather", "weather-by-day", "weather-days"}
    assert [query.name for query in program.build(part).topology.queries] == ["weather-days"]

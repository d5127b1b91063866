"""A function that keeps raising stops what cannot run without it, and nothing else."""

import threading
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from rekindle.model.errors import StepError
from rekindle.model.settings import Policy, Settings
from rekindle_spark.control import query_stop
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
# rows/0, by-key/0, by-key/1, largest/0
ROWS, KEYS0, KEYS1, LARGEST = range(4)
FAULT = StepError(where="step by-key", what="raised ValueError: bad", remedy="mend it")
OTHER = StepError(where="step largest", what="raised ValueError: bad", remedy="mend it")


def application(**policy: Any) -> Any:
    """rows -> by-key x2, the query `keys`, -> largest, the query `top`; `all` are the rows."""
    built = Pipeline("three")
    rows = built.source("rows", UnreadSource(SCHEMA, "at"))
    rows.sink("all")
    keys = rows.window(
        "by-key", keys=["key"], size_seconds=1, aggregates={"n": count()}, parallelism=2
    )
    keys.sink("keys")
    keys.top("largest", by="n", count=1).sink("top")
    made = program.build(built)
    progress, told = PartitionTable(made), list[dict[str, Any]]()
    for partition in range(4):
        progress.place(partition, "a", 1)
        progress.live.add(partition)
    return SimpleNamespace(
        program=made,
        progress=progress,
        settings=Settings(Policy(**policy)),
        events=SimpleNamespace(write=lambda kind, **fields: told.append({"kind": kind, **fields})),
        told=told,
        lock=threading.RLock(),
        losses=0,
        claimed=set(),
        newest=12,
    )


def test_the_other_queries_go_on_until_the_end_and_then_the_error_is_raised() -> None:
    found = application()
    query_stop.check(found)
    query_stop.stop(found, {KEYS1: FAULT})
    assert found.progress.live == {ROWS, KEYS0}
    assert found.progress.complete
    assert found.losses == 1
    assert found.told == [
        {
            "kind": "query-stopped",
            "query": query,
            "query_partition": query_partition,
            "epoch": 12,
            "text": str(FAULT),
        }
        for query, query_partition in (("keys", "keys/1"), ("top", "top/0"))
    ]
    with pytest.raises(StepError, match="step by-key: raised ValueError: bad"):
        query_stop.check(found)


def test_what_has_stopped_or_is_lost_is_not_stopped_again() -> None:
    found = application()
    query_stop.stop(found, {KEYS1: FAULT})
    query_stop.stop(found, {KEYS1: FAULT, LARGEST: OTHER})
    assert (found.losses, len(found.told)) == (1, 2)
    found.progress.lose(["a"])
    query_stop.stop(found, {KEYS0: FAULT})
    assert (found.losses, len(found.told)) == (1, 2)


def test_where_no_query_is_left_the_error_ends_the_run_at_once() -> None:
    found = application()
    query_stop.stop(found, {LARGEST: OTHER})
    with pytest.raises(StepError, match="step by-key"):
        query_stop.stop(found, {ROWS: FAULT})


def test_where_nothing_is_kept_for_those_who_stop_the_error_ends_the_run_at_once() -> None:
    with pytest.raises(StepError, match="step by-key"):
        query_stop.stop(application(buffering="adaptive"), {KEYS0: FAULT})


def test_jobs_on_their_way_go_on_where_nothing_of_them_stops() -> None:
    found = application()
    found.progress.live -= {LARGEST}
    query_stop.stop(found, {LARGEST: OTHER})
    assert found.losses == 0
    found.claimed = {KEYS1}
    found.progress.live -= {KEYS0, KEYS1}
    query_stop.stop(found, {KEYS1: FAULT})
    assert found.losses == 1

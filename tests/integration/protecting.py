"""A program on real Spark: what `protect` refuses, stops, starts again and leaves alone.

`test_protected_queries.py` runs it in a process of its own, with a folder as its argument, and
`test_spark_releases.py` on other releases of Spark, with the names of some checks behind that.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyspark.sql.functions as f
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import rekindle
from rekindle.model.errors import InputError
from rekindle_spark.protection import protected_query, spark_view
from rekindle_spark.protection.protected_query import ProtectedQuery
from rekindle_spark.protection.protection import _thread_like_this
from rekindle_spark.protection.spark_view import STALLED_SECONDS, Heartbeats, RunTimes, TaskRetries
from rekindle_spark.protection.start_terms import BatchLimit, SchedulerPools, pool_name

FOLDER = Path(sys.argv[1])
DEADLINE = time.monotonic() + 600.0

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.shuffle.partitions", "1")
builder = builder.config("spark.scheduler.mode", "FAIR")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()


def stream(name: str, written: Callable[[Any], Any] = lambda writer: writer) -> Callable[[], Any]:
    """A function that starts a stream of numbers."""

    def start() -> Any:
        numbers = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
        writer = numbers.writeStream.format("parquet").option("path", str(FOLDER / name))
        writer = writer.option("checkpointLocation", str(FOLDER / "checkpoints" / name))
        return written(writer).start()

    return start


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        assert time.monotonic() < DEADLINE, "it takes too long"
        time.sleep(0.1)


@contextmanager
def refused(said: str) -> Iterator[None]:
    with pytest.raises(InputError, match=re.escape(said)):
        yield
    assert not spark.streams.active, "nothing that was refused goes on"


def check_refusals() -> None:
    with refused("has the trigger availableNow"):
        rekindle.protect(
            spark, {"a": stream("a", lambda writer: writer.trigger(availableNow=True))}
        )
    with refused("has the trigger continuous"):
        numbers = spark.readStream.format("rate").load().writeStream.format("console")
        rekindle.protect(spark, {"b": numbers.trigger(continuous="1 hour").start})
    with refused("has no checkpoint of its own"):
        rekindle.protect(spark, {"b": _numbers_to_nowhere().start})
    with refused("has no checkpoint of its own"), _checkpoints_in(FOLDER / "random"):
        rekindle.protect(spark, {"b": _numbers_to_nowhere().start})
    with refused("gives NoneType, and no StreamingQuery"):
        rekindle.protect(spark, {"a": stream("a"), "c": lambda: None})
    with refused("there is no query 'd'"):
        rekindle.protect(spark, {"c": stream("c")}, priorities={"d": 3})
    with refused("is a session of Spark Connect"):
        rekindle.protect(object(), {"c": stream("c")})


def _numbers_to_nowhere() -> Any:
    """A stream of which nothing is kept, also without a checkpoint of its own."""
    numbers = spark.readStream.format("rate").load()
    return numbers.writeStream.foreachBatch(lambda *_: None)


@contextmanager
def _checkpoints_in(folder: Path) -> Iterator[None]:
    """Where checkpoints are of queries that name none."""
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(folder))
    yield
    spark.conf.unset("spark.sql.streaming.checkpointLocation")


def check_stop_and_start() -> None:
    """With an interval a stop waits for the boundary; the same query goes on in another run."""
    query = ProtectedQuery(
        "e", stream("e", lambda writer: writer.trigger(processingTime="20 seconds"))
    )
    with ThreadPoolExecutor(1) as pool:
        query.begin()
        before = str(query.query.id), query.run_id
        wait_until(lambda: _committed(query) >= 1)
        wait_until(lambda: not query.query.status["isTriggerActive"])
        query.look(lambda _: None, time.monotonic())
        was_running = query.is_running
        query.steer(wanted=False, pool=pool, now=time.monotonic())
        assert (was_running, query.is_running) == (True, False)
        wait_until(lambda: not query.query.isActive)
        assert _numbers("e", "offsets") == _numbers("e", "commits"), "it stopped within a batch"
        wait_until(lambda: _settled(query))
        query.steer(wanted=True, pool=pool, now=time.monotonic())
        assert not query.is_busy, "Python workers of the old run may still write"
        wait_until(lambda: time.monotonic() >= query.rests_until)
        query.steer(wanted=True, pool=pool, now=time.monotonic())
        wait_until(lambda: _settled(query))
        assert query.is_running
        assert str(query.query.id) == before[0]
        assert query.run_id != before[1]
        assert query.ended is None
        wait_until(lambda: _committed(query) >= 2)  # the first batch of this source is empty
        query.query.stop()
    rows = spark.read.parquet(str(FOLDER / "e"))
    assert rows.count() == rows.select("value").distinct().count() > 0


def check_heartbeats() -> None:
    """Spark's driver has the table of heartbeats where it is looked for, and who has sent one is
    not silent. Here the driver itself runs tasks."""
    beats = Heartbeats(spark._jsc.sc())
    assert beats.silences(time.monotonic()) == {"driver": 0.0}


def check_task_retries() -> None:
    """A task that runs when an executor is dropped, and waits, is started again; one that has begun
    after the drop goes on."""
    begun = FOLDER / "begun"
    retries = TaskRetries(spark._jsc.sc(), spark._jvm.java.util.Arrays.toString)  # type: ignore

    def wait_once(number: int) -> int:
        if not begun.exists():
            begun.touch()
            time.sleep(3_600)
        return number

    def run() -> list[int]:
        spark.sparkContext.setJobGroup("r", "a run")
        return spark.sparkContext.parallelize([7], 1).map(wait_once).collect()

    def retry_now() -> bool:
        retries.note_drop(0.0, 1_000 * time.time())
        return retries.retry(["r"], STALLED_SECONDS) == 1

    with ThreadPoolExecutor(1) as pool, ended_group("r"):
        retries.note_drop(0.0, 1_000 * time.time())
        found = pool.submit(run)
        wait_until(begun.exists)
        assert retries.retry(["r"], STALLED_SECONDS) == 0
        retries.note_drop(0.0, 1_000 * time.time())
        assert retries.retry(["another"], STALLED_SECONDS) == 0
        wait_until(retry_now)  # Spark's status of it may come later
        wait_until(found.done)
        assert found.result() == [7]


@contextmanager
def ended_group(group: str) -> Iterator[None]:
    """Whatever happens, no job of the group runs on: a pool would wait for it."""
    try:
        yield
    finally:
        spark.sparkContext.cancelJobGroup(group)


def check_what_ends_by_itself() -> None:
    """It is left alone, until somebody has started it again."""
    query = ProtectedQuery("f", stream("f"))
    with ThreadPoolExecutor(1) as pool:
        query.begin()
        query.query.stop()
        query.look(lambda _: None, time.monotonic())
        assert query.ended == "somebody has stopped it"
        query.steer(wanted=True, pool=pool, now=time.monotonic())
        assert not query.is_busy
        again = query.start()
        query.look({str(again.id): again}.get, time.monotonic())
        assert query.is_running
        again.stop()


def check_a_start_function_that_raises() -> None:
    """In an incident it is called some times, and its query has ended with what it raises."""
    calls = []
    sound = stream("g")

    def start() -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("no such topic")
        return sound()

    query = ProtectedQuery("g", start)
    rests, protected_query.START_REST_SECONDS = protected_query.START_REST_SECONDS, (0.1, 0.1, 0.1)
    with ThreadPoolExecutor(1) as pool:
        query.begin()
        query.steer(wanted=False, pool=pool, now=time.monotonic())
        wait_until(lambda: _settled(query))
        wait_until(lambda: _steered(query, pool) and query.ended is not None)
        for _ in range(3):
            assert _steered(query, pool)
    protected_query.START_REST_SECONDS = rests
    assert len(calls) == 1 + 4
    assert query.ended == "its start function raises ValueError: no such topic"
    with pytest.raises(ValueError, match="no such topic"):
        query.raise_failure()


def check_the_thread_of_a_start_function() -> None:
    """Session and local properties are those of the thread that has called `protect`."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "shop")
    prepare, found = _thread_like_this(spark), list[Any]()

    def look() -> None:
        found.append(spark.sparkContext.getLocalProperty("spark.scheduler.pool"))
        prepare()
        found.append(spark.sparkContext.getLocalProperty("spark.scheduler.pool"))
        found.append(SparkSession.getActiveSession() is spark)

    spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as pool:
        pool.submit(look).result()
    assert found == [None, "shop", True]


def check_pools_and_limits() -> None:
    """A query has a pool with its share, another one when it is started again with another share,
    and then its batches are limited."""
    source = FOLDER / "files"
    source.mkdir()
    write_files(source, range(2))

    def start(limit: BatchLimit) -> Any:
        stream = spark.readStream.schema("value BIGINT").format("json")
        stream = stream.options(**limit.options("json", rows_per_file=100))
        writer = stream.load(str(source)).writeStream.format("parquet").option("path", target)
        checkpoint = str(FOLDER / "checkpoints" / "k")
        return writer.option("checkpointLocation", checkpoint).start()

    target = str(FOLDER / "k")
    pools = SchedulerPools(spark, {"k": 9.0}, {"k": 2})
    prepare = _thread_like_this(spark)
    query = ProtectedQuery("k", start, prepare, partial(pools.entered, "k"))
    with ThreadPoolExecutor(1) as pool:
        query.begin()
        assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") is None
        wait_until(lambda: _committed(query) >= 1)
        wait_until(lambda: _settled(query) and query.rows_per_second > 0)
        assert query.limit == BatchLimit(None)
        wait_until(lambda: uses_pool(query, (pool_name("k", 9.0, 2), 2, 9)))
        query.steer(wanted=False, pool=pool, now=time.monotonic())
        wait_until(lambda: _settled(query))
        write_files(source, range(2, 22))
        pools.shares, query.rows_per_second = {"k": 1}, 10.0  # 200 rows, which are two files
        wait_until(lambda: _steered(query, pool) and query.is_running)
        wait_until(lambda: _settled(query) and query.is_caught_up and _committed(query) >= 11)
        wait_until(lambda: uses_pool(query, (pool_name("k", 9.0, 1), 1, 9)))
        progress = query.query._jsq.recentProgress()  # in Python it is of other types on Spark 3
        rows = [json.loads(one.json())["numInputRows"] for one in progress]
        query.query.stop()
    assert [count for count in rows if count] == [200] * 10
    assert spark.read.parquet(target).distinct().count() == 2_200
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "shop")
    with pools.entered("k"):
        assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") == "shop"
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]


def write_files(folder: Path, numbers: range) -> None:
    for number in numbers:
        values = range(100 * number, 100 * number + 100)
        beside = folder.with_name(f"{number}.new")
        beside.write_text("\n".join(json.dumps({"value": value}) for value in values))
        beside.rename(folder / f"{number}.json")


def uses_pool(query: ProtectedQuery, pool: tuple[str, int, int]) -> bool:
    """Whether all jobs of a query's run have used this pool: Spark's status may say that later than
    the query says that a batch has ended."""
    with suppress(Py4JJavaError):  # a stage of theirs is not there yet
        return used_pools(query) == {pool}
    return False


def used_pools(query: ProtectedQuery) -> set[tuple[str, int, int]]:
    """Name, share and weight of the pools that the jobs of a query's run have used."""
    context = spark._jsc.sc()
    tracker, store = context.statusTracker(), context.statusStore()
    names = {
        str(store.lastStageAttempt(stage).schedulingPool())
        for job in tracker.getJobIdsForGroup(query.run_id)
        for stage in tracker.getJobInfo(job).get().stageIds()
    }
    found = {name: context.getPoolForName(name).get() for name in names}
    return {(name, one.minShare(), one.weight()) for name, one in found.items()}


def check_costs() -> None:
    """A row takes 20 ms, and 20 come in a second: 40 % of a core, and something for each job. It is
    less only until the source has begun."""

    @f.udf("string")
    def slow(value: int) -> str:
        time.sleep(0.02)
        return str(value)

    def start() -> Any:
        numbers = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
        writer = numbers.select(slow("value")).writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(FOLDER / "checkpoints" / "i"))
        return writer.trigger(processingTime="4 seconds").start()

    jvm: Any = spark._jvm
    query, loads = ProtectedQuery("i", start), dict[str, float]()
    times = RunTimes(spark._jsc.sc(), jvm.java.util.Arrays.toString)
    query.begin()
    assert query.interval_seconds == 4.0

    def is_measured() -> bool:
        loads.update(times.loads({"i": query.run_id}, {"i": 8.0}))
        return loads.get("i", 0.0) > 30.0

    wait_until(is_measured)
    query.query.stop()
    unknown = 1_000_000
    store = times.context.statusStore()
    assert spark_view._end_millis(store, unknown) is None
    assert spark_view._job_millis(store, unknown) == 0
    assert spark_view._stage_millis(store, unknown) == 0


def check_without_a_sidecar() -> None:
    """Queries are started, and that is all."""
    spark.streams.resetTerminated()
    protected = rekindle.protect(spark, {"h": stream("h")})
    assert protected.running == {"h"}
    assert not protected.await_termination(timeout_seconds=1)
    protected.stop()
    assert protected.running == frozenset()


CHECKS = (
    check_refusals,
    check_stop_and_start,
    check_heartbeats,
    check_task_retries,
    check_what_ends_by_itself,
    check_a_start_function_that_raises,
    check_the_thread_of_a_start_function,
    check_pools_and_limits,
    check_costs,
    check_without_a_sidecar,
)


def _steered(query: ProtectedQuery, pool: ThreadPoolExecutor) -> bool:
    query.steer(wanted=True, pool=pool, now=time.monotonic())
    return _settled(query)


def _settled(query: ProtectedQuery) -> bool:
    query.look(lambda _: None, time.monotonic())
    return not query.is_busy


def _numbers(name: str, log: str) -> list[int]:
    names = (path.name for path in (FOLDER / "checkpoints" / name / log).iterdir())
    return sorted(int(found) for found in names if found.isdecimal())


def _committed(query: ProtectedQuery) -> int:
    folder = FOLDER / "checkpoints" / query.name / "commits"
    return len(_numbers(query.name, "commits")) if folder.exists() else 0


if __name__ == "__main__":
    for check in [globals()[name] for name in sys.argv[2:]] or CHECKS:
        check()
    said = spark.version
    spark.stop()
    print(f"all is as it should be on Spark {said}")

"""Drivers that die, start again, or are there twice: commits go on, and none is made twice."""

import os
import signal
import time
from collections.abc import Callable

from application import Application, Before

Prepare = Callable[..., Application]


def test_a_killed_driver_goes_on_where_its_commits_ended(prepare: Prepare) -> None:
    application = prepare()
    application.start_and_recover()
    application.driver.kill()
    before = application.commits()
    begin = application.seen
    application.start()
    application.await_event("recovered", after=begin)
    assert application.happened("recovered", after=begin)[0]["generation"] == 2
    application.finish()
    after = application.commits()
    assert after[: len(before)] == before
    assert {record["generation"] for record in after} == {1, 2}


def test_a_driver_that_was_stopped_for_a_while_drops_nobody(prepare: Prepare) -> None:
    application = prepare(policy={"silent_seconds": 3})
    application.start_and_recover()
    before = Before.of(application)
    assert application.driver.process is not None
    group = application.driver.process.pid
    os.killpg(group, signal.SIGSTOP)
    time.sleep(5)  # longer than the silence that gets an executor dropped
    os.killpg(group, signal.SIGCONT)
    application.await_event("checkpoint", after=before.events)
    before.assert_untouched([node.name for node in application.cluster.nodes])
    application.finish()
    assert not application.happened("confirmed")


def test_of_two_drivers_on_one_store_the_older_stops_and_the_newer_finishes(
    prepare: Prepare,
) -> None:
    older = prepare()
    older.start_and_recover()
    newer = prepare(store_of=older.store)
    newer.start()
    assert older.await_end() == 1
    assert "driver of generation 1" in older.last_words()
    assert "let the newer driver go on" in older.last_words()
    assert "Traceback" not in older.driver.log.read_text()
    newer.await_event("recovered")
    newer.finish()
    numbers = [record["generation"] for record in newer.commits()]
    assert numbers == sorted(numbers)


def test_a_driver_that_gets_no_spark_fences_nobody(prepare: Prepare) -> None:
    older = prepare()
    older.start_and_recover()
    newer = prepare(store_of=older.store, spark={"spark.executor.memory": "100m"})
    newer.start()
    assert newer.await_end() == 1
    assert "Executor memory" in newer.last_words(), "what Spark says is told"
    older.finish()
    assert {record["generation"] for record in older.commits()} == {1}

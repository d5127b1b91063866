"""Drivers that die, start again, or are there twice: commits go on, and none is made twice."""

import os
import signal
import time
from collections.abc import Callable

from application import LASTING, Application, Before
from harms import all_nodes, meet

Prepare = Callable[..., Application]
SILENT_SECONDS = 5


def test_drivers_that_stand_still_die_or_are_there_twice_change_no_row(prepare: Prepare) -> None:
    application = prepare(policy={"silent_seconds": SILENT_SECONDS}, runtime=LASTING)
    application.start_and_recover()
    meet(application, one_that_was_stopped_for_a_while_drops_nobody)
    one_that_gets_no_spark_fences_nobody(
        application,
        prepare(store_of=application.store, spark={"spark.executor.memory": "100m"}),
    )
    meet(
        application,
        one_that_was_killed_goes_on_where_its_commits_ended,
        one_goes_on_from_the_checkpoint_before_one_with_a_damaged_file,
    )
    newer = prepare(
        store_of=application.store, policy={"silent_seconds": SILENT_SECONDS}, runtime=LASTING
    )
    of_two_on_one_store_the_older_stops(application, newer)
    newer.finish()
    numbers = [record["generation"] for record in newer.commits()]
    assert numbers == sorted(numbers)
    assert set(numbers) == {1, 2, 3, 4, 5}


def one_that_was_stopped_for_a_while_drops_nobody(application: Application) -> None:
    before = Before.of(application)
    assert application.driver.process is not None
    group = application.driver.process.pid
    os.killpg(group, signal.SIGSTOP)
    time.sleep(SILENT_SECONDS + 2)  # longer than the silence that gets an executor dropped
    os.killpg(group, signal.SIGCONT)
    application.await_event("checkpoint", after=before.events)
    before.assert_untouched(all_nodes(application))
    assert not application.happened("confirmed")


def one_that_gets_no_spark_fences_nobody(older: Application, newer: Application) -> None:
    newer.start()
    assert newer.await_end() == 1
    assert "Executor memory" in newer.last_words(), "what Spark says is told"
    committed = len(older.commits())
    older.await_condition("it commits on", lambda: len(older.commits()) > committed + 2)
    assert {record["generation"] for record in older.commits()} == {1}


def one_that_was_killed_goes_on_where_its_commits_ended(application: Application) -> None:
    application.driver.kill()
    before = application.commits()
    begin = application.seen
    application.start()
    application.await_event("recovered", after=begin)
    assert application.happened("recovered", after=begin)[0]["generation"] == 2
    application.await_event("checkpoint", after=begin)
    after = application.commits()
    assert after[: len(before)] == before
    assert {record["generation"] for record in after} == {1, 2}


def one_goes_on_from_the_checkpoint_before_one_with_a_damaged_file(
    application: Application,
) -> None:
    begin = application.seen
    application.await_event("checkpoint", after=begin)
    application.driver.kill()
    states = application.store.glob("checkpoints/*/by-hour-0.state")
    newest = max(states, key=lambda path: int(path.parent.name))
    newest.write_bytes(newest.read_bytes()[:-3])
    application.start()
    assert application.await_end() == 1
    assert "start again: checkpoint" in application.last_words()
    begin = application.seen
    application.start()
    application.await_event("recovered", after=begin)


def of_two_on_one_store_the_older_stops(older: Application, newer: Application) -> None:
    newer.start()
    assert older.await_end() == 1
    assert "driver of generation 4" in older.last_words()
    assert "let the newer driver go on" in older.last_words()
    assert "Traceback" not in older.driver.log.read_text()
    newer.await_event("recovered")

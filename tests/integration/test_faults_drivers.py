"""Drivers that die, start again, or are there twice: commits go on, and none is made twice."""

import os
import signal
import time
from collections.abc import Callable

from application import Application, Before
from block_files import blocks_are_read_as_they_were_written_and_their_files_go_with_their_epochs
from harms import all_nodes, lose, meet, start_workers
from spark_submit import submit

from rekindle_store import commit_segments

Prepare = Callable[..., Application]
SILENT_SECONDS = 5
# Four drivers start, one after the other: the input lasts for eight minutes and more.
SLOWLY = {"rows_per_second": 120}


def test_drivers_that_stand_still_die_or_are_there_twice_change_no_row(prepare: Prepare) -> None:
    application = prepare(policy={"silent_seconds": SILENT_SECONDS}, runtime=SLOWLY)
    application.start_and_recover()
    meet(application, one_that_was_stopped_for_a_while_drops_nobody)
    one_that_gets_no_spark_fences_nobody(
        application,
        prepare(store_of=application.store, spark={"spark.executor.memory": "100m"}),
    )
    one_that_was_killed_goes_on_where_its_commits_ended_but_for_a_damaged_checkpoint(application)
    meet(
        application,
        by_domain_what_important_queries_share_is_on_one_node_whose_loss_changes_no_row,
        spread=False,
    )
    newer = prepare(store_of=application.store, runtime=SLOWLY)
    of_two_on_one_store_the_older_stops_and_the_newer_that_spark_submit_started_goes_on(
        application, newer
    )
    blocks_are_read_as_they_were_written_and_their_files_go_with_their_epochs(newer)
    newer.finish()
    numbers = [record["generation"] for record in newer.commits()]
    assert numbers == sorted(numbers)
    assert set(numbers) == {1, 2, 3, 4}


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


def one_that_was_killed_goes_on_where_its_commits_ended_but_for_a_damaged_checkpoint(
    application: Application,
) -> None:
    application.await_event("checkpoint", after=application.seen)
    application.driver.kill()
    before = application.commits()
    found = application.store.glob("checkpoints/*/by-hour-0.state")
    # the next one may have been begun: nobody reads what is there of it
    states = [path for path in found if path.parent.with_suffix(".json").exists()]
    newest = max(states, key=lambda path: int(path.parent.name))
    newest.write_bytes(newest.read_bytes()[:-3])
    # each node is a failure domain, as none is known; each could hold everything
    application.change(policy={"placement": "domains"}, **SLOWLY, node_cpu_percent=400)
    application.start()
    assert application.await_end() == 1
    assert "start again: checkpoint" in application.last_words()
    begin = application.seen
    application.start()  # from the checkpoint before
    application.await_event("recovered", after=begin, generation=3)
    application.await_event("checkpoint", after=begin)
    after = application.commits()
    kept = commit_segments.kept  # some may have come into a segment meanwhile
    assert list(map(kept, after[: len(before)])) == list(map(kept, before))
    assert {record["generation"] for record in after} == {1, 2, 3}


def by_domain_what_important_queries_share_is_on_one_node_whose_loss_changes_no_row(
    application: Application,
) -> None:
    def homes() -> set[str]:
        """Of all that the most important queries of readings need."""
        operators = ("readings", "by-hour", "most-readings")
        return set[str]().union(*(application.nodes_of(name) for name in operators))

    application.await_condition("they are on one node", lambda: len(homes()) == 1)
    orders = application.happened("moving", generation=3)
    assert all(event["reason"] in ("survival", "uneven-load") for event in orders)
    (victim,) = homes()
    begin = lose(application, [victim])
    application.await_event("recovered", after=begin)
    start_workers(application, victim, after=begin)


def of_two_on_one_store_the_older_stops_and_the_newer_that_spark_submit_started_goes_on(
    older: Application, newer: Application
) -> None:
    # its master and its options are those that spark-submit was told
    submit(newer, {"spark.task.maxFailures": "1", "spark.shuffle.compress": "true"})
    assert older.await_end() == 1
    assert "driver of generation 3" in older.last_words()
    assert "let the newer driver go on" in older.last_words()
    assert "Traceback" not in older.driver.log.read_text()
    newer.await_event("recovered", generation=4)
    newer.await_event("checkpoint")

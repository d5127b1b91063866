"""Workers that die while others are not back, hosts that die, functions that raise: no row changes.

And whoever was not harmed keeps its processes and its state, which the commit log shows.
"""

from collections.abc import Callable
from contextlib import suppress

import readings
from application import LASTING, Application, Before, kill_host
from harms import (
    a_step_that_crawls,
    all_nodes,
    lose,
    meet,
    neighbours,
    node_of,
    start_workers,
)

Prepare = Callable[..., Application]


def test_workers_that_die_in_a_recovery_dead_hosts_and_wrong_functions_change_no_row(
    prepare: Prepare,
) -> None:
    application = prepare(runtime={**LASTING, "node_cpu_percent": 40, "join_gap_epochs": 0})
    application.start_and_recover()
    meet(
        application,
        two_are_killed_and_come_back_one_by_one,
        a_second_one_is_killed_during_catch_up,
        a_function_raises_once_and_costs_one_more_run_of_the_epoch,
        a_dead_host_loses_its_own_state_alone_and_one_that_starts_no_more_its_executor,
        a_function_that_returns_another_schema_stops_its_queries_with_both_schemas,
    )
    (application.traps / readings.SCHEMA).unlink()
    application.start()  # with a function that has been mended, and asked for the end already
    assert application.await_end() == 0, application.tail()
    application.assert_exactly_right()


def two_are_killed_and_come_back_one_by_one(application: Application) -> None:
    victims = all_nodes(application)[:2]
    before = Before.of(application)
    lose(application, victims)
    for victim in victims:
        start_workers(application, victim, after=before.events)
    application.await_event("recovered", after=before.events)
    before.assert_untouched(neighbours(application, *victims))


def a_second_one_is_killed_during_catch_up(application: Application) -> None:
    first = node_of(application, "by-hour")
    second = neighbours(application, first)[0]
    before = Before.of(application)
    with a_step_that_crawls(application):  # else it may have caught up before it is seen
        application.cluster.kill([first])
        application.await_event("ack", after=before.events)
        application.cluster.kill([second])
        application.await_event("confirmed", after=before.events, node=second)
    assert not application.happened("recovered", after=before.events), "it had caught up already"
    start_workers(application, first, after=before.events)
    application.await_event("recovered", after=before.events)
    before.assert_untouched(neighbours(application, first, second))
    start_workers(application, second, after=before.events)


def a_function_raises_once_and_costs_one_more_run_of_the_epoch(application: Application) -> None:
    before = Before.of(application)
    (application.traps / readings.RAISE_ONCE).touch()
    failed = application.await_event("job-failed", after=before.events)
    assert "a trap was set for once" in failed["text"]
    application.await_event("checkpoint", after=application.seen)
    before.assert_untouched(all_nodes(application))
    assert not application.happened("plan", after=before.events)


def a_dead_host_loses_its_own_state_alone_and_one_that_starts_no_more_its_executor(
    application: Application,
) -> None:
    victim = node_of(application, "rising")
    before = Before.of(application)
    kill_host(application, victim)
    # a function that ran at that moment is suspected, and its partitions go on by themselves first
    ways = ("state-lost", "host-restarted")
    application.await_condition(
        "its state is lost",
        lambda: any(application.happened(way, after=before.events, node=victim) for way in ways),
    )
    application.await_event("recovered", after=before.events)
    assert not application.happened("confirmed", after=before.events)
    before.assert_untouched(neighbours(application, victim))

    def is_given_up() -> bool:
        if application.happened("host-failed", after=before.events, node=victim):
            return True
        with suppress(FileNotFoundError):  # it has ended before it could be looked at
            kill_host(application, victim)
        return False

    application.await_condition("its executor is given up", is_given_up)
    lost = application.await_event("confirmed", after=before.events, node=victim, silent=False)
    lost_at = application.events.index(lost)
    application.await_event("joined", after=lost_at, node=victim)
    application.await_event("recovered", after=lost_at)
    before.assert_untouched(neighbours(application, victim))


def a_function_that_returns_another_schema_stops_its_queries_with_both_schemas(
    application: Application,
) -> None:
    (application.traps / readings.SCHEMA).touch()
    text = application.await_event("query-stopped", query="hourly")["text"]
    # what is made of that query's rows has nothing to go on with
    application.await_event("query-stopped", query="busiest")
    assert text.startswith("step graded: returned ")
    assert "extra: bool" in text
    assert "high: bool was declared" in text
    assert "return a pyarrow.Table with the declared schema" in text
    application.drain()
    application.driver.request_finish()
    assert application.await_end() == 1
    assert application.last_words() == text
    assert "Traceback" not in application.driver.log.read_text()

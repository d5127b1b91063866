"""Steps that may give something else when they run again: what comes out agrees all the same."""

from collections.abc import Callable

import draws
import polars as pl
import readings
from application import LASTING, Application, compare
from harms import lose, meet, node_of, start_workers

Prepare = Callable[..., Application]


def test_through_losses_and_a_dead_driver_all_that_was_made_of_a_draw_is_made_of_the_same_one(
    prepare: Prepare,
) -> None:
    application = prepare(pipeline=draws, runtime=LASTING)
    application.start_and_recover()
    meet(
        application,
        output_of_what_depends_on_chance_counts_with_a_checkpoint,
        nodes_of_draws_and_of_their_sums_are_lost,
        the_driver_dies,
        spread=False,
    )
    application.come_to_an_end()
    assert_agreed(application)


def assert_agreed(application: Application) -> None:
    """Each row was drawn for once, the sums are those of the draws, and the alarms are right."""
    found, wanted = application.outputs(), readings.expected(application.inputs)
    assert set(found) == {"draws", "sums", "alarms-daily"}
    given = pl.read_parquet(application.inputs / "readings.parquet")
    compare("draws", found["draws"].drop("draw"), given)
    compare("sums", found["sums"], draws.sums(found["draws"]))
    compare("alarms-daily", found["alarms-daily"], wanted["alarms-daily"])


def output_of_what_depends_on_chance_counts_with_a_checkpoint(application: Application) -> None:
    begin = application.seen
    application.await_event("commit", after=begin, query="draws")
    saved = {event["epoch"] for event in application.happened("checkpoint")}
    assert {event["epoch"] for event in application.happened("commit", query="draws")} <= saved
    alarms = {event["epoch"] for event in application.happened("commit", query="alarms-daily")}
    assert len(alarms) > len(saved), "the others do not wait"


def nodes_of_draws_and_of_their_sums_are_lost(application: Application) -> None:
    for operator in ("readings", "summed"):
        victim = node_of(application, operator)
        begin = lose(application, [victim])
        start_workers(application, victim, after=begin)
        application.await_event("recovered", after=begin)


def the_driver_dies(application: Application) -> None:
    begin = application.seen
    application.await_event("commit", after=begin, query="draws")
    application.driver.kill()
    application.start_and_recover()

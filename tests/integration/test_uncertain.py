"""Steps that may give something else when they run again: what comes out agrees all the same."""

from collections.abc import Callable

import draws
import polars as pl
import readings
from application import Application, compare

Prepare = Callable[..., Application]


def assert_agreed(application: Application) -> None:
    """Each row was drawn for once, the sums are those of the draws, and the alarms are right."""
    found, wanted = application.outputs(), readings.expected(application.inputs)
    assert set(found) == {"draws", "sums", "alarms-daily"}
    given = pl.read_parquet(application.inputs / "readings.parquet")
    compare("draws", found["draws"].drop("draw"), given)
    compare("sums", found["sums"], draws.sums(found["draws"]))
    compare("alarms-daily", found["alarms-daily"], wanted["alarms-daily"])


def test_after_a_loss_all_that_was_made_of_a_draw_is_made_of_the_same_one(
    prepare: Prepare,
) -> None:
    application = prepare(pipeline=draws)
    application.start_and_recover()
    for operator in ("readings", "summed"):
        victim, begin = min(application.nodes_of(operator)), application.seen
        application.cluster.kill([victim])
        application.await_event("confirmed", after=begin, node=victim)
        application.cluster.start_worker(victim)
        application.await_event("recovered", after=begin)
    application.come_to_an_end()
    assert_agreed(application)


def test_output_of_what_depends_on_chance_counts_with_a_checkpoint_also_if_the_driver_dies(
    prepare: Prepare,
) -> None:
    application = prepare(pipeline=draws)
    application.start_and_recover()
    begin = application.seen
    application.await_event("commit", after=begin, query="draws")
    saved = {event["epoch"] for event in application.happened("checkpoint")}
    assert {event["epoch"] for event in application.happened("commit", query="draws")} <= saved
    alarms = {event["epoch"] for event in application.happened("commit", query="alarms-daily")}
    assert len(alarms) > len(saved), "the others do not wait"
    application.driver.kill()
    application.start_and_recover()
    application.come_to_an_end()
    assert_agreed(application)

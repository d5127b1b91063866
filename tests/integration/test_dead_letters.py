"""Records for which a user's function raises, or that come too late: kept beside.

Without dead letters a query stops, and no other.
"""

from collections.abc import Callable

import poisoned
import polars as pl
import pytest
from application import Application, compare

import rekindle

Prepare = Callable[..., Application]
LETTER_COLUMNS = ["dead_letter_step", "dead_letter_epoch", "dead_letter_error"]
LATE_COLUMNS = ["late_step", "late_epoch", "late_watermark"]


@pytest.mark.parametrize("mode", ["always", "adaptive"])
def test_records_that_raise_or_are_late_are_kept_beside_exactly_once_through_a_loss(
    prepare: Prepare, mode: str
) -> None:
    application = prepare(pipeline=poisoned, policy={"buffering": mode, "ordering": mode})
    (application.traps / poisoned.LETTERS).touch()
    application.start_and_recover()
    application.await_event("dead-letters", step="checked")
    application.await_event("dead-letters", step="counted")
    victim, begin = min(application.nodes_of("counted")), application.seen
    application.cluster.kill([victim])
    application.await_event("confirmed", after=begin, node=victim)
    application.await_event("recovered", after=begin)
    application.come_to_an_end()

    found = application.outputs()
    letters = {name: found[name] for name in found if name.endswith(".dead-letters")}
    for name, rows in letters.items():
        assert rows["dead_letter_step"].unique().to_list() == [name.removesuffix(".dead-letters")]
    texts = pl.concat([rows["dead_letter_error"] for rows in letters.values()]).unique()
    assert set(texts) == {
        "raised ValueError: a bad reading",
        "raised ValueError: the worst of readings",
    }
    wanted = poisoned.expected_beside_letters(application.inputs)
    assert set(found) == set(wanted)
    for name, rows in wanted.items():
        compare(name, found[name].drop(LETTER_COLUMNS + LATE_COLUMNS, strict=False), rows)
    told = application.happened("dead-letters")
    assert sum(event["rows"] for event in told) == sum(map(len, letters.values()))
    late_rows_are_counted_once(application, wanted["timed.late"].height)


def late_rows_are_counted_once(application: Application, rows: int) -> None:
    """In the commit log, and in the events, of which one says when they began."""
    counted = dict.fromkeys(("timed", "last"), 0)
    for record in application.commits():
        for partition, _, late in record.get("late", ()):
            counted[partition.partition("/")[0]] += late
    assert counted == dict.fromkeys(counted, rows)
    (end,) = application.happened("finish")
    assert end["late_rows"] == counted
    for step in counted:
        begun, *_ = application.happened("late-rows", step=step)
        late = rekindle.read(application.store, step, late=True).polars()
        assert (late.height, begun["epoch"]) == (rows, late["late_epoch"].min())
        assert late["late_step"].unique().to_list() == [step]


def test_a_query_with_such_a_record_stops_and_goes_on_once_its_function_is_mended(
    prepare: Prepare,
) -> None:
    application = prepare(pipeline=poisoned, runtime={"outage_checkpoint_seconds": 3})
    application.start()
    stopped = application.await_event("query-stopped")
    assert stopped["query"] == "numbers"
    words = "step counted: raised ValueError: the worst of readings, at epoch "
    assert stopped["text"].startswith(words)
    assert f"{poisoned.WORST_SENSOR!r}" in stopped["text"]
    application.await_event("checkpoint", after=application.seen)
    victim, begin = min(application.nodes_of("by-day")), application.seen
    application.cluster.kill([victim])
    application.await_event("confirmed", after=begin, node=victim)
    application.await_event("incident-closed", after=begin)
    application.drain()
    application.driver.request_finish()
    assert application.await_end() == 1, application.tail()
    assert application.last_words() == stopped["text"]
    assert {event["query"] for event in application.happened("query-stopped")} == {"numbers"}
    found, wanted = application.outputs(), poisoned.expected(application.inputs)
    for query in ("all-alarms", "daily"):
        compare(query, found[query], wanted[query])
    assert len(found["numbers"]) < len(wanted["numbers"])

    (application.traps / poisoned.MENDED).touch()
    application.start()
    assert application.await_end() == 0, application.tail()
    application.assert_exactly_right()

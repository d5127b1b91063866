"""Records for which a user's function raises: left out and kept beside, exactly once."""

from collections.abc import Callable

import poisoned
import polars as pl
from application import Application, compare

Prepare = Callable[..., Application]
LETTER_COLUMNS = ["dead_letter_step", "dead_letter_epoch", "dead_letter_error"]


def test_records_that_raise_are_dead_letters_exactly_once_through_a_loss(prepare: Prepare) -> None:
    application = prepare(pipeline=poisoned)
    (application.traps / poisoned.LETTERS).touch()
    application.start_and_recover()
    application.await_event("dead-letters", step="checked")
    application.await_event("dead-letters", step="counted")
    victim, begin = min(application.nodes_of("counted")), application.seen
    application.cluster.kill([victim])
    application.await_event("confirmed", after=begin, node=victim)
    application.await_event("recovered", after=begin)
    application.finish_reading()
    application.driver.request_finish()
    assert application.await_end() == 0, application.tail()

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
        compare(name, found[name].drop(LETTER_COLUMNS, strict=False), rows)
    told = application.happened("dead-letters")
    assert sum(event["rows"] for event in told) == sum(map(len, letters.values()))

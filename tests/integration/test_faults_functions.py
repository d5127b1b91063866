"""User functions that raise or return something else: no row is lost, and the message helps."""

from collections.abc import Callable

import readings
from application import Application, Before

Prepare = Callable[..., Application]


def all_nodes(application: Application) -> list[str]:
    return [node.name for node in application.cluster.nodes]


def test_a_function_that_raises_once_costs_one_more_run_of_the_epoch(prepare: Prepare) -> None:
    application = prepare()
    application.start_and_recover()
    before = Before.of(application)
    (application.traps / readings.RAISE_ONCE).touch()
    failed = application.await_event("job-failed", after=before.events)
    assert "a trap was set for once" in failed["text"]
    application.finish_reading()
    before.assert_untouched(all_nodes(application))
    assert not application.happened("plan", after=before.events)
    application.finish()


def test_a_function_that_always_raises_ends_the_run_and_the_mended_one_goes_on(
    prepare: Prepare,
) -> None:
    application = prepare()
    application.start_and_recover()
    trap = application.traps / readings.RAISE
    trap.touch()
    assert application.await_end() == 1
    words = application.last_words()
    assert "step graded: raised ValueError: a trap is set" in words
    assert "mend the step's function and start again" in words
    assert "Traceback" not in application.driver.log.read_text()
    committed = len(application.commits())
    trap.unlink()
    application.start_and_recover()
    assert len(application.commits()) > committed
    application.finish()


def test_a_function_that_returns_another_schema_ends_the_run_with_both_schemas(
    prepare: Prepare,
) -> None:
    application = prepare()
    application.start_and_recover()
    (application.traps / readings.SCHEMA).touch()
    assert application.await_end() == 1
    words = application.last_words()
    assert words.startswith("step graded: returned ")
    assert "extra: bool" in words
    assert "high: bool was declared" in words
    assert "return a pyarrow.Table with the declared schema" in words
    assert "Traceback" not in application.driver.log.read_text()

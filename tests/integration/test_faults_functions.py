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


def test_a_function_that_returns_another_schema_stops_its_queries_with_both_schemas(
    prepare: Prepare,
) -> None:
    application = prepare()
    application.start_and_recover()
    (application.traps / readings.SCHEMA).touch()
    text = application.await_event("query-stopped", query="hourly")["text"]
    # what is made of that query's rows has nothing to go on with
    application.await_event("query-stopped", query="busiest")
    assert text.startswith("step graded: returned ")
    assert "extra: bool" in text
    assert "high: bool was declared" in text
    assert "return a pyarrow.Table with the declared schema" in text
    application.driver.request_finish()
    assert application.await_end() == 1
    assert application.last_words() == text
    assert "Traceback" not in application.driver.log.read_text()

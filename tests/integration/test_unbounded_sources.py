"""Sources whose future is unknown: what is appended while it runs comes out, exactly once.

So it is with a source that is away, for the driver or for hosts alone, with losses, and with a
driver that dies.
"""

from collections.abc import Callable
from pathlib import Path

import appended
from application import Application
from harms import lose, meet, node_of

Prepare = Callable[..., Application]


def test_rows_that_come_while_it_runs_are_exactly_right_whatever_is_away_or_dies(
    prepare: Prepare, tmp_path: Path
) -> None:
    inputs = tmp_path / "logs"
    appended.prepare(inputs)
    application = prepare(pipeline=appended)
    application.inputs = inputs
    application.start_and_recover()
    meet(
        application,
        rows_that_come_are_committed,
        a_source_that_is_away_holds_up_its_own_queries_alone,
        a_source_that_hosts_cannot_read_holds_up_its_own_queries_alone,
        a_lost_node_reads_the_same_rows_again,
        a_driver_that_dies_goes_on_from_its_log,
    )
    appended.append(inputs, range(600, 610))
    application.drain()
    application.driver.request_finish()
    assert application.await_end() == 0, application.tail()
    application.assert_exactly_right()
    assert (inputs / "orders" / appended.COMMITTED).exists()


def rows_of(application: Application, query: str) -> int:
    """How many rows of a query are committed."""
    found = application.outputs().get(query)
    return 0 if found is None else found.height


def await_rows(application: Application, source: str) -> None:
    """Wait until all rows of a source that were appended are committed."""
    files = (application.inputs / source).glob("*.log")
    wanted = sum(path.read_text().count("\n") for path in files)
    application.await_condition(
        f"{wanted} rows of {source}", lambda: rows_of(application, f"{source}-rows") == wanted
    )


def rows_that_come_are_committed(application: Application) -> None:
    appended.append(application.inputs, range(60, 150))
    await_rows(application, "orders")
    await_rows(application, "clicks")
    # the watermark has passed the second minute
    application.await_condition(
        "two windows of each key", lambda: rows_of(application, "orders-windows") == 14
    )


def a_source_that_is_away_holds_up_its_own_queries_alone(application: Application) -> None:
    trap, begin = application.inputs / "clicks" / appended.AWAY, application.seen
    trap.touch()
    application.await_event("source-away", after=begin, source="clicks")
    before = rows_of(application, "clicks-rows")
    appended.append(application.inputs, range(150, 240))
    await_rows(application, "orders")
    assert rows_of(application, "clicks-rows") == before
    trap.unlink()
    application.await_event("source-back", after=begin, source="clicks")
    await_rows(application, "clicks")
    assert_nothing_was_planned(application, begin)


def a_source_that_hosts_cannot_read_holds_up_its_own_queries_alone(
    application: Application,
) -> None:
    trap, begin = application.inputs / "clicks" / appended.AWAY_FROM_HOSTS, application.seen
    trap.touch()
    appended.append(application.inputs, range(240, 330))
    application.await_event("source-away", after=begin, source="clicks")
    await_rows(application, "orders")
    appended.append(application.inputs, range(330, 400))
    await_rows(application, "orders")
    assert rows_of(application, "clicks-rows") == 2_400
    trap.unlink()
    application.await_event("source-back", after=begin, source="clicks")
    await_rows(application, "clicks")
    assert_nothing_was_planned(application, begin)


def assert_nothing_was_planned(application: Application, begin: int) -> None:
    """A source that is away is no incident."""
    for kind in ("incident-opened", "plan", "confirmed"):
        assert not application.happened(kind, after=begin), kind


def a_lost_node_reads_the_same_rows_again(application: Application) -> None:
    victim = node_of(application, "orders")
    begin = lose(application, [victim])
    appended.append(application.inputs, range(400, 500))
    application.await_event("recovered", after=begin)
    application.cluster.start_worker(victim)
    await_rows(application, "orders")


def a_driver_that_dies_goes_on_from_its_log(application: Application) -> None:
    appended.append(application.inputs, range(500, 600))
    application.driver.kill()
    application.start_and_recover()
    await_rows(application, "orders")
    await_rows(application, "clicks")

"""Drivers that die, start again, or are there twice: commits go on, and none is made twice."""

from collections.abc import Callable

from application import Application

Prepare = Callable[..., Application]


def test_a_killed_driver_goes_on_where_its_commits_ended(prepare: Prepare) -> None:
    application = prepare()
    application.start_and_recover()
    application.driver.kill()
    before = application.commits()
    begin = application.seen
    application.start()
    application.await_event("recovered", after=begin)
    assert application.happened("recovered", after=begin)[0]["generation"] == 2
    application.finish()
    after = application.commits()
    assert after[: len(before)] == before
    assert {record["generation"] for record in after} == {1, 2}


def test_of_two_drivers_on_one_store_the_older_stops_and_the_newer_finishes(
    prepare: Prepare,
) -> None:
    older = prepare()
    older.start_and_recover()
    newer = prepare(store_of=older.store)
    newer.start()
    assert older.await_end() == 1
    assert "driver of generation 1" in older.last_words()
    assert "let the newer driver go on" in older.last_words()
    assert "Traceback" not in older.driver.log.read_text()
    newer.await_event("recovered")
    newer.finish()
    numbers = [record["generation"] for record in newer.commits()]
    assert numbers == sorted(numbers)

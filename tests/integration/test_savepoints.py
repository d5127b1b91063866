"""Savepoints: a pipeline ends at a checkpoint, and another one goes on from it."""

import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta

import polars as pl
import readings
from application import LASTING, Application, compare
from harms import lose, node_of

Prepare = Callable[..., Application]


def save(application: Application) -> None:
    """`rekindle savepoint`, and the driver's end."""
    command = (sys.executable, "-m", "rekindle_cli", "savepoint", str(application.store))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
        try:
            application.await_condition("a savepoint", lambda: asking.poll() is not None)
        finally:
            asking.kill()
        told = asking.communicate()[0]
    assert asking.returncode == 0, told + application.tail()
    assert application.await_end() == 0
    epoch = application.happened("savepoint")[-1]["epoch"]
    assert f"savepoint at epoch {epoch}; start a pipeline on it" in told
    assert application.newest_cut()["epoch"] == epoch


def test_the_same_pipeline_and_a_changed_one_go_on_from_savepoints_and_no_row_changes(
    prepare: Prepare,
) -> None:
    application = prepare(policy={"buffering": "adaptive", "ordering": "adaptive"}, runtime=LASTING)
    application.start_and_recover()
    a_changed_pipeline_is_refused_without_a_savepoint(prepare(store_of=application.store))
    save(application)
    application.policy = {}
    application.write_settings()
    the_same_pipeline_goes_on_and_runs_no_epoch_again(application)
    save(application)
    saved = application.newest_cut()
    (application.traps / readings.CHANGED).touch()
    application.start_and_recover()
    victim = node_of(application, "by-hour")
    lose(application, [victim])
    application.cluster.start_worker(victim)
    application.come_to_an_end()
    assert_right_after_the_change(application, saved)


def a_changed_pipeline_is_refused_without_a_savepoint(changed: Application) -> None:
    (changed.traps / readings.CHANGED).touch()
    changed.start()
    assert changed.await_end() == 2
    assert "end it with `rekindle savepoint STORE`" in changed.last_words()


def the_same_pipeline_goes_on_and_runs_no_epoch_again(application: Application) -> None:
    epoch, committed = application.newest_cut()["epoch"], len(application.commits())
    application.start_and_recover()
    since = application.commits()[committed:]
    assert {record["generation"] for record in since} == {2}
    for record in since:
        assert all(first > epoch for first, _, _ in record["finished"].values())


def assert_right_after_the_change(application: Application, saved: dict) -> None:
    """Shared queries have all rows; the one that is gone those up to the savepoint, and the new one
    those of the input since, from the next whole day on."""
    wanted, committed = readings.expected(application.inputs), application.outputs()
    until = datetime(1970, 1, 1) + timedelta(microseconds=saved["watermark"])
    daily = wanted["alarms-daily"]
    wanted["alarms-daily"] = daily.filter(pl.col("window_end") <= until + timedelta(microseconds=1))
    alarms = pl.read_parquet(application.inputs / "alarms.parquet")
    _, end = saved["offsets"]["alarms"]
    since = readings.daily(alarms[end:], "sensor")
    wanted["alarms-by-sensor"] = since.filter(pl.col("window_start") > until)
    (begun,) = application.happened("steps-begun")
    assert begun["steps"] == {"by-day-and-sensor": saved["watermark"] + 1}
    assert set(committed) == {query for query, rows in wanted.items() if rows.height}
    for query, rows in wanted.items():
        compare(query, committed.get(query, rows.clear()), rows)

"""A store with a long past: older commits are put together while a driver runs."""

from collections.abc import Callable

from application import Application

from rekindle.model import record_format
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_store import commit_log, commit_segments
from rekindle_store.store_files import at

Prepare = Callable[..., Application]
# Just so many that the first segment is complete after some epochs.
STARTS = commit_segments.LENGTH - 10


def test_commits_go_into_a_segment_while_a_driver_runs_and_the_next_one_goes_on_from_it(
    prepare: Prepare,
) -> None:
    application = prepare()
    write_starts(application)
    application.start_and_recover()
    segment = application.store / commit_segments.name_of(1)
    first = STARTS + 2  # behind the start of this driver
    application.await_condition("a segment", segment.exists)
    single = application.store / f"commits/{first}.json"
    application.await_condition("its records have no files", lambda: not single.exists())
    application.driver.kill()
    committed = len(application.commits())
    assert committed == commit_log.newest(at(application.store)) > commit_segments.LENGTH
    application.start_and_recover()
    application.finish()
    assert application.commits()[committed]["finished"] == {}, "the next start has sealed the log"
    assert not application.happened("sealing-failed")


def write_starts(application: Application) -> None:
    """As if so many drivers had started before any input came."""
    CheckpointStore(application.store).open(1.0)
    for number in range(1, STARTS + 1):
        content = {"generation": 1, "at": 1.0, "plan_epoch": 0, "finished": {}, "outputs": []}
        (application.store / f"commits/{number}.json").write_bytes(
            record_format.encode("commit", content)
        )

"""A store with a long past: older commits and their output are put together beside a driver."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from application import LASTING, Application
from followed_output import assert_read_as_committed, followed

import rekindle
from rekindle.model import record_format
from rekindle_cli import command_line
from rekindle_spark.output.output_compaction import Compaction
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_store import checkpoint_records, commit_log, commit_segments, compacted_outputs
from rekindle_store.store_files import at

Prepare = Callable[..., Application]
# Just so many that the first segment is complete after some epochs.
STARTS = commit_segments.LENGTH - 10


def test_commits_go_into_a_segment_while_a_driver_runs_and_the_next_one_goes_on_from_it(
    prepare: Prepare,
) -> None:
    application = prepare(runtime=LASTING)
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


def test_output_is_put_together_while_a_driver_runs_and_every_row_stays_where_readers_find_it(
    prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    application = prepare(runtime=LASTING)
    write_starts(application)
    application.start_and_recover()
    query, index = "rises", application.store / compacted_outputs.name_of(1, 0)
    with followed(application, query, tmp_path / "rises.jsonl") as reader:
        application.await_condition("an index", index.exists)
        application.driver.kill()
        put_together(application)
        assert_read_as_committed(application)
        application.start_and_recover()
        application.finish()
        put_together(application)
        reader.assert_all(application)
    application.assert_exactly_right()
    assert_read_as_committed(application)
    files = [file for file in files_of(application, query) if file.commit <= commit_segments.LENGTH]
    epochs = [file.epoch for file in files if file.partition == 0]
    assert epochs, "commits of the first segment have rows"
    singles = [name for name in os.listdir(application.store / "outputs" / query) if name[0] == "0"]
    assert {int(name[2:11]) for name in singles}.isdisjoint(epochs)
    assert (
        command_line.run(command_line.application, ["store", "check", str(application.store)]) == 0
    )
    assert "no damage" in capsys.readouterr().out
    assert not application.happened("compaction-failed")


def put_together(application: Application) -> None:
    """Do what the driver, or the next one, has left to do, without the minute that it waits."""
    clock = itertools.count(0, 1_000)
    store = CheckpointStore(application.store)
    history = store.read()
    assert history.checkpoint is not None
    settled = checkpoint_records.oldest(history.checkpoint)
    newest = commit_log.generations(store.files)[-1]
    compaction = Compaction(
        store.files,
        newest + 100,
        lambda: settled,
        lambda: None,
        now=lambda: float(next(clock)),
    )
    while compaction.advance():
        pass
    compaction.sweep()


def files_of(application: Application, query: str) -> list[rekindle.CommittedFile]:
    return list(rekindle.committed_files(application.store, query, version=2))


def write_starts(application: Application) -> None:
    """As if so many drivers had started before any input came."""
    CheckpointStore(application.store).open(1.0)
    for number in range(1, STARTS + 1):
        content = {"generation": 1, "at": 1.0, "plan_epoch": 0, "finished": {}, "outputs": []}
        (application.store / f"commits/{number}.json").write_bytes(
            record_format.encode("commit", content)
        )

"""Commit events and output rows of several partitions: each single event is needed."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle import report
from rekindle.model.run_events import Event
from rekindle.verification import report_check
from rekindle_testing import run_builders
from rekindle_testing.run_builders import BuiltScenario


def two_partitions(directory: Path) -> tuple[report.Inputs, list[Event]]:
    """Epochs 1 to 6; after a checkpoint of epoch 2, c/1 runs again from there at epoch 4."""
    record = run_builders.make(BuiltScenario({"c": 1.0})).input_record
    inputs = replace(
        report.Inputs.from_record(record), closures={name: (name,) for name in ("c/0", "c/1")}
    )
    spans = {
        "c/0": [(1, 1), (2, 2), (3, 3), (4, 6)],
        "c/1": [(1, 1), (2, 2), (3, 3), (4, 4), (3, 3), (4, 5), (6, 6)],
    }
    events = [Event(epoch + 0.0, "cut", epoch=epoch) for epoch in range(1, 7)]
    (directory / "outputs" / "c").mkdir(parents=True)
    for partition, ranges in spans.items():
        epochs, times = [], []
        for n, (first, last) in enumerate(ranges):
            t, extra = 10.0 + n, {"from_epoch": first}
            events.append(Event(t, "commit", None, None, last, "c", partition, extra=extra))
            new = [epoch for epoch in range(first, last + 1) if epoch not in epochs]
            epochs, times = epochs + new, times + [t - 0.2] * len(new)
        table = pa.table({"epoch": epochs, "committed_at": times})
        pq.write_table(table, directory / "outputs" / f"{partition}.parquet")
    events += [Event(9.5, "checkpoint", epoch=2), Event(99.0, "finish", epoch=6)]
    return inputs, sorted(events, key=lambda event: event.t)


def test_a_repeat_from_a_checkpoint_commits_nothing_twice(tmp_path: Path) -> None:
    inputs, events = two_partitions(tmp_path)
    assert report_check.check_commits(tmp_path, events, inputs) == []


def test_every_single_commit_event_of_every_partition_is_missed(tmp_path: Path) -> None:
    inputs, events = two_partitions(tmp_path)
    for event in events:
        if event.kind == "commit":
            rest = [other for other in events if other is not event]
            differences = report_check.check_commits(tmp_path, rest, inputs)
            assert differences, event
            assert all(str(event.query_partition) in each.where for each in differences)


def test_brackets_in_the_directorys_name_are_no_pattern(tmp_path: Path) -> None:
    inputs, events = two_partitions(tmp_path / "run[1]")
    assert report_check.check_commits(tmp_path / "run[1]", events, inputs) == []

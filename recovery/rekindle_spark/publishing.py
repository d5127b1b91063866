"""Makes output count: one commit record, then what tells of it.

A commit record says which epochs of which partitions are finished, and which files are their
output; readers go by nothing else. `running` has one written for each job, `staging` one for each
checkpoint, of what was held back until then. (What a killed driver still owed, the next one writes
before it has an event log: `driver`.)
"""

from collections.abc import Mapping
from typing import Any

from rekindle_spark.application import Application
from rekindle_spark.program import Program

__all__ = ["enter", "publish"]


def publish(application: Application, record: Mapping[str, Any]) -> None:
    """Write a commit record, take it in, and tell of it in the events.

    Raises FencedError when a newer driver has started: then nothing of it counts.
    """
    program, committed = application.program, application.committed
    application.store.commit(record)
    application.events.dead_letters(record["outputs"])
    with application.lock:
        late = application.late.take_in(record)
    application.events.write_each("late-rows", late)
    told = []
    for name, (first, last, _) in record["finished"].items():
        number = program.numbers[name]
        enter(program, committed, number, last)
        parts, epochs = program.output_parts(number), {"from_epoch": first, "epoch": last}
        told += [
            {
                "query": sink.name,
                "query_partition": parts[sink.name],
                **epochs,
                "plan_epoch": record["plan_epoch"],
            }
            for sink in program.owner[number].sinks
        ]
    application.events.write_each("commit", told)


def enter(program: Program, committed: dict[str, int], number: int, last: int) -> None:
    """Take in that a partition's epochs up to `last` are finished: by query partition whose output
    it writes, `committed` has how far that has got."""
    for part in program.output_parts(number).values():
        committed[part] = max(committed.get(part, 0), last)

"""How long each executor's task took in each stage of a job, by the driver's clock.

Executors have clocks of their own, and one that stands still sees no time pass. So a task's time is
from when its stage could begin to when its report came in. `job_runner` takes it, `stragglers`
judges.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TaskTiming:
    """What an executor did in a stage: for which partitions, and how many seconds it took."""

    partitions: tuple[int, ...]
    seconds: float


def stages(
    produced: Sequence[Sequence[tuple[str, Mapping[int, Any]]]], reports: Sequence[dict[str, Any]]
) -> tuple[dict[str, TaskTiming], ...]:
    """Per stage the tasks by executor, of which `produced` has the partitions; a report tells whose
    it is by its partitions. A task without any, as in a roll call, took no time of theirs, nor did
    one that Spark ran again elsewhere, and that refused."""
    place = {
        number: (stage, executor)
        for stage, tasks in enumerate(produced)
        for executor, run in tasks
        for number in run
    }
    ended = {
        place[int(number)]: report["arrived"]
        for report in reports
        for number in report.get("partitions", ())
    }
    begin, found = 0.0, []
    for stage, tasks in enumerate(produced):
        ends = {executor: ended[stage, executor] for executor, run in tasks if run}
        found.append(
            {
                executor: TaskTiming(tuple(run), max(0.0, ends[executor] - begin))
                for executor, run in tasks
                if run
            }
        )
        begin = max([begin, *ends.values()])
    return tuple(found)


def longest(found: Sequence[Mapping[str, TaskTiming]]) -> list[float]:
    """Of each stage the seconds of its slowest task."""
    return [max((task.seconds for task in stage.values()), default=0.0) for stage in found]

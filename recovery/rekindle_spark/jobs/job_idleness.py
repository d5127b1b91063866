"""Finds jobs without progress, and the executor to blame: idleness ends a job, not its length.

    a report came, or signs of all who owe one have changed ──► goes on
    one who owes a report has given no sign for so long     ──► idle: the job is given up

Called by `job_runner` for each job, and by `checkpoint_coordinator` for states that are being
written.

Why: docs/decisions/0017-no-shadow-run.md.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekindle_spark.executor.job_activity import Signs

# Jobs that are shorter are not looked at, and others how often.
SHORT_SECONDS, LOOK_SECONDS = 3.0, 1.0


@dataclass(frozen=True, slots=True)
class Idle:
    """An executor that has done nothing for a job for so long, and what it began last."""

    executor: str
    seconds: float
    what: str

    def described(self, nodes: Mapping[str, str]) -> str:
        """A sentence for messages."""
        if not self.executor:
            return f"Spark has not ended it {self.seconds:.0f} s after its last task"
        node = nodes.get(self.executor, "an unknown node")
        last = f"; last: {self.what}" if self.what else ""
        return (
            f"executor {self.executor} on {node} has neither loaded, written nor finished anything "
            f"for {self.seconds:.0f} s{last}"
        )


@dataclass(slots=True)
class Watch:
    """When each executor last gave another sign, and when it is time to look again."""

    due_at: float = field(default_factory=lambda: time.monotonic() + SHORT_SECONDS)
    last: dict[str, tuple[object, float]] = field(default_factory=dict)

    def is_due(self, now: float) -> bool:
        """Whether it is time to look."""
        return now >= self.due_at

    def look(
        self,
        job: int,
        owing: Mapping[str, frozenset[int]],
        signs: Mapping[str, Signs],
        now: float,
    ) -> Idle | None:
        """Look at those who owe something, each with its partitions; who has been idle the longest.

        Who did not owe anything before begins now.
        """
        self.due_at = now + LOOK_SECONDS
        found: dict[str, tuple[object, float]] = {}
        for executor, partitions in owing.items():
            sign = signs.get(executor, Signs()).of(job, partitions)
            before, since = self.last.get(executor, (None, now))
            found[executor] = (sign, since if sign == before else now)
        self.last = found
        if not found:
            return None
        executor = min(found, key=lambda name: found[name][1])
        what = signs.get(executor, Signs()).what(job)
        return Idle(executor, now - found[executor][1], what)


def owing(
    produced: Sequence[Sequence[tuple[str, Iterable[int]]]], reports: Sequence[Mapping[str, Any]]
) -> dict[str, frozenset[int]]:
    """Executors whose reports are awaited in a job with these tasks by stage, each with the
    partitions of its tasks up to that stage. A stage begins when all before have ended. Where all
    have come, Spark still owes the end, under an empty name."""
    came = Counter(str(report["executor"]) for report in reports)
    awaited: Counter[str] = Counter()
    partitions: dict[str, set[int]] = {}
    begun = 0
    for tasks in produced:
        begun += len(tasks)
        for executor, numbers in tasks:
            awaited[executor] += 1
            partitions.setdefault(executor, set()).update(numbers)
        if len(reports) < begun:
            break
    found = {
        executor: frozenset(partitions[executor])
        for executor, count in awaited.items()
        if came[executor] < count
    }
    return found or {"": frozenset()}

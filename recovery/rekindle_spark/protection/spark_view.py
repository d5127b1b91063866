"""Executors and run times, as Spark's own status says: no agent, no jar, no listener in Python.

A node is an executor's host, as in reports of pipelines. Spark counts run time in slots, so a core
of an executor is 100 %. Run time includes Python workers, which CPU time of executors leaves out.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rekindle.protocol import NodeSeen

PERCENT, MILLIS = 100.0, 1_000.0
# Of a window, so many jobs of a query are looked at; the others count as these.
JOBS_MEASURED_MAX = 3


@dataclass(slots=True)
class SparkView:
    """What Spark knows of an application. `context` is its `SparkContext` in the JVM; `dropped`
    are executors that have been taken out, which it may still show."""

    context: Any
    dropped: set[str] = field(default_factory=set)

    def nodes(self) -> dict[str, NodeSeen]:
        """Hosts with active executors. The incarnation is another one once any of a host's
        executors has changed."""
        found: dict[str, list[tuple[str, int]]] = {}
        for executor, host, cores in self._executors():
            found.setdefault(host, []).append((executor, cores))
        return {
            host: NodeSeen(
                incarnation=f"{max((name for name, _ in there), key=_age)}.{len(there)}",
                capacity_percent=PERCENT * sum(cores for _, cores in there),
            )
            for host, there in found.items()
        }

    def drop(self, nodes: Mapping[str, str]) -> None:
        """Have executors of nodes (node -> incarnation) replaced, if they are still those."""
        there = self.nodes()
        for executor, host, _ in tuple(self._executors()):
            if host in nodes and there[host].incarnation == nodes[host]:
                self.dropped.add(executor)
                self.context.killAndReplaceExecutor(executor)

    def _executors(self) -> Iterator[tuple[str, str, int]]:
        """Id, host and cores of active executors; not of a driver that runs tasks itself."""
        summaries = self.context.statusStore().executorList(True)
        for index in range(summaries.size()):
            one = summaries.apply(index)
            executor, host = one.id(), one.hostPort().rpartition(":")[0]
            # Spark shows an executor for a moment before it knows where it is
            if host and executor != "driver" and executor not in self.dropped:
                yield executor, host, one.totalCores()


def _age(executor: str) -> tuple[int, str]:
    """Ids of executors are numbers almost everywhere."""
    return (int(executor) if executor.isdecimal() else 0, executor)


@dataclass(slots=True)
class RunTimes:
    """How much of the executors each query takes, by the run time of its jobs. Jobs of a run have
    its id as their group. `seen` is the newest job of a run that has been counted."""

    context: Any
    seen: dict[str, int] = field(default_factory=dict)
    since: float | None = None

    def loads(self, runs: Mapping[str, str], now: float | None = None) -> dict[str, float]:
        """Of runs (query -> run id) since the last call, in percent of one core; nothing at the
        first call, and for a run that was not there at the last one."""
        now = time.monotonic() if now is None else now
        seconds = None if self.since is None else now - self.since
        before, self.since = self.seen, now
        self.seen, found = {}, dict[str, float]()
        tracker = self.context.statusTracker()
        for name, run in runs.items():
            jobs = sorted(tracker.getJobIdsForGroup(run))
            fresh = [job for job in jobs if job > before.get(run, -1)]
            self.seen[run] = jobs[-1] if jobs else before.get(run, -1)
            if seconds and run in before:
                sample = fresh[-JOBS_MEASURED_MAX:]
                millis = sum(self._millis(tracker, job) for job in sample)
                share = len(fresh) / max(1, len(sample))
                found[name] = PERCENT * share * millis / MILLIS / seconds
        return found

    def _millis(self, tracker: Any, job: int) -> int:
        """Run time of the tasks of a job; 0 where Spark has forgotten it."""
        known = tracker.getJobInfo(job)
        stages = known.get().stageIds() if known.isDefined() else ()
        return sum(self._stage_millis(tracker, stage) for stage in stages)

    def _stage_millis(self, tracker: Any, stage: int) -> int:
        if not tracker.getStageInfo(stage).isDefined():
            return 0  # it was skipped, or is forgotten
        return int(self.context.statusStore().lastStageAttempt(stage).executorRunTime())

"""Executors, their heartbeats and run times, as Spark's driver knows them.

There is no agent, no jar, and no listener in Python.

A node is an executor's host, as in reports of pipelines. Spark counts run time in slots, so a core
of an executor is 100 %. Run time includes Python workers, which CPU time of executors leaves out.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rekindle.model.errors import first_line
from rekindle.protocol import NodeSeen

PERCENT, MILLIS = 100.0, 1_000.0
# Of a window, so many jobs of a query are looked at; the others count as these.
JOBS_MEASURED_MAX = 3
# Spark numbers executors as they come: one that is so many behind does not come back.
DROPPED_KNOWN_MAX = 10_000
# A shorter window may hold one batch of many, and no break.
SECONDS_MIN = 5.0
# What Spark raises for jobs and stages that it has forgotten, and for methods that it has not.
GONE = (Py4JError, PySparkException)
RECEIVER = "HeartbeatReceiver"
# Private fields, from the SparkContext to the endpoints of its driver.
TO_ENDPOINTS = ("_heartbeatReceiver", "nettyEnv", "dispatcher", "endpointRefs")
# Public for classes within it alone, so its name has that of its class in it.
LAST_SEEN = "org$apache$spark$HeartbeatReceiver$$executorLastSeen"
HEARTBEAT_INTERVAL = ("spark.executor.heartbeatInterval", "10s")
# After so many seconds a task that ran when an executor was dropped counts as waiting for it.
STALLED_SECONDS = 10.0
# Stages with more tasks are left alone.
TASKS_MAX = 1_000
RETRY_REASON = "it may wait for an executor of a silent machine"
# A heartbeat may be so late, and we may ask so seldom.
LATE_SECONDS, LISTENING_GAP_SECONDS = 2.0, 6.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostExecutors:
    """The executors of a host when it was last seen, and the incarnation that they belong to."""

    executors: frozenset[str]
    incarnation: str


@dataclass(slots=True)
class SparkView:
    """What Spark knows of an application. `context` is its `SparkContext` in the JVM; `dropped`
    are executors that have been taken out, which it may still show. `hosts` and `seen` are the last
    look's, `incarnations` counts those that it has named."""

    context: Any
    dropped: dict[str, None] = field(default_factory=dict)
    hosts: dict[str, HostExecutors] = field(default_factory=dict)
    seen: dict[str, NodeSeen] = field(default_factory=dict)
    incarnations: int = 0

    def nodes(self) -> dict[str, NodeSeen]:
        """Hosts with active executors. The incarnation changes when an executor of the host that
        was seen before is gone, and not when one joins: that is no loss. While executors are the
        same this is two calls into the JVM, however many there are."""
        if self.hosts and self._ids() == frozenset[str]().union(
            *(host.executors for host in self.hosts.values())
        ):
            return self.seen
        found: dict[str, dict[str, int]] = {}
        for executor, host, cores in self._executors():
            found.setdefault(host, {})[executor] = cores
        self.hosts = {host: self._host(host, frozenset(there)) for host, there in found.items()}
        self.seen = {
            host: NodeSeen(
                incarnation=self.hosts[host].incarnation,
                capacity_percent=PERCENT * sum(there.values()),
            )
            for host, there in found.items()
        }
        return self.seen

    def _ids(self) -> frozenset[str] | None:
        """Executors by the scheduler, which learns of losses before Spark's status does; None where
        a scheduler does not say."""
        try:
            named = str(self.context.getExecutorIds().mkString(","))
        except GONE:
            return None
        return frozenset(named.split(",")) - self.dropped.keys()

    def _host(self, host: str, executors: frozenset[str]) -> HostExecutors:
        before = self.hosts.get(host)
        if before is not None and before.executors <= executors:
            return HostExecutors(executors, before.incarnation)
        self.incarnations += 1
        return HostExecutors(executors, f"{max(executors, key=_age)}.{self.incarnations}")

    def drop(self, nodes: Mapping[str, str]) -> bool:
        """Have executors of nodes (node -> incarnation) replaced, if they are still those; returns
        whether any was."""
        there, before = self.nodes(), len(self.dropped)
        for executor, host, _ in tuple(self._executors()):
            if host in nodes and there[host].incarnation == nodes[host]:
                self.context.killAndReplaceExecutor(executor)
                self.dropped[executor] = None
        is_any = len(self.dropped) > before
        while len(self.dropped) > DROPPED_KNOWN_MAX:
            del self.dropped[next(iter(self.dropped))]
        return is_any

    def silent_seconds(self, silences: Mapping[str, float]) -> dict[str, float]:
        """How long hosts have been silent, of the silences of executors: as long as the least
        silent one there. A host of whose executors nothing is known is left out."""
        found = {}
        for host, there in self.hosts.items():
            known = [silences[executor] for executor in there.executors & silences.keys()]
            if known:
                found[host] = min(known)
        return found

    def _executors(self) -> Iterator[tuple[str, str, int]]:
        """Id, host and cores of active executors by Spark's status; not of a driver that runs tasks
        itself. Four calls into the JVM for each."""
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
class Heartbeats:
    """How long executors have sent no heartbeat, as the `HeartbeatReceiver` of the driver knows.

    Spark drops a silent executor after two minutes, and its status says nothing before that. The
    receiver is none of its public classes, so where Spark's are others nothing is known. Only time
    in which somebody asked counts: a driver that stood still has received nothing. Spark's moments
    are of the machine's clock, which may be set, so that only their changes count. `context` is
    the `SparkContext` in the JVM.
    """

    context: Any
    _receiver: Any = None
    _interval_seconds: float = 0.0
    _is_unknown: bool = False
    _asked_at: float = float("-inf")
    _listening_since: float = 0.0
    # Spark's moment of each executor's last heartbeat, and since when it has been that.
    _last: dict[str, tuple[str, float]] = field(default_factory=dict)

    def silences(self, now: float) -> dict[str, float] | None:
        """Executor -> seconds, 0 for one whose next heartbeat is not overdue; None where Spark does
        not say. `now` is of time.monotonic()."""
        if now - self._asked_at > LISTENING_GAP_SECONDS:
            self._listening_since = now
        self._asked_at = now
        if self._receiver is None and not self._is_unknown:
            self._find()
        if self._is_unknown:
            return None
        try:
            told = str(getattr(self._receiver, LAST_SEEN)().mkString(","))
        except GONE:
            return None  # an executor has come at this moment: Spark's table has no lock
        found, before = {}, self._last
        self._last = {}
        for line in filter(None, told.split(",")):
            executor, _, moment = line.partition(" -> ")
            known = before.get(executor)
            self._last[executor] = known if known and known[0] == moment else (moment, now)
            seconds = now - max(self._last[executor][1], self._listening_since)
            found[executor] = seconds if seconds >= self._interval_seconds + LATE_SECONDS else 0.0
        return found

    def _find(self) -> None:
        """The receiver is the endpoint of that name among those of the driver. The way goes around
        `SparkEnv`: it has a method with a type of protobuf, which need not be there, and then py4j
        finds none of its methods."""
        try:
            endpoints = reduce(_field, TO_ENDPOINTS, self.context)
            found = [one for one in endpoints if one.getClass().getSimpleName() == RECEIVER]
            if not found:
                raise Py4JError(f"no endpoint of the driver is a {RECEIVER}")
            self._receiver = found[0]
            getattr(self._receiver, LAST_SEEN)()
            interval = self.context.conf().getTimeAsSeconds(*HEARTBEAT_INTERVAL)
            self._interval_seconds = float(interval)
        except GONE as error:
            self._is_unknown = True
            log.warning("silent executors are not noticed before Spark does: %s", first_line(error))


@dataclass(frozen=True, slots=True)
class ExecutorDrop:
    """When executors were dropped: `at` by time.monotonic(), `clock_millis` by the driver's clock,
    in milliseconds since 1970."""

    at: float
    clock_millis: float


@dataclass(slots=True)
class TaskRetries:
    """Tasks of protected queries that run when a silent machine is dropped, and may wait for it.

    A task reads broadcasts, and what other stages have written, from other executors. Where the
    machine of such an executor is silent the task waits until `spark.shuffle.io.connectionTimeout`
    is over, by default two minutes, even for what the driver has too. A task that is started after
    the drop does not ask that executor. So a task that still runs a while after the drop is killed,
    once for each drop, and Spark starts it again; it counts that as no failure.

    Spark's status shows a task as soon as it has started, and its stage's count of running tasks
    with a later update. So the launch time of each task decides. It is of the driver's clock: where
    that is set back right before a drop, a task is missed and waits as long as without this.

    `context` is the `SparkContext` in the JVM, `array_text` is `java.util.Arrays.toString`.
    """

    context: Any
    array_text: Callable[[Any], str]
    drops: list[ExecutorDrop] = field(default_factory=list)

    def note_drop(self, now: float, clock_millis: float) -> None:
        """Record that executors have been dropped."""
        self.drops.append(ExecutorDrop(now, clock_millis))

    def retry(self, runs: Iterable[str], now: float) -> int:
        """Kill tasks of runs that have been running for too long since a drop; returns how many."""
        due = [drop.clock_millis for drop in self.drops if now - drop.at >= STALLED_SECONDS]
        if not due:
            return 0
        self.drops = [drop for drop in self.drops if now - drop.at < STALLED_SECONDS]
        newest, count = max(due), 0
        for task in self._running(runs):
            if task.launchTime().getTime() <= newest:
                count += self.context.killTaskAttempt(task.taskId(), True, RETRY_REASON)
        return count

    def _running(self, runs: Iterable[str]) -> Iterator[Any]:
        """The tasks that run. Several calls into the JVM for each task of a stage, so that large
        stages are left out."""
        tracker, store = self.context.statusTracker(), self.context.statusStore()
        active = set(json.loads(self.array_text(tracker.getActiveJobIds())))
        for run in runs:
            for job in active & set(json.loads(self.array_text(tracker.getJobIdsForGroup(run)))):
                for stage in _stages(store, job):
                    yield from _running_in(store, stage)


def _running_in(store: Any, stage: int) -> list[Any]:
    """The tasks of a stage that run; none of one that has not begun, or has ended."""
    try:
        attempt = store.lastStageAttempt(stage)
        if str(attempt.status()) != "ACTIVE" or attempt.numTasks() > TASKS_MAX:
            return []
        tasks = store.taskList(stage, attempt.attemptId(), TASKS_MAX)
        listed = [tasks.apply(index) for index in range(tasks.size())]
        return [task for task in listed if task.status() == "RUNNING"]
    except GONE:
        return []


def _stages(store: Any, job: int) -> list[int]:
    """The stages of a job; none where Spark has forgotten it."""
    try:
        stages = str(store.job(job).stageIds().mkString(","))
    except GONE:
        return []
    return [int(stage) for stage in stages.split(",") if stage]


def _field(owner: Any, name: str) -> Any:
    """A private field of an object in the JVM."""
    field = owner.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)


@dataclass(frozen=True, slots=True)
class Window:
    """Since when the run time of a run's jobs is added up: the moment at which its newest job had
    ended, in milliseconds of the driver's clock, and the jobs that had ended by then."""

    start_millis: int
    before: frozenset[int]


@dataclass(slots=True)
class RunTimes:
    """How much of the executors each query takes, by the run time of its jobs. Jobs of a run have
    its id as their group.

    A window goes from the end of a job to the end of a later one, for only a job that has ended has
    all its run time. Windows are at least as long as the trigger interval: within a batch a query
    takes much, and nothing between two batches. Of jobs Spark keeps some (`spark.ui.retainedJobs`).

    `array_text` is `java.util.Arrays.toString`: elements of an array are else a call each.
    """

    context: Any
    array_text: Callable[[Any], str]
    windows: dict[str, Window] = field(default_factory=dict)

    def loads(self, runs: Mapping[str, str], seconds_min: Mapping[str, float]) -> dict[str, float]:
        """Of runs (query -> run id) in the windows that end now, in percent of one core. A query is
        left out while its window is shorter than `seconds_min` of it, or none of its jobs has
        ended since. Windows of other runs are forgotten."""
        tracker, store = self.context.statusTracker(), self.context.statusStore()
        self.windows = {run: seen for run, seen in self.windows.items() if run in runs.values()}
        jobs = {run: self._numbers(tracker.getJobIdsForGroup(run)) for run in runs.values()}
        # read after the jobs: one that begins in between would count as ended
        active = self._numbers(tracker.getActiveJobIds())
        found = {}
        for name, run in runs.items():
            load = self._load(store, run, jobs[run] - active, seconds_min[name])
            if load is not None:
                found[name] = load
        return found

    def forget(self, runs: Iterable[str]) -> None:
        """Begin again with these runs."""
        for run in runs:
            self.windows.pop(run, None)

    def _numbers(self, array: Any) -> frozenset[int]:
        """An array of integers of the JVM, by one call instead of one for each."""
        return frozenset(json.loads(self.array_text(array)))

    def _load(
        self, store: Any, run: str, ended: frozenset[int], seconds_min: float
    ) -> float | None:
        window = self.windows.get(run)
        fresh = sorted(ended if window is None else ended - window.before)
        end_millis = _end_millis(store, fresh[-1]) if fresh else None
        if end_millis is None:
            return None
        if window is None:
            self.windows[run] = Window(end_millis, ended)
            return None
        start_millis: int | None = window.start_millis
        if not ended & window.before:
            # Spark has forgotten those jobs, and maybe some that have ended since
            start_millis, fresh = _end_millis(store, fresh[0]), fresh[1:]
        if start_millis is None:
            return None
        seconds = (end_millis - start_millis) / MILLIS
        if 0.0 <= seconds < max(seconds_min, SECONDS_MIN):
            return None
        self.windows[run] = Window(end_millis, ended)
        if seconds <= 0.0:
            return None  # the clock was set back
        sample = fresh[-JOBS_MEASURED_MAX:]
        millis = sum(_job_millis(store, job) for job in sample)
        return PERCENT * len(fresh) / len(sample) * millis / MILLIS / seconds


def _end_millis(store: Any, job: int) -> int | None:
    """When a job has ended; None where Spark has forgotten it."""
    try:
        return int(store.job(job).completionTime().get().getTime())
    except GONE:
        return None


def _job_millis(store: Any, job: int) -> int:
    """Run time of the tasks of a job; 0 where Spark has forgotten it."""
    return sum(_stage_millis(store, stage) for stage in _stages(store, job))


def _stage_millis(store: Any, stage: int) -> int:
    try:
        return int(store.lastStageAttempt(stage).executorRunTime())
    except GONE:
        return 0  # it was skipped, or is forgotten: Spark may do that between two calls

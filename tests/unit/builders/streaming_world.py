"""Spark's status of one application as protection reads it: executors, jobs and streaming queries.

Small, and only as true as the shapes of Spark's answers: what Spark really says is checked by
`tests/integration/protecting.py`.
"""

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError

LAST_SEEN = "org$apache$spark$HeartbeatReceiver$$executorLastSeen"
WAITS = "Waiting for next trigger"


class Seq:
    """A Seq of Scala."""

    def __init__(self, *items: object) -> None:
        self._items = items

    def mkString(self, between: str) -> str:  # noqa: N802
        return between.join(map(str, self._items))


class Answer:
    """An object of the JVM whose methods give what they were made with, or raise it."""

    def __init__(self, **answers: Any) -> None:
        for name, answer in answers.items():
            setattr(self, name, self._method(answer))

    @staticmethod
    def _method(answer: Any) -> Callable[..., Any]:
        def method(*_: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        return method


@dataclass
class Job:
    """Of a run; it has one stage with its own number. `ended_millis` is None while it runs."""

    run: str
    ended_millis: int | None
    run_millis: int
    tasks: int = 1


@dataclass
class Task:
    """Of the only stage of a job, which has its number. `start` is in ms of the driver's clock."""

    number: int
    job: int
    status: str = "RUNNING"
    start: int = 0

    @property
    def answer(self) -> Answer:
        return Answer(
            taskId=self.number,
            index=self.number % 10,
            status=self.status,
            launchTime=Answer(getTime=self.start),
        )


class Reflected:
    """An object of the JVM whose class has a name, and private fields."""

    def __init__(self, kind: str, **fields: Any) -> None:
        self._kind, self._fields = kind, fields

    def getClass(self) -> "Reflected":  # noqa: N802
        return self

    def getSimpleName(self) -> str:  # noqa: N802
        return self._kind

    def getDeclaredField(self, name: str) -> Answer:  # noqa: N802
        if name not in self._fields:
            raise Py4JError(f"java.lang.NoSuchFieldException: {name}")
        return Answer(setAccessible=None, get=self._fields[name])


@dataclass
class Context:
    """A SparkContext. `executors` are (id, host, cores), and `late` what its status still says of
    them; `forgotten` are stages that are no more. `lists` counts how often the status was read.
    `heartbeats` (executor -> milliseconds since 1970) are the last ones; None where it does not say
    them. Nobody can read them while their table `changes`."""

    executors: list[tuple[str, str, int]] = field(default_factory=list)
    jobs: dict[int, Job] = field(default_factory=dict)
    late: list[tuple[str, str, int]] | None = None
    lists: int = 0
    forgotten: set[int] = field(default_factory=set)
    replaced: list[str] = field(default_factory=list)
    is_stopped: bool = False
    failure: Exception | None = None
    heartbeats: dict[str, int] | None = None
    changes: bool = False
    tasks: list[Task] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)

    def getClass(self) -> Reflected:  # noqa: N802
        receiver = Reflected("HeartbeatReceiver")
        setattr(receiver, LAST_SEEN, lambda: Answer(mkString=self._heartbeats()))
        endpoints = [Reflected("BlockManagerMasterEndpoint")]
        if self.heartbeats is not None:
            endpoints.append(receiver)
        dispatcher = Reflected("Dispatcher", endpointRefs=endpoints)
        environment = Reflected("NettyRpcEnv", dispatcher=dispatcher)
        reference = Reflected("NettyRpcEndpointRef", nettyEnv=environment)
        return Reflected("SparkContext", _heartbeatReceiver=reference)

    def _heartbeats(self) -> str | Exception:
        if self.changes:
            error: Exception = Py4JError("java.util.NoSuchElementException")
            return error
        return ",".join(f"{name} -> {millis}" for name, millis in (self.heartbeats or {}).items())

    def conf(self) -> Answer:
        return Answer(getTimeAsSeconds=10)

    def statusStore(self) -> "Context":  # noqa: N802
        return self

    def statusTracker(self) -> "Context":  # noqa: N802
        return self

    def isStopped(self) -> bool:  # noqa: N802
        return self.is_stopped

    def getLocalProperties(self) -> Answer:  # noqa: N802
        return Answer(clone=Answer(clone=None))

    def setLocalProperties(self, _: object) -> None:  # noqa: N802
        """Threads of tests have none."""

    def getExecutorIds(self) -> Seq:  # noqa: N802
        if self.failure is not None:
            raise self.failure
        return Seq(*(name for name, _, _ in self.executors))

    def executorList(self, _: bool) -> Answer:  # noqa: N802
        if self.failure is not None:
            raise self.failure
        self.lists += 1
        return _listed(
            Answer(id=name, hostPort=f"{host}:7", totalCores=cores)
            for name, host, cores in (self.executors if self.late is None else self.late)
        )

    def taskList(self, stage: int, _: int, most: int) -> Answer:  # noqa: N802
        return _listed(one.answer for one in self.tasks[:most] if one.job == stage)

    def killTaskAttempt(self, number: int, interrupt: bool, _: str) -> bool:  # noqa: N802
        assert interrupt, "it waits for an answer"
        self.killed.append(number)
        return True

    def killAndReplaceExecutor(self, name: str) -> None:  # noqa: N802
        self.replaced.append(name)

    def getJobIdsForGroup(self, run: str) -> list[int]:  # noqa: N802
        return [number for number, job in self.jobs.items() if job.run == run]

    def getActiveJobIds(self) -> list[int]:  # noqa: N802
        return [number for number, job in self.jobs.items() if job.ended_millis is None]

    def job(self, number: int) -> Answer:
        if number not in self.jobs:
            raise Py4JError("No job with id")
        ended = Answer(getTime=self.jobs[number].ended_millis)
        status = "RUNNING" if self.jobs[number].ended_millis is None else "SUCCEEDED"
        return Answer(completionTime=Answer(get=ended), stageIds=Seq(number), status=status)

    def lastStageAttempt(self, stage: int) -> Answer:  # noqa: N802
        if stage in self.forgotten:
            raise Py4JError("No stage with id")
        runs = self.jobs[stage].ended_millis is None
        return Answer(
            executorRunTime=self.jobs[stage].run_millis,
            attemptId=0,
            numTasks=self.jobs[stage].tasks,
            status="ACTIVE" if runs else "COMPLETE",
        )


def _listed(answers: Iterable[Answer]) -> Answer:
    """A Seq of Scala whose elements are asked for one by one."""
    found = list(answers)
    listed = Answer(size=len(found))
    listed.apply = found.__getitem__  # type: ignore[attr-defined]
    return listed


@dataclass
class Stream:
    """A StreamingQuery; `progress` is that of its newest batch, `checkpoint` its folder, and
    `checkpoints` where its session has those of queries that name none."""

    id: str
    runId: str  # noqa: N815
    trigger: str = "ProcessingTimeTrigger(5000)"
    progress: dict[str, Any] | None = None
    message: str = WAITS
    has_data: bool = False
    is_active: bool = True
    error: Exception | None = None
    stop_error: Exception | None = None
    look_error: Exception | None = None
    checkpoint: str = "file:/checkpoints/q"
    checkpoints: str = ""
    name: str | None = None

    @property
    def isActive(self) -> bool:  # noqa: N802
        if self.look_error is not None:
            raise self.look_error
        return self.is_active

    @property
    def status(self) -> dict[str, Any]:
        return {
            "message": self.message,
            "isDataAvailable": self.has_data,
            "isTriggerActive": self.message != WAITS,
        }

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        if self.stop_error is not None:
            raise self.stop_error
        self.is_active = False

    @property
    def _jsq(self) -> Answer:
        progress = None if self.progress is None else Answer(json=json.dumps(self.progress))
        trigger = Answer(toString=self.trigger)
        session = Answer(conf=Answer(get=self.checkpoints))
        engine = Answer(
            trigger=trigger, resolvedCheckpointRoot=self.checkpoint, sparkSession=session
        )
        return Answer(lastProgress=progress, streamingQuery=engine)


def batch(
    number: int, seconds: float, *, run: str = "r1", offsets: Sequence[int] = (), rows: int = 0
) -> dict[str, Any]:
    """The progress of a batch; `offsets` are where it ended, and the newest there was."""
    end, latest = offsets or (number, None)
    return {
        "runId": run,
        "batchId": number,
        "durationMs": {"triggerExecution": int(1_000 * seconds)},
        "numInputRows": rows,
        "sources": [{"endOffset": end, "latestOffset": latest}],
    }


class JVM:
    """What is used of Java's own classes."""

    class java:  # noqa: N801
        class util:  # noqa: N801
            class Arrays:
                toString = staticmethod(str)  # noqa: N815


class Spark:
    """A SparkSession with executors, and with streams that start functions make."""

    def __init__(self) -> None:
        self.context = Context([("1", "n1", 1), ("2", "n2", 1)])
        self.made: dict[str, list[Stream]] = {}
        self.lock = threading.Lock()
        self._jsc = Answer(sc=self.context)
        self.streams = self
        self.sparkContext = self
        self._jvm = JVM
        self._jsparkSession = Answer(setActiveSession=None)
        self.version = "4.3.0"
        self.settings: dict[str, str] = {}

    @property
    def active(self) -> list[Stream]:
        return [one for made in self.made.values() for one in made if one.is_active]

    @property
    def _jsqm(self) -> Answer:
        return Answer(active=self.active)

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return self.settings

    def start(self, name: str) -> Callable[[], Stream]:
        """A start function; each call makes another run of the same stream."""

        def make() -> Stream:
            with self.lock:
                made = self.made.setdefault(name, [])
                made.append(Stream(name, f"{name}-{len(made)}"))
                return made[-1]

        return make

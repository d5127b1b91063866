"""Spark for the driver: the context, jobs of pinned tasks, executors (Java side in jvm/).

Nothing here knows what a task computes: a task is an executor, a header and what it reads.
"""

import json
import os
import re
import struct
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import SparkConf, SparkContext

from rekindle.model.errors import RunError
from rekindle_spark.spark import spark_installation, spark_master

PLUGIN = "rekindle.HostPlugin"
# Executors have links when they start with this.
LINKS = "spark.rekindle.links"
# What an executor may hold of another one's frames.
LINK_BYTES_MAX = "spark.rekindle.links.bytesMax"
SIGNS_SECONDS = 1.0
PLUGINS = "spark.plugins"
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.dynamicAllocation.enabled": "false",
    # tasks stay where they are pinned, or are refused
    "spark.locality.wait": "60s",
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    # no work on bytes that are small and short-lived
    "spark.shuffle.compress": "false",
    "spark.shuffle.checksum.enabled": "false",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "200ms",
    "spark.shuffle.io.numConnectionsPerPeer": "1",
    # What ends a read from a machine that is gone: by default only after 120 s. `Blocks` gives up
    # after 15 s without a block.
    "spark.shuffle.io.connectionTimeout": "10s",
    "spark.shuffle.io.connectionCreationTimeout": "5s",
    # `Leftovers` removes what is dropped at once; the statuses of retained shuffles, which go by a
    # broadcast where they are large, must therefore go without
    "spark.cleaner.referenceTracking": "false",
    "spark.shuffle.mapOutput.minSizeForBroadcast": "64m",
    # A task may take as long as it likes; an executor that is silent is dropped for that.
    # `LinkedTasks` gives up on a reader that takes nothing for 15 s.
    "spark.rekindle.links.io.connectionTimeout": "1d",
    "spark.rekindle.links.io.connectionCreationTimeout": "5s",
    "spark.executor.heartbeatInterval": "10s",
    "spark.scheduler.listenerbus.eventqueue.capacity": "2000",
    "spark.eventLog.enabled": "false",
    # On Kubernetes. A pod that is force-deleted while it runs, as those on a lost node are, still
    # counts as running until the next list of pods, 30 s away by default: only then are as many
    # new ones asked for. At 2 s they are Pending 1 to 3 s after the deletion.
    "spark.kubernetes.executor.apiPollingInterval": "2s",
    # By this label the operator's webhook knows that the executors are ours.
    "spark.kubernetes.executor.label.rekindle.dev/executor": "true",
    # All that was lost is asked for at once; 20 a second would take 5 s for a hundred.
    "spark.kubernetes.allocation.batch.size": "100",
    # The driver gives up after so many failed executors, twice as many as it has by default and
    # counted over its whole life: two losses of most nodes, months apart, would end it.
    "spark.executor.maxNumFailures": "1000",
    "spark.executor.failuresValidityInterval": "1h",
}
# Spark's service that serves blocks in place of executors knows Spark's own shuffles alone.
SHUFFLE_SERVICE = "spark.shuffle.service.enabled"
# Frames have checksums of their own; this one checks where in a file they are.
_CHECKED_SHUFFLES = {
    "spark.shuffle.manager": "rekindle.CheckedShuffleManager",
    # An executor would itself read files of others on its machine; only who wrote one can check it.
    "spark.shuffle.readHostLocalDisk": "false",
}
_KUBERNETES_DEFAULTS = {
    # Who has not the application's secret neither registers as an executor nor reads a block: Spark
    # makes one for each start of a driver, and hands it to the executors' pods.
    "spark.authenticate": "true",
}
# What says why Spark's scheduler has ended, which ends the application.
SCHEDULER = "org.apache.spark.scheduler.DAGSchedulerEventProcessLoop"
# Loggers of Spark whose warnings are shown on Kubernetes: what asks for executors, and what waits
# for some. All else that Spark says is about jobs, whose failures are handled.
SPEAKING = (
    "org.apache.spark.scheduler.cluster.k8s",
    "org.apache.spark.scheduler.TaskSchedulerImpl",
)
# What Spark says of a task that could not write its output: ENOSPC, or a quota's EDQUOT.
_WITHOUT_ROOM = re.compile(
    r"Lost task [^(]*\(TID \d+\) \(\S+ executor (\S+)\): "
    r"[\s\S]*(?:No space left on device|Disk quota exceeded)"
)


@dataclass(frozen=True, slots=True)
class Read:
    """Some map outputs of some targets of a shuffle; a negative id -1-N is the job's stage N."""

    shuffle: int
    maps: tuple[int, ...]
    targets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """What one executor does in one stage: `header` goes to its host."""

    host: str
    executor: str
    header: bytes
    reads: tuple[Read, ...]


@dataclass(frozen=True, slots=True)
class ExecutorSeen:
    """An executor that Spark counts; `silent_seconds` since it last said that it is there.

    `cluster_node` is what the cluster calls its node; empty when the executor has not been told.
    One that is not `connected` will not come back: an executor ends with its connection. `linked`:
    it has a port for links.
    """

    executor: str
    node: str
    silent_seconds: float
    cluster_node: str = ""
    connected: bool = True
    linked: bool = False


@dataclass(frozen=True, slots=True)
class LinkBacklog:
    """What waits on the link from a producer to a reader, both executors: bytes that were sent and
    not taken, and bytes that wait in the producer's files. `refusals`: how many outputs in a row,
    up to the newest one, the reader's credit did not cover."""

    producer: str
    reader: str
    waiting_bytes: int
    refusals: int = 0


class Job:
    """A submitted job; its reports may be read before it has ended. `is_linked`: over links."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.is_linked = bool(handle.isLinked())

    def wait(self, seconds: float) -> bool:
        """Whether the job has ended, waiting up to `seconds` for it."""
        return bool(self.handle.await_(int(seconds * 1000)))

    @property
    def is_past_first_stage(self) -> bool:
        """Whether it goes over links and the tasks of its first stage have ended."""
        return bool(self.handle.isPastFirstStage())

    def failure(self) -> str:
        """What Spark says of a job that failed; empty when it went well."""
        return str(self.handle.failure())

    def shuffle(self, stage: int) -> int:
        """The shuffle id of a stage's output."""
        return int(self.handle.shuffle(stage))

    def held_bytes(self) -> dict[str, int]:
        """What each process holds of it at most until it counts, where it goes over links: the
        executors frames that they have been sent, the driver reports."""
        lines = (line.split(" ") for line in str(self.handle.held()).splitlines())
        return {process: int(size) for process, size in lines}

    def reports(self) -> list[dict[str, Any]]:
        """The reports of the tasks that have ended, each with `arrived`: seconds since the job was
        submitted."""
        data = bytes(self.handle.reports())
        (count,) = struct.unpack_from(">i", data)
        position, found = 4, []
        for _ in range(count):
            nanoseconds, size = struct.unpack_from(">qi", data, position)
            report = json.loads(data[position + 12 : position + 12 + size])
            found.append({**report, "arrived": nanoseconds / 1e9})
            position += 12 + size
        return found

    def cancel(self, reason: str) -> None:
        """Give the job up; whatever it has done may be done again."""
        self.handle.cancel(reason)


class SparkGateway:
    """Pinned jobs and retained shuffles on one Spark application."""

    def __init__(
        self,
        name: str,
        master: str | None,
        jar: str,
        options: Mapping[str, str],
        *,
        ship_jar: bool = True,
    ) -> None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        conf = _configuration(name, master, jar, options, ship_jar=ship_jar)
        try:
            self.context = SparkContext(conf=conf)
        except Exception as error:
            if SparkContext._gateway is None:  # its Java ended at once
                spark_installation.read_java_version(spark_installation.find_java())
            raise RunError(
                where=f"Spark master {conf.get('spark.master')}",
                what=f"gave no application: {_cause(error)}",
                remedy="see that it is there, and the log above",
            ) from error
        self.context.setLogLevel("FATAL")
        jvm: Any = self.context._jvm
        _let_speak(jvm, conf.get("spark.master") or "")
        self.handle = jvm.rekindle.Exchange(self.context._jsc.sc())
        self._signs: tuple[float, dict[str, bytes]] = (-SIGNS_SECONDS, {})

    def submit(
        self,
        stages: Sequence[Sequence[Task]],
        output_order: Sequence[int],
        *,
        linked: bool = False,
    ) -> Job:
        """Run stages in order, each reading what its tasks name; `linked`: over links, where each
        of the executors has one, and each task as soon as what it reads is there.

        `output_order` has every partition once, as blocks for them lie in the output; it is empty
        where there is none. What is read of partitions that stand together is one block of a map
        output.
        """
        return Job(self.handle.submit(_encode(stages, output_order), linked))

    def follow(
        self, before: Job, stages: Sequence[Sequence[Task]], output_order: Sequence[int]
    ) -> Job | None:
        """Run stages over links behind those of a job that goes over links, with the same
        partitions in each task: each task behind the one that has its partitions. None, and nothing
        runs, where an executor has no link any more."""
        handle = self.handle.follow(_encode(stages, output_order), before.handle)
        return None if handle is None else Job(handle)

    def remove(self, shuffles: Iterable[int]) -> None:
        """Delete shuffles at once, files included."""
        numbers = list(shuffles)
        if numbers:
            self.handle.remove(struct.pack(f">{len(numbers) + 1}i", len(numbers), *numbers))

    def executors(self) -> list[ExecutorSeen]:
        """Executors that run and whose host is ready."""
        seen = []
        for line in str(self.handle.executors()).splitlines():
            executor, node, silent, *are, cluster_node = line.split(" ", maxsplit=5)
            connected, linked = (word == "true" for word in are)
            seconds = int(silent) / 1000
            seen.append(ExecutorSeen(executor, node, seconds, cluster_node, connected, linked))
        return seen

    def link_backlogs(self) -> list[LinkBacklog]:
        """The links on which something waits, or whose readers grant too little, as both ends have
        last said."""
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for line in str(self.handle.waiting()).splitlines():
            producer, reader, *numbers = line.split(" ")
            sent, stored, refusals = map(int, numbers)
            known_bytes, known_refusals = found.get((producer, reader), (0, 0))
            waiting_bytes = known_bytes + sent + stored
            found[producer, reader] = (waiting_bytes, known_refusals + refusals)
        return [LinkBacklog(*link, *numbers) for link, numbers in sorted(found.items())]

    def slots(self) -> dict[str, int]:
        """How many tasks each executor can run at a time (its cores by `spark.task.cpus`)."""
        lines = (line.split(" ") for line in str(self.handle.slots()).splitlines())
        return {executor: int(slots) for executor, slots in lines}

    def signs(self) -> dict[str, bytes]:
        """What each executor has last said that it has done (`job_activity`): once a second at
        most, however many jobs are looked at."""
        taken_at, signs = self._signs
        now = time.monotonic()
        if now - taken_at >= SIGNS_SECONDS:
            lines = (line.partition(" ") for line in str(self.handle.signs()).splitlines())
            signs = {executor: bytes.fromhex(digits) for executor, _, digits in lines}
            self._signs = (now, signs)
        return signs

    def drop(self, executor: str, reason: str) -> None:
        """Remove an executor from the scheduler without waiting for its answer."""
        self.handle.drop(executor, reason)

    def retained_count(self) -> int:
        """Shuffles that have not been removed."""
        return int(self.handle.retainedCount())

    def live_heap_bytes(self) -> int:
        """What was alive on the driver's heap after the last collections."""
        return int(self.handle.liveHeapBytes())

    def stop(self) -> None:
        """End the application."""
        self.context.stop()


def without_room(failure: str) -> str:
    """The executor that had no room on its disk, by what Spark says of a job; empty: that was not
    the cause. Steps and stores do not come in here: they report in band."""
    found = _WITHOUT_ROOM.search(failure)
    return found[1] if found else ""


def _configuration(
    name: str, master: str | None, jar: str, options: Mapping[str, str], *, ship_jar: bool
) -> SparkConf:
    """Spark's settings: `options`, before what spark-submit was told, before our defaults.

    Without a `master` spark-submit has started us; its JVM knows what it was told, and has the
    class path that it has.
    """
    defaults = {
        **_DEFAULTS,
        "spark.app.name": name,
        "spark.pyspark.python": sys.executable,
        **({"spark.jars": jar, "spark.executor.extraClassPath": jar} if ship_jar else {}),
    }
    if master is None:
        # Only with the JVM at hand does SparkConf read what it was told; this connects to it.
        SparkContext.getSystemProperty("SPARK_SUBMIT")
        conf = SparkConf()
    else:
        conf = SparkConf().setMaster(master)
        defaults["spark.driver.extraClassPath"] = jar
        if "PYTHONPATH" in os.environ:
            defaults["spark.executorEnv.PYTHONPATH"] = os.environ["PYTHONPATH"]
    for key, value in options.items():
        conf.set(key, value)
    if spark_master.is_kubernetes(conf.get("spark.master") or ""):
        defaults |= _KUBERNETES_DEFAULTS
    if (conf.get(SHUFFLE_SERVICE) or "").lower() != "true":
        defaults |= _CHECKED_SHUFFLES
    for key, value in defaults.items():
        conf.setIfMissing(key, value)
    others = [item for item in (conf.get(PLUGINS) or "").split(",") if item not in ("", PLUGIN)]
    return conf.set(PLUGINS, ",".join((PLUGIN, *others)))


def _let_speak(jvm: Any, master: str) -> None:
    """Let Spark say why its scheduler has ended, and its own words on executors through: a quota, a
    refused pod, an image that is not there are said by nobody else. Elsewhere a cluster manager of
    its own starts executors."""
    log = jvm.org.apache.logging.log4j
    log.core.config.Configurator.setLevel(SCHEDULER, log.Level.ERROR)
    for name in SPEAKING if spark_master.is_kubernetes(master) else ():
        log.core.config.Configurator.setLevel(name, log.Level.WARN)


def _cause(error: Exception) -> str:
    """The line of a Java error that says most, without its stack."""
    lines = [line.strip(" :\t") for line in str(error).splitlines() if line.strip(" :\t")]
    told = [line for line in lines if line.startswith(("org.", "java.", "Caused by"))]
    return (told or lines or [type(error).__name__])[0][:300]


def _encode(stages: Sequence[Sequence[Task]], output_order: Sequence[int]) -> bytes:
    parts = [_integers(output_order), struct.pack(">i", len(stages))]
    for tasks in stages:
        parts.append(struct.pack(">i", len(tasks)))
        for task in tasks:
            parts += [_text(task.host), _text(task.executor)]
            parts += [struct.pack(">i", len(task.header)), task.header]
            parts.append(struct.pack(">i", len(task.reads)))
            for read in task.reads:
                parts.append(struct.pack(">i", read.shuffle))
                parts += [_integers(read.maps), _integers(read.targets)]
    return b"".join(parts)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _integers(numbers: Sequence[int]) -> bytes:
    return struct.pack(f">{len(numbers) + 1}i", len(numbers), *numbers)

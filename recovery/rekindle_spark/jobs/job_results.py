"""The result of a job, judged from the reports of its tasks.

Gathers what hosts say of partitions, states, memory and CPU, and which of them were found dead;
`job_runner` decides whether the job counts, `control_loop` what follows where it does not.

How long each executor's task took in each stage is by the driver's clock. Executors have clocks of
their own, and one that stands still sees no time pass. So a task's time is from when its stage
could begin to when its report came in (`stages`); `stragglers` judges it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekindle.model.errors import DamagedError, SourceAwayError, StepError
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.executor import source_reading
from rekindle_spark.executor.source_reading import RowsRead
from rekindle_spark.flow_control import memory_budget
from rekindle_spark.flow_control.memory_budget import MemoryReading
from rekindle_spark.jobs.job_specs import Specification
from rekindle_spark.jobs.link_health import Link
from rekindle_spark.pipeline.unbounded_source import is_unbounded
from rekindle_spark.spark import spark_gateway
from rekindle_spark.user_code import dead_letter_sieve, watchdog
from rekindle_spark.user_code.watchdog import Noted


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


@dataclass(frozen=True, slots=True)
class Death:
    """A host that was found dead: its executor, its process, and of which of its work it may have
    died: two pieces at most, none where it had no work."""

    executor: str
    process: int
    exit_code: int
    noted: tuple[Noted, ...]


@dataclass(slots=True)
class Result:
    """How a job ended. `finished`: all counts. Faults are reports by executor otherwise, or by
    partition. `linked`: it went over links.

    `hostless_executors` are those of the `stateless_executors` that had no host to ask,
    `full_executor` one that had no room on its disk. `stages` are the tasks of a finished job.
    `blamed` are dead hosts' executors by the chain whose function is suspected of it. `died`:
    faults of partitions that ran apart and died there, each with its epoch.
    `damaged`: producers and epochs of frames that were not as they had been made.
    `cut_links` are executors that could not read blocks, each with one that has these, and the
    seconds that they tried; `sound_links` are those of the links asked for whose reads went well.
    `idle_seconds`: for how long nothing had been done for a job that was given up for that.
    `sources_away` are partitions of sources that could not be reached, `read` what was read of
    source partitions, by source.
    `machines` are executors' kinds of CPU. `over_budget`: bytes of states by partition of executors
    that had no memory for the job;
    `piece_epochs`: of how many epochs a piece of catching up was, or a job of live partitions that
    are behind, 0 for any other job. `seconds_by_partition`: how long hosts worked on each.
    """

    finished: bool
    seconds: float
    linked: bool = False
    losses: int = 0
    acknowledgements: list[dict[str, Any]] = field(default_factory=list)
    cpu: dict[str, dict[str, Any]] = field(default_factory=dict)
    memory: dict[str, MemoryReading] = field(default_factory=dict)
    over_budget: dict[str, dict[str, int]] = field(default_factory=dict)
    piece_epochs: int = 0
    rows_by_partition: dict[int, int] = field(default_factory=dict)
    seconds_by_partition: dict[int, float] = field(default_factory=dict)
    step_errors: dict[int, StepError] = field(default_factory=dict)
    died: dict[int, tuple[StepError, int]] = field(default_factory=dict)
    blamed: dict[str, int] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)
    sources_away: dict[int, SourceAwayError] = field(default_factory=dict)
    read: dict[str, dict[str, RowsRead]] = field(default_factory=dict)
    damage: DamagedError | None = None
    damaged: set[tuple[int, int]] = field(default_factory=set)
    cut_links: dict[Link, float] = field(default_factory=dict)
    sound_links: set[Link] = field(default_factory=set)
    store_away: bool = False
    stateless_executors: set[str] = field(default_factory=set)
    hostless_executors: set[str] = field(default_factory=set)
    full_executor: str = ""
    stages: tuple[dict[str, TaskTiming], ...] = ()
    reason: str = ""
    idle_seconds: float = 0.0


def judge(
    progress: PartitionTable,
    specification: Specification,
    reports: list[dict[str, Any]],
    failure: str,
    failing: Collection[Link] = (),
) -> Result:
    """What the reports say; `failure` is what Spark says of a job that failed, `failing` are links
    of which it is to be found out whether reads go well."""
    partitions = outcomes(reports)
    result = Result(False, 0.0, memory=memory_budget.readings(reports))
    for report in reports:
        result.acknowledgements += report.get("acks", [])
        if "cpu" in report:
            _merge_cpu(result.cpu, report["executor"], report["cpu"])
        if "machine" in report:
            result.machines[report["executor"]] = report["machine"]
        if report["status"] == "host-lost":
            result.stateless_executors.add(report["executor"])
            result.hostless_executors.add(report["executor"])
        for peer in report.get("peers", ()):
            result.cut_links[report["executor"], peer] = report["seconds"]
        if report["status"] == "over-budget":
            result.over_budget[report["executor"]] = report["states"]
        result.store_away = result.store_away or report["status"] == "store-away"
        if report["status"] != "ok":
            result.reason = f"{report['status']}: {report.get('text', '')}"
    for number, outcome in partitions.items():
        _enter(result, progress, number, outcome)
        if "read" in outcome:
            source = result.read.setdefault(progress.program.owner[number].source, {})
            read = {name: RowsRead(*one) for name, one in outcome["read"].items()}
            source.update(source_reading.merged([source, read]))
    good = {number for number, outcome in partitions.items() if outcome["status"] == "ok"}
    if failure:
        result.reason = result.reason or failure
        result.full_executor = spark_gateway.without_room(failure)
    result.finished = not failure and good == specification.partitions
    if result.finished:
        result.stages = stages(specification.produced, reports)
        if failing:  # else nobody asks, and an epoch may have very many
            result.sound_links = specification.links(progress.retained.executors) & {*failing}
    ran = counted(specification, {number: partitions[number] for number in good})
    result.rows_by_partition = {
        number: sum(epoch[1] for epoch in outcome["epochs"]) for number, outcome in ran.items()
    }
    result.seconds_by_partition = {
        number: outcome.get("seconds", 0.0) for number, outcome in ran.items()
    }
    return result


def _enter(
    result: Result, progress: PartitionTable, number: int, outcome: Mapping[str, Any]
) -> None:
    """Enter what went wrong with a partition."""
    status = outcome["status"]
    if status in ("error", "died", "damaged"):
        fault = {key: outcome[key] for key in ("where", "what", "remedy")}
        if status == "error":
            result.step_errors[number] = StepError(**fault)
        elif status == "died":
            result.died[number] = (StepError(**fault), outcome["epoch"])
        else:
            result.damage = DamagedError(**fault)
    if status == "source-away":
        away = SourceAwayError(**{key: outcome[key] for key in ("where", "what", "remedy")})
        if _reads_unbounded(progress, number):
            result.sources_away[number] = away
        else:
            result.step_errors[number] = _raised_away(progress, number, away)
    if "damaged" in outcome:
        producer, epoch = outcome["damaged"]
        result.damaged.add((producer, epoch))
    if status == "missing":
        result.stateless_executors.add(progress.placed.get(number, ""))
    if status != "ok" and not result.reason:
        result.reason = f"{status}: {outcome.get('text', outcome.get('what'))}"


def _reads_unbounded(progress: PartitionTable, number: int) -> bool:
    """Whether a partition reads a source that can be away."""
    chains, source = progress.program.chains, progress.program.owner[number].source
    return any(one.name == source and is_unbounded(one.root.function) for one in chains)


def _raised_away(progress: PartitionTable, number: int, away: SourceAwayError) -> StepError:
    """What a function or a replay raised that has no source to wait for."""
    return StepError(
        where=f"step {progress.program.owner[number].name}",
        what=f"{dead_letter_sieve.raised(away)}; only sources whose future is unknown can be away",
        remedy=dead_letter_sieve.MEND,
    )


def deaths(reports: Iterable[Mapping[str, Any]]) -> list[Death]:
    """The hosts that tasks have found dead."""
    return [
        Death(
            report["executor"],
            report["host"],
            report["exit_code"],
            watchdog.suspected(watchdog.read_all(bytes.fromhex(report["note"]))),
        )
        for report in reports
        if report["status"] == "host-lost" and "note" in report
    ]


def counted(
    specification: Specification, partitions: Mapping[int, dict[str, Any]]
) -> dict[int, dict[str, Any]]:
    """The outcomes without epochs that ran only to be read again."""
    found: dict[int, dict[str, Any]] = {}
    for number, outcome in partitions.items():
        if number in specification.ranges:
            first, last = specification.ranges[number]
            epochs = [epoch for epoch in outcome["epochs"] if first <= epoch[0] <= last]
            found[number] = {**outcome, "epochs": epochs}
    return found


def outcomes(reports: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """What hosts report of each partition."""
    return {
        int(number): outcome
        for report in reports
        for number, outcome in report.get("partitions", {}).items()
    }


def _merge_cpu(
    merged: dict[str, dict[str, Any]], executor: str, reading: Mapping[str, Any]
) -> None:
    entry = merged.setdefault(executor, {"work": {}, "processes": 0.0})
    for number, seconds in reading["work"].items():
        entry["work"][number] = entry["work"].get(number, 0.0) + seconds
    entry["processes"] = max(entry["processes"], reading["processes"])

"""The shared state of a driver: program, store, progress, settings, events.

Two threads use it, the epoch loop and the catch-up loop; `lock` guards everything that both
change. It holds and hands over; deciding is done where it is used.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rekindle.model.settings import Settings
from rekindle.model.switch_mode import ON
from rekindle.protocol.messages import Mode
from rekindle_spark.driver.epoch_cutter import Cut, EpochCutter
from rekindle_spark.driver.event_log import EventLog
from rekindle_spark.driver.partition_table import PartitionTable, Readers
from rekindle_spark.driver.source_polls import SourcePolls
from rekindle_spark.flow_control.catch_up_pace import CatchUpThrottle
from rekindle_spark.flow_control.memory_budget import MemoryBudget
from rekindle_spark.jobs.link_health import Links
from rekindle_spark.output.lag_goals import LagGoals
from rekindle_spark.output.late_row_counts import LateCounts
from rekindle_spark.output.sink_publishing import SinkPublishers
from rekindle_spark.pipeline.program import Program
from rekindle_spark.spark.spark_gateway import SparkGateway
from rekindle_spark.store.checkpoint_store import CheckpointStore


@dataclass(slots=True)
class Staged:
    """What an epoch has given that may be something else in a repeat: digests, output files and
    numbers of late rows by partition. It was `unordered`, or it is of uncertain steps alone.

    It counts with the next global checkpoint that has the partition's state, or never.
    """

    unordered: bool = False
    digests: dict[int, str] = field(default_factory=dict)
    outputs: dict[int, list[list[Any]]] = field(default_factory=dict)
    late: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moves:
    """Moves that were ordered (partition number -> node); they hold as long as nothing else is lost
    or planned."""

    nodes: Mapping[int, str]
    losses: int
    plan_epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class HeldSource:
    """A source that hosts could not read, since then, and why; it is read again from `retry_at`
    on. `unread` are the partitions that could not."""

    since: float
    retry_at: float
    text: str = ""
    unread: frozenset[int] = frozenset()


@dataclass(slots=True)
class DriverContext:
    """The state of one driver. `newest` is the last epoch that has run, in `epoch_seconds`,
    `begun` the last that is running or has; `attempts` counts its jobs, `checkpoint_attempt` is
    the last of an epoch that was to write states for a checkpoint, `trailing_attempts` has those by
    partition that ran that epoch behind it. `staged` holds epochs that are
    not committed yet, `machines` are the kinds of CPU of all executors that there have been,
    `moves` the newest ones that were ordered, `moved_at` the newest epoch when some were made.
    `program_file` is the file of the store with the program, and its SHA-256. `held` has sources
    that hosts could not read, by chain, `polls` asks sources that are no replays, `sinks` write
    what is committed to topics. `joining` are partitions that had caught up while epochs were on
    their way, behind which they join. `coming` has how many epochs came during the newest piece of
    catching up of each executor, `outrun` executors for which these were more than the piece had.
    Until `links_rest_until`, by the clock of `time.monotonic`, no job
    goes over links. `unlinked` are the executors of the newest job that was to go over links
    and did not, as Spark's side decided, `linkless` the nodes of those that have no port."""

    program: Program
    program_file: tuple[str, str]
    store: CheckpointStore
    exchange: SparkGateway
    settings: Settings
    events: EventLog
    progress: PartitionTable
    arrivals: EpochCutter
    cuts: dict[int, Cut]
    digests: dict[tuple[int, int], str]
    committed: dict[str, int]
    late: LateCounts
    pace: CatchUpThrottle
    budget: MemoryBudget
    newest: int = 0
    epoch_seconds: float | None = None
    begun: int = 0
    plan_epoch: int = 0
    losses: int = 0
    executors: dict[str, str] = field(default_factory=dict)
    machines: set[str] = field(default_factory=set)
    warm: set[str] = field(default_factory=set)
    claimed: set[int] = field(default_factory=set)
    joining: set[int] = field(default_factory=set)
    coming: dict[str, int] = field(default_factory=dict)
    outrun: set[str] = field(default_factory=set)
    failure: BaseException | None = None
    stopping: bool = False
    paused: bool = False
    sheds: bool = False
    buffering: Mode = ON
    ordering: Mode = ON
    staged: dict[int, Staged] = field(default_factory=dict)
    attempts: int = 0
    checkpoint_attempt: int = 0
    trailing_attempts: dict[int, int] = field(default_factory=dict)
    moves: Moves | None = None
    moved_at: int = -1
    lag_goals: LagGoals = field(default_factory=LagGoals)
    held: dict[int, HeldSource] = field(default_factory=dict)
    polls: SourcePolls | None = None
    sinks: SinkPublishers = field(default_factory=SinkPublishers)
    readers: Readers = field(default_factory=Readers)
    links: Links = field(default_factory=Links)
    links_rest_until: float = 0.0
    unlinked: set[str] = field(default_factory=set)
    linkless: list[str] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def remove(self, shuffles: Iterable[int]) -> None:
        """Remove shuffles that nobody needs, as soon as no job on its way reads them."""
        with self.lock:
            free = self.readers.sift(shuffles)
        self.exchange.remove(free)

    def offsets(self, epoch: int) -> Mapping[str, Any]:
        """Source offsets of an epoch, as requests carry them."""
        cut = self.cuts[epoch]
        return {name: cut.input_of(name) for name in (*cut.offsets, *cut.streams)}

    def next_header(self) -> dict[str, Any]:
        """The fields that every request of the next job has."""
        self.attempts += 1
        runtime = self.settings.runtime
        return {
            "version": 1,
            "program": [self.program.hash, *self.program_file],
            "generation": self.store.generation,
            "plan_epoch": self.plan_epoch,
            "attempt": self.attempts,
            "moved_at": self.moved_at,
            "ordering": self.ordering,
            "dead_letters": [
                runtime.dead_letter_tries,
                runtime.dead_letters_max,
                runtime.dead_letters_percent_max,
            ],
            "function_seconds_max": runtime.function_seconds_max,
            "store": self.store.files.place,
            "memory_bytes_max": runtime.host_memory_bytes_max,
        }

    def names(self, numbers: Any) -> list[str]:
        """Partition names of numbers."""
        return [self.program.partition_names[number] for number in sorted(numbers)]

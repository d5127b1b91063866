"""Runs one epoch of one partition: in the host, or in a process beside it.

What is suspected to end its process runs apart, each time in a new one. Functions of less important
queries run beside, in one that stays: what they do to it costs the host nothing. A host that takes
the place of a dead one knows on which partition that died, and refuses it until the driver asks for
it in a process of its own. Called by `host`, which has the states.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rekindle_spark.executor import (
    cpu_meter,
    host_scheduler,
    memory_gauge,
    partition,
    sandbox,
    work_items,
)
from rekindle_spark.executor.frames import Frame
from rekindle_spark.executor.partition import (
    PartitionOutcome,
    PartitionState,
    PartitionWork,
    QuietSteps,
)
from rekindle_spark.executor.sandbox import FunctionProcess, Sandboxes, SandboxTrial
from rekindle_spark.pipeline.program import Program
from rekindle_spark.user_code.watchdog import Watchdog

# By then the driver has heard of the death, or will not.
WARY_SECONDS = 10.0


class OutdatedRequest(Exception):
    """The request belongs to what has been replaced, or would end the host."""


@dataclass(frozen=True, slots=True)
class Wary:
    """The partitions on which the host before may have died: they are not run here until the driver
    knows."""

    partitions: frozenset[int]
    until: float


@dataclass(slots=True)
class PartitionRunner:
    """Runs what `host` has gathered; `meter` and `gauge` are the host's, `pickled` the newest
    program by its hash, and `quiet` what is known of steps without rows, by the program's."""

    meter: cpu_meter.CpuMeter
    gauge: memory_gauge.MemoryGauge
    sandboxes: Sandboxes = field(default_factory=Sandboxes)
    wary: Wary | None = None
    pickled: tuple[str, bytes] = ("", b"")
    quiet: dict[str, QuietSteps] = field(default_factory=dict)
    functions: FunctionProcess = field(init=False)

    def __post_init__(self) -> None:
        self.functions = FunctionProcess(self.sandboxes)

    def beware(self, numbers: Iterable[int]) -> None:
        """The host before has died on one of these partitions."""
        self.wary = Wary(frozenset(numbers), time.monotonic() + WARY_SECONDS)
        self.sandboxes.prepare()

    def check(self, number: int, item: dict[str, Any]) -> None:
        """Refuse what ended the host before, in jobs that were made when nobody knew that."""
        wary = self.wary
        if wary is None or number not in wary.partitions:
            return
        if item.get("apart") is not None or time.monotonic() > wary.until:
            self.wary = replace(wary, partitions=wary.partitions - {number})
            return
        raise OutdatedRequest("the host before died while it worked on this partition")

    def run_here(
        self,
        program: Program,
        request: dict[str, Any],
        work: PartitionWork,
        state: PartitionState,
        arrived: Sequence[Frame],
        watchdog: Watchdog,
    ) -> PartitionOutcome:
        """Run one epoch of one partition in this process, where memory allows. `watchdog` is that
        of the lane whose turn the caller has. Where nothing happens, nothing runs."""
        _, _, digest = request["program"]
        quiet = self.quiet.setdefault(digest, set())
        skipped = partition.skip(program, work, state, arrived, quiet)
        if skipped is not None:
            return skipped
        self.gauge.check(request)
        watchdog.seconds_max = request.get("function_seconds_max", 0.0)
        watchdog.memory_bytes_max = self.gauge.function_bytes_max(request)
        return partition.run(program, work, state, arrived, watchdog, quiet)

    def run_outside(
        self,
        program: Program,
        request: dict[str, Any],
        item: dict[str, Any],
        work: PartitionWork,
        state: PartitionState,
        arrived: Sequence[Frame],
        sign: Callable[[], None],
    ) -> tuple[PartitionOutcome | None, int]:
        """Run it in a process beside this one, where that is asked for; returns how many of these
        have died as well. `sign` is called while they get CPU time.

        That is a process of its own, or the function process where functions are called; what has a
        state would have to hand that over.
        """
        apart, beside, chain = item.get("apart"), item.get("beside"), program.owner[work.partition]
        if apart is not None:
            trial = self._trial(request, work, state, arrived, apart["seconds_max"])
            outcome, deaths, cpu_seconds = self.sandboxes.run(
                program, trial, searches=apart["searches"], sign=sign
            )
        elif beside is not None and not chain.keyed and chain.calls_functions:
            self.gauge.check(request)
            trial = self._trial(request, work, state, arrived, beside["seconds_max"])
            try:
                outcome, cpu_seconds = self.functions.run(program, trial, sign)
            finally:
                self.gauge.beside_bytes = self.functions.used_bytes
            deaths = 0
        else:
            return None, 0
        self.meter.add(work.partition, cpu_seconds)
        return outcome, deaths

    def _trial(
        self,
        request: dict[str, Any],
        work: PartitionWork,
        state: PartitionState,
        arrived: Sequence[Frame],
        seconds_max: float,
    ) -> SandboxTrial:
        _, _, digest = request["program"]
        return SandboxTrial(
            self._pickled(request),
            work,
            state,
            sandbox.blocks(arrived),
            seconds_max,
            self.gauge.trial_bytes_max(request),
            host_scheduler.yields(request),
            self.gauge.prefetch_bytes_max(request),
            digest,
        )

    def _pickled(self, request: dict[str, Any]) -> bytes:
        """The program as it lies in the store."""
        _, _, digest = request["program"]
        newest = self.pickled
        if newest[0] != digest:
            newest = self.pickled = (digest, work_items.program_bytes(request))
        return newest[1]

"""The run in phases, each of which waits for a condition and never for a time alone.

    start ─all executors up─► calibrate ─load in range─► arranged ─► level ─► rate held ─► kill
                                ▲                                                 │
                                └──────────── not level, or load out of range ────┘
          ─► nodes return one by one ─(later kills)─► recovered ─► finish ─► end

The rate of rows is calibrated, and then held for a while before the kill: what a query lags behind
while nothing fails is measured at one rate. Nodes are killed here, and come back because the
coordinator asks for them; everything else is the driver's and the coordinator's doing, seen through
their events. What this machine gives all of them is sampled meanwhile (`machine_load`). Raises
RunError when the contest was not fair or a phase took too long.
"""

import itertools
import json
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from rekindle.coordination import domain_placement
from rekindle.forecast import steady_state
from rekindle.model import topology
from rekindle.model.errors import InputError, RunError
from rekindle.model.settings import DOMAINS, EVEN
from rekindle.model.topology import Topology
from rekindle_local import failure_schedule
from rekindle_local.demo import demo_streams, driver_process, machine_load, run_inputs, run_phases
from rekindle_local.flights import flight_pipeline as flights
from rekindle_local.local_control_plane import LocalControlPlane
from rekindle_local.local_nodes import CPU_QUOTA
from rekindle_local.local_provisioning import Provisioning
from rekindle_local.spark_cluster import LocalCluster

POLL_SECONDS = 0.05
LOAD_PERCENT = (60.0, 80.0)
# Of all priorities, what the first plan brings back at most, and how many plans there are at least.
FIRST_SHARE_MAX, PLANS_MIN = 0.75, 5
# From so many killed nodes on a run is a contest.
CONTEST_KILL = 8
# Loads of so many measurements in a row that lie within this ratio.
STEADY_WINDOWS, STEADY_RATIO_MAX = 4, 1.15
# No input waits: so many epochs in a row have taken what came in, up to so long before their cut.
LEVEL_CUTS, LEVEL_SECONDS_MAX = 5, 1.0
# How often the rate is held before a run whose load is not judged goes on with what there is.
HOLDS_MAX = 2
# Of a run that is shown and not judged: long enough to come near the wanted load on most machines,
# and a load with which four nodes have room to catch up in a minute.
CALIBRATION_SECONDS_MAX, SHOWN_LOAD_PERCENT = 30.0, 50.0
# Rows a second by node with which calibration begins.
FIRST_ROWS_PER_NODE = 5_000.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the command line asks for. Seconds; `cpu_quota` in cores per node.

    The nodes are in so many failure `domains`. With `kill_domain` all nodes of that one are killed,
    and not `kill` of all. With `later_kills` there are more failures, of other nodes,
    `kills_every_seconds` after the one before, and no earlier than all nodes are back; nodes are
    then drawn from all. The rate is calibrated to `load_target_percent` of what plans may use, for
    `calibration_seconds_max` at most, where that is given, and held for `warm_seconds`. Where the
    load is `judged`, a run with one outside of 60 to 80 % fails.
    """

    nodes: int = 4
    kill: int = 3
    domains: int = 3
    kill_domain: str | None = None
    source: str = demo_streams.REPLAY
    later_kills: tuple[int, ...] = ()
    kills_every_seconds: float = 0.0
    placement: str = EVEN
    strategy: str = "incremental"
    seed: int = 1
    return_every_seconds: float = 6.0
    rows_per_second: float | None = None
    first_rows_per_second: float | None = None
    load_target_percent: float = run_inputs.LOAD_TARGET_PERCENT
    buffering: str = "always"
    ordering: str = "always"
    kill_coordinator: bool = False
    cpu_quota: float = CPU_QUOTA
    calibration_seconds_max: float | None = None
    warm_seconds: float = 20.0
    judged: bool = True
    phase_seconds_max: float = 600.0

    @property
    def begins_with_rows_per_second(self) -> float:
        """The rate that was asked for, or the one with which calibration begins."""
        first = self.first_rows_per_second or FIRST_ROWS_PER_NODE * self.nodes
        return first if self.rows_per_second is None else self.rows_per_second


def shown(options: DemoOptions) -> DemoOptions:
    """The same for somebody who wants to see it: any load will do, unless the run is as large as
    those of the benchmarks and the driver calibrates its rate."""
    if options.source == demo_streams.KAFKA:
        return replace(options, judged=False, calibration_seconds_max=CALIBRATION_SECONDS_MAX)
    if options.kill >= CONTEST_KILL:
        return options
    return replace(
        options,
        judged=False,
        load_target_percent=SHOWN_LOAD_PERCENT,
        calibration_seconds_max=CALIBRATION_SECONDS_MAX,
    )


def failure_domains(nodes: Sequence[str], count: int) -> dict[str, str]:
    """Nodes with their failure domain, rack-1 to rack-COUNT, as many in each as can be."""
    return {node: f"rack-{1 + index * count // len(nodes)}" for index, node in enumerate(nodes)}


def is_level(records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether what has come in is taken as it comes. A backlog of the start would be the normal
    worst lag, beside which no outage counts: with 149 s of it one of 180 s was none."""
    newest = (record for record in reversed(records) if record["kind"] == "cut")
    waited = [record["at"] - record["cut_at"] for record in islice(newest, LEVEL_CUTS)]
    return len(waited) == LEVEL_CUTS and max(waited) <= LEVEL_SECONDS_MAX


@dataclass(slots=True)
class DemoScenario:
    """One run. `records` collects the driver's events and this one's, by wall clock."""

    options: DemoOptions
    cluster: LocalCluster
    driver: driver_process.DriverProcess
    control: LocalControlPlane
    provisioning: Provisioning
    topology: Topology
    show: Callable[[dict[str, Any]], None]
    input: demo_streams.DemoInput = field(default_factory=demo_streams.ReplayedInput)
    records: list[dict[str, Any]] = field(default_factory=list)
    joined: set[str] = field(default_factory=set)
    latest: dict[str, dict[str, Any]] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
    victims: tuple[str, ...] = ()
    failure_at: float = 0.0
    _looked_at: dict[str, Any] | None = None
    _arranged: bool = False
    _phases: run_phases.Phases = field(init=False)
    _machine: machine_load.MachineLoad = field(init=False)

    def __post_init__(self) -> None:
        limit = self.options.phase_seconds_max
        self._phases = run_phases.Phases("demo", self.driver.log, self._poll, self.show, limit)
        self._machine = machine_load.MachineLoad(self.cluster, self.driver, self.control)

    def run(self) -> None:
        """All phases after cluster and driver have been started."""
        self._phases.await_that("all executors have joined", self._is_whole)
        self._phases.await_that("the first plan is running", lambda: "recovered" in self.kinds)
        self.input.begin()
        self._calibrate()
        if self.options.placement == DOMAINS:
            self._phases.await_that(
                "what survives the loss of a domain is arranged", self._is_arranged
            )
        if self.options.kill_domain is not None:
            self._phases.await_that("what partitions cost falls no more", self._is_compiled)
        self._hold_steady()
        self._kill(self._chosen())
        if self.options.kill_coordinator:
            self._kill_coordinator()
        for victims in self._drawn()[1:]:
            self._phases.let_pass(self.options.kills_every_seconds)
            self._phases.await_that("all nodes are back", self._is_whole)
            self._kill(victims)
        self._phases.await_that("all queries are back", self._is_recovered)
        self._phases.await_that("the incident is closed", lambda: "incident-closed" in self.kinds)
        self.input.end()
        self._phases.await_that("all input is read", lambda: self.input.is_read(self.driver.store))
        self.driver.request_finish()
        self._phases.await_that("the driver has finished", lambda: "finish" in self.kinds)
        self._phases.await_that("the driver has ended", lambda: self.driver.ended)
        self._check_contest()

    def _poll(self) -> None:
        for record in (*self.driver.fresh_events(), *self.control.events.fresh()):
            self._take(record)
        self.driver.check()
        self.provisioning.check()
        starting = [node.name for node in self.cluster.nodes if node.name not in self.joined]
        if (sample := self._machine.sample(starting)) is not None:
            self._note("machine", **sample)
        time.sleep(POLL_SECONDS)

    def _take(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        self.latest[record["kind"]] = record
        self.kinds.add(record["kind"])
        if record["kind"] == "joined":
            self.joined.add(record["node"])
            self.cluster.enforce_quota(record["node"])
            self._note("returned", node=record["node"], executor=record["executor"])
        self.show(record)

    def _note(self, kind: str, at: float | None = None, **fields: Any) -> None:
        record = {"version": 1, "at": at or time.time(), "kind": kind, **fields}
        self.records.append(record)
        self.show(record)

    def _calibrate(self) -> None:
        """Wait until the load is calibrated, or has been for as long as it may."""
        limit = self.options.calibration_seconds_max
        end = math.inf if limit is None else time.monotonic() + limit
        self._phases.await_that(
            "the load is calibrated",
            lambda: (
                "calibrated" in self.kinds
                or ("statistics" in self.kinds and time.monotonic() > end)
            ),
        )

    def _hold_steady(self) -> None:
        """Hold the rate for a while in which all is as it should be, else calibrate it on and hold
        it again. A rate that was asked for is held anyway."""
        is_asked_for = self.options.rows_per_second is not None
        end = time.monotonic() + self.options.phase_seconds_max
        for holds in itertools.count(1):
            self._phases.await_that("no input waits", lambda: is_level(self.records))
            self._hold()
            if self._is_steady():
                return
            if not self._judges_load and holds >= HOLDS_MAX:
                return
            if is_asked_for:
                break
            self.driver.release_rate()
            self._say("the load is not steady yet: the rate is calibrated on")
            while not self._is_steady() and time.monotonic() < end:
                self._poll()
            if not self._is_steady():
                break
        if self._judges_load:
            self._refuse_load()

    def _hold(self) -> None:
        """Let some time pass at one rate; the normal lag is measured in it."""
        seconds = self.options.warm_seconds
        if self.options.rows_per_second is None:
            self.driver.hold_rate()
        self._note("warm")
        # which rate that is says the next measurement: the newest has the one before its own change
        self._say(f"holding the rate for {seconds:.0f} s before the kill")
        self._phases.let_pass(seconds)

    def _is_steady(self) -> bool:
        return is_level(self.records) and (not self._judges_load or self._is_load_fair())

    @property
    def _judges_load(self) -> bool:
        """What a domain's loss stops is not a matter of the load."""
        return self.options.judged and self.options.kill_domain is None

    def _refuse_load(self) -> None:
        low, high = LOAD_PERCENT
        if self._is_load_fair():
            return
        raise RunError(
            where="demo",
            what=f"executors used {self._load():.1f} % of the capped capacity before the kill",
            remedy=f"choose --rows-per-second so that it is {low:.0f} to {high:.0f} %",
        )

    def _say(self, text: str) -> None:
        self.show({"kind": "phase", "text": text})

    def _is_load_fair(self) -> bool:
        low, high = LOAD_PERCENT
        return low <= self._load() <= high

    def _load(self) -> float:
        load: float = self.latest["statistics"]["load_percent"]
        return load

    def _is_compiled(self) -> bool:
        """Whether the newest measurements of the load are close to each other: while compilers are
        at work each is well below the one before. A rate that is calibrated has seen that."""
        loads = [one["load_percent"] for one in self.records if one["kind"] == "statistics"]
        newest = loads[-STEADY_WINDOWS:]
        return len(newest) == STEADY_WINDOWS and max(newest) <= STEADY_RATIO_MAX * min(newest)

    def _is_arranged(self) -> bool:
        """Whether the core would move nothing for the sake of survival, by the newest measurement.

        What it computes takes long enough not to be computed with each poll.
        """
        measured = self.latest["statistics"]
        if measured is not self._looked_at:
            self._looked_at = measured
            record = steady_state.to_record(
                self.topology,
                capacities=dict.fromkeys(self.domains, 100 * self.options.cpu_quota),
                domains=self.domains,
                costs=measured["costs"],
                overhead_percent=measured["overhead_percent"],
                placement=measured["placement"],
                policy={"placement": DOMAINS},
            )
            state = steady_state.parse(json.dumps(record).encode(), "demo", clock=time.monotonic)
            self._arranged = not domain_placement.moves(state)
        return self._arranged

    @property
    def domains(self) -> dict[str, str]:
        """The nodes with their failure domains."""
        return failure_domains([node.name for node in self.cluster.nodes], self.options.domains)

    def _chosen(self) -> tuple[str, ...]:
        """The nodes to be killed."""
        options, found = self.options, self.domains
        if options.kill_domain is not None:
            return tuple(node for node, name in found.items() if name == options.kill_domain)
        if options.later_kills:
            return self._drawn()[0]
        closures = {name: tuple(part) for name, part in topology.closures(self.topology).items()}
        placement = self.latest["statistics"]["placement"]
        for whole in range(flights.WHOLE_QUERIES, 0, -1):
            rng = random.Random(options.seed)
            try:
                return flights.victims(
                    closures, placement, list(found), options.kill, rng, whole=whole
                )
            except InputError:
                if options.judged:  # runs that are compared need survivors
                    raise
        return self._drawn()[0]

    def _drawn(self) -> tuple[tuple[str, ...], ...]:
        """The nodes of each failure, where there are several."""
        kills = (self.options.kill, *self.options.later_kills)
        names = [node.name for node in self.cluster.nodes]
        return failure_schedule.drawn(names, kills, self.options.seed)

    def _kill(self, victims: tuple[str, ...]) -> None:
        self.kinds -= {"recovered", "incident-closed"}
        now = time.time()
        self.failure_at = self.failure_at or now
        self.victims += victims
        self.joined -= set(victims)
        self.cluster.kill(victims)
        for node in victims:
            self._note("kill", at=now, node=node)

    def _kill_coordinator(self) -> None:
        """Kill the coordinator in the middle of the recovery, and start another one at once."""
        begin = self.latest["plan"]["plan_epoch"]
        self._phases.await_that("a plan is made", lambda: self.latest["plan"]["plan_epoch"] > begin)
        self.control.kill(self.control.coordinator)
        self._note("coordinator-killed")
        self.control.start_coordinator()

    def _is_whole(self) -> bool:
        return len(self.joined) == self.options.nodes

    def _is_recovered(self) -> bool:
        return self._is_whole() and "recovered" in self.kinds

    def _check_contest(self) -> None:
        """A run in which survivors could carry nearly everything, or nearly nothing had to be
        planned, is no evidence. How busy nodes are is checked before the failure."""
        killed = len(self.victims)
        planned = self.options.strategy == "incremental" and self.options.kill_domain is None
        if not planned or killed < CONTEST_KILL or not self.options.judged:
            return
        plans = [
            record
            for record in self.records
            if record["kind"] == "plan" and record["at"] > self.failure_at
        ]
        total = sum(self.latest["plan"]["priorities"].values())
        first = plans[0]["priority_sum"] if plans else 0.0
        if first > FIRST_SHARE_MAX * total or len(plans) < PLANS_MIN:
            raise RunError(
                where="demo",
                what=f"the first plan restored {first:.0f} of {total:.0f} in priorities and "
                f"{max(0, len(plans) - 1)} plans followed",
                remedy="raise --rows-per-second: survivors must not carry nearly everything",
            )

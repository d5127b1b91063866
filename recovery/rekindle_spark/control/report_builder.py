"""Builds the driver's reports from its present state.

Reports are complete and numbered (rekindle.protocol); whether and where they are sent is
`coordinator_client`'s. A node's incarnation is its executor with the number of times that its host
has lost its state, so that a coordinator sees a loss even when everything is there again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

import msgspec

from rekindle import protocol
from rekindle.coordination.directive_acceptance import AcceptedDirectives
from rekindle_spark.control import partition_migration, query_stop
from rekindle_spark.driver import driver_clock
from rekindle_spark.driver.driver_context import DriverContext
from rekindle_spark.output import lag_goals
from rekindle_spark.spark.spark_gateway import ExecutorSeen

FIRST_COSTS_SHARE = 0.5
NODE_NAME_MAX = 253
REFUSAL_MAX = 1000
SILENCE_STEP_SECONDS = 5.0
TEXT_LENGTH_MAX = 500


@dataclass(slots=True)
class ReportBuilder:
    """The newest of each kind. `suspected` are nodes that have been silent for long, `slow`
    executors that hold epochs up, `relapses` counts by executor how often its host has lost its
    state, `seen` are executors as they were last looked at, `refused` kinds of reports that
    the sidecar refuses, with why; `finished` once the run is over."""

    application: DriverContext
    suspected: set[str] = field(default_factory=set)
    slow: frozenset[str] = frozenset()
    relapses: dict[str, int] = field(default_factory=dict)
    seen: dict[str, ExecutorSeen] = field(default_factory=dict)
    statistics: protocol.StatisticsReport | None = None
    checkpoint: protocol.CheckpointReport | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    finished: bool = False
    sequence: int = 0
    numbering: Lock = field(default_factory=Lock)

    def measured(
        self, costs: Mapping[str, float], overhead_percent: float, state_bytes: Mapping[str, int]
    ) -> None:
        """A window of statistics has closed."""
        self.statistics = protocol.StatisticsReport(
            generation=self._generation,
            sequence=self._next(),
            costs=dict(costs),
            overhead_percent=overhead_percent,
            state_bytes=dict(state_bytes),
        )

    def checkpointed(self, epoch: int) -> None:
        """A checkpoint has become global."""
        self.checkpoint = protocol.CheckpointReport(
            generation=self._generation, sequence=self._next(), epoch=epoch, at=driver_clock.now()
        )

    def progress(self, following: AcceptedDirectives, *, alone: bool) -> protocol.ProgressReport:
        """Where everything is now."""
        application, now = self.application, driver_clock.now()
        with application.lock:
            lag_goals.count(application, now)
            goals, beyond = dict(application.lag_goals.goals), application.lag_goals.beyond
            names, progress = application.program.partition_names, application.progress
            executors = dict(application.executors)
            placed = {
                names[number]: executors[executor] for number, executor in progress.placed.items()
            }
            resident = {
                names[number]: executors[executor] for number, executor in progress.resident.items()
            }
            live = tuple(application.names(progress.live))
            moves = None
            if partition_migration.are_possible(application):
                moves = {
                    names[number]: node
                    for number, node in partition_migration.pending(application).items()
                }
            late_rows = application.late.seen
            stopped = {name: str(cause) for _, name, cause in query_stop.stopped_queries(progress)}
            suspected = {names[n]: one.text for n, one in progress.suspects.alone.items()}
        return protocol.ProgressReport(
            generation=self._generation,
            sequence=self._next(),
            nodes={node: self._node(executor, node) for executor, node in executors.items()},
            placement=placed,
            live=live,
            resident=resident,
            plan_epoch=following.plan_epoch,
            directive=following.directive,
            epoch=application.newest,
            buffering=application.buffering,
            ordering=application.ordering,
            paused=application.paused,
            alone=alone,
            finished=self.finished,
            stopped=stopped,
            lags=lags(application, now),
            lag_goals=goals,
            beyond_goal_seconds=beyond,
            moving=moves,
            at=now,
            late_rows=late_rows,
            sources=sources(application, now),
            suspected=suspected,
            epoch_seconds=application.epoch_seconds,
            store_away_at=application.events.away_at,
            refused={kind: why[:REFUSAL_MAX] for kind, why in self.refused.items()},
        )

    def incarnation(self, executor: str) -> str:
        """What tells this start of an executor and its host from any other."""
        return f"{executor}.{self.relapses.get(executor, 0)}"

    def _node(self, executor: str, node: str) -> protocol.NodeSeen:
        seen = self.seen.get(executor)
        return protocol.NodeSeen(
            incarnation=self.incarnation(executor),
            capacity_percent=self.application.settings.runtime.node_cpu_percent,
            suspected=node in self.suspected,
            slow=executor in self.slow,
            silent_seconds=None if seen is None else round(seen.silent_seconds, 3),
            cluster_node=None if seen is None else seen.cluster_node[:NODE_NAME_MAX] or None,
        )

    def _next(self) -> int:
        with self.numbering:  # who waits for a store reports too, on any thread
            self.sequence += 1
            return self.sequence

    @property
    def _generation(self) -> int:
        return self.application.store.generation


def gist(progress: protocol.ProgressReport) -> protocol.ProgressReport:
    """A report without what changes at every moment: when that is the same, there is no news.

    Silence counts in steps of 5 s, so a silent node is news whenever it passes one. Of a source
    counts whether it is away: why may have seconds in it.
    """
    nodes = {
        node: msgspec.structs.replace(
            seen, silent_seconds=(seen.silent_seconds or 0.0) // SILENCE_STEP_SECONDS
        )
        for node, seen in progress.nodes.items()
    }
    away = {
        name: protocol.SourceSeen(away="away" if seen.away else "")
        for name, seen in progress.sources.items()
    }
    steady = {
        "sources": away,
        "sequence": 0,
        "epoch": 0,
        "lags": {},
        "beyond_goal_seconds": {},
        "late_rows": {},
        "at": None,
        "epoch_seconds": None,
    }
    return msgspec.structs.replace(progress, nodes=nodes, **steady)


def lags(application: DriverContext, now: float) -> dict[str, float]:
    """Per query: `now` minus when the oldest input arrived that its output does not reflect."""
    reflected = lag_goals.reflected_by_query(application)
    return {query: max(0.0, now - moment) for query, moment in reflected.items()}


def sources(application: DriverContext, now: float) -> dict[str, protocol.SourceSeen]:
    """How the sources stand that are no replays."""
    program, found = application.program, dict[str, protocol.SourceSeen]()
    with application.lock:  # the catch-up thread lets go of some
        held = {program.chains[index].source: one.text for index, one in application.held.items()}
    for name, intake in application.arrivals.intakes.by_step.items():
        away = intake.answer.away if intake.is_away and intake.answer else held.get(name, "")
        found[name] = protocol.SourceSeen(
            waiting=intake.last.waiting,
            lag_seconds=max(0.0, now - intake.last.arrived_at),
            away=away[:TEXT_LENGTH_MAX],
        )
    return found


def topology_report(application: DriverContext, *, resumed: bool) -> protocol.TopologyReport:
    """The pipeline and its settings; the first report of a generation."""
    progress, settings = application.progress, application.settings
    newest = progress.restore_points.newest
    return protocol.TopologyReport(
        generation=application.store.generation,
        sequence=0,
        program=application.program.hash,
        topology=application.program.topology,
        policy=settings.policy,
        nodes_expected=settings.runtime.nodes_expected,
        hints=_hints(application),
        resumed=resumed,
        checkpoint_at=application.cuts[newest].cut_at if resumed and newest else None,
        store=application.store.identity(),
    )


def _hints(application: DriverContext) -> dict[str, float]:
    """Shares of half the capacity by the steps' cost hints, until costs are measured."""
    runtime, policy = application.settings.runtime, application.settings.policy
    program = application.program
    weights = {
        program.partition_names[number]: chain.root.cost_hint
        for chain in program.chains
        for number in chain.partitions
    }
    capacity = runtime.nodes_expected * runtime.node_cpu_percent * policy.cpu_cap
    unit = capacity * FIRST_COSTS_SHARE / sum(weights.values())
    return {name: weight * unit for name, weight in weights.items()}

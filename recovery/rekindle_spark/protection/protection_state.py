"""What of the protected queries runs and what waits, and the reports of it.

    all placed ──an executor is lost──► nothing placed, everything goes on ──plan──► some placed
        ▲                                                                                 │
        └────────────────────── plans, as nodes come ─────────────────────────────────────┘

Tasks of a query run on any executor, so a loss concerns all queries: none counts as placed until
the next plan has chosen. Until then what runs goes on. When executors come, the partitions that
are placed are spread over all of them, as tasks are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from rekindle import protocol
from rekindle.coordination.directive_acceptance import AcceptedDirectives
from rekindle.protocol.messages import Mode, Order
from rekindle_spark.driver import driver_clock
from rekindle_spark.protection.query_layout import QueryLayout


@dataclass(frozen=True, slots=True)
class ProtectionState:
    """`wanted` are the queries that are to run: all, or those of the plans since a loss. `waits`
    holds from a loss until plans have chosen all again but those that have `ended` by themselves.
    `losses` counts."""

    layout: QueryLayout
    wanted: frozenset[str]
    nodes: Mapping[str, protocol.NodeSeen] = field(default_factory=dict)
    placement: Mapping[str, str] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()
    waits: bool = False
    losses: int = 0
    is_paused: bool = False
    buffering: Mode = "on"
    ordering: Mode = "on"

    @property
    def runnable(self) -> frozenset[str]:
        """What is to run now."""
        return frozenset() if self.is_paused else self.wanted


def initial(layout: QueryLayout) -> ProtectionState:
    """Before any executor has been seen; everything runs."""
    return ProtectionState(layout, frozenset(layout.parts))


def observed(
    state: ProtectionState, nodes: Mapping[str, protocol.NodeSeen], ended: Iterable[str] = ()
) -> ProtectionState:
    """After a look at the executors, and at queries that have ended by themselves."""
    gone = frozenset(ended)
    if nodes == state.nodes and gone == state.ended:
        return state
    is_loss = any(
        name not in nodes or nodes[name].incarnation != seen.incarnation
        for name, seen in state.nodes.items()
    )
    state = replace(state, nodes=nodes, ended=gone)
    if is_loss:
        return replace(state, placement={}, waits=True, losses=state.losses + 1)
    layout, waits = state.layout, state.waits and bool(_waiting(state))
    queries = layout.complete(state.placement) if waits else frozenset(layout.parts)
    wanted = state.wanted if waits else queries
    return replace(state, placement=layout.spread(nodes, queries), wanted=wanted, waits=waits)


def _waiting(state: ProtectionState) -> frozenset[str]:
    """Queries that no plan has chosen since the newest loss, and that have not ended."""
    placed = state.layout.complete(state.placement)
    return frozenset(state.layout.parts) - placed - state.ended


def obeyed(state: ProtectionState, order: Order) -> ProtectionState:
    """After an order, as far as it is about what runs."""
    match order:
        case protocol.PlanOrder():
            there = {name: node for name, node in order.placement.items() if node in state.nodes}
            state = replace(state, placement={**state.placement, **there})
            wanted = state.layout.complete(state.placement)
            return replace(state, wanted=wanted, waits=bool(_waiting(state)))
        case protocol.PauseOrder():
            return replace(state, is_paused=True)
        case protocol.ResumeOrder():
            return replace(state, is_paused=False)
        case protocol.BufferingOrder():
            return replace(state, buffering=order.mode)
        case protocol.OrderingOrder():
            return replace(state, ordering=order.mode)
        case _:
            return state


@dataclass(slots=True)
class ProtectionReports:
    """Builds reports; the loop sets `state`, `caught_up`, `ended` (query -> why) and `lags` (query
    -> seconds) before each, and `silences` (node -> seconds) where Spark says them. `loads` are of
    queries, in percent of one core: assumed ones until some are `measured`. Plans use `cpu_cap` of
    each node."""

    generation: int
    state: ProtectionState
    loads: Mapping[str, float]
    cpu_cap: float
    measured: frozenset[str] = frozenset()
    caught_up: frozenset[str] = frozenset()
    ended: Mapping[str, str] = field(default_factory=dict)
    lags: Mapping[str, float] = field(default_factory=dict)
    silences: Mapping[str, float] = field(default_factory=dict)
    statistics: protocol.StatisticsReport | None = None
    checkpoint: protocol.CheckpointReport | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    finished: bool = False
    sequence: int = 0

    def measure(self, loads: Mapping[str, float]) -> None:
        """Note what queries take."""
        self.loads, self.measured = {**self.loads, **loads}, self.measured | loads.keys()

    def cost(self) -> None:
        """Report what queries cost, where that has changed. While some wait, none costs more than
        the nodes have that are left: an important one that takes more is better slow than stopped.
        """
        nodes, layout = self.state.nodes.values(), self.state.layout
        if not (self.measured or self.state.waits):
            return
        loads = dict(self.loads)
        if self.state.waits:
            free_percent = self.cpu_cap * sum(seen.capacity_percent for seen in nodes)
            loads = layout.clipped(loads, len(nodes), free_percent)
        costs = layout.costs(loads)
        if self.statistics is None or self.statistics.costs != costs:
            self.statistics = protocol.StatisticsReport(
                generation=self.generation, sequence=self._next(), costs=costs
            )

    def checkpointed(self) -> None:
        """All queries have committed what had come: Spark's checkpoints hold that."""
        before = 0 if self.checkpoint is None else self.checkpoint.epoch
        self.checkpoint = protocol.CheckpointReport(
            generation=self.generation,
            sequence=self._next(),
            epoch=before + 1,
            at=driver_clock.now(),
        )

    def progress(self, following: AcceptedDirectives, *, alone: bool) -> protocol.ProgressReport:
        """How things are now."""
        state, now = self.state, driver_clock.now()
        # one that has ended keeps nobody waiting who depends on it
        live = self._partitions(self.caught_up | self.ended.keys()) & state.placement.keys()
        return protocol.ProgressReport(
            generation=self.generation,
            sequence=self._next(),
            nodes={
                name: msgspec.structs.replace(seen, silent_seconds=self.silences.get(name))
                for name, seen in state.nodes.items()
            },
            placement=dict(state.placement),
            live=tuple(sorted(live)),
            plan_epoch=following.plan_epoch,
            directive=following.directive,
            epoch=0 if self.checkpoint is None else self.checkpoint.epoch,
            buffering=state.buffering,
            ordering=state.ordering,
            paused=state.is_paused,
            alone=alone,
            finished=self.finished,
            stopped={f"{name}/0": why for name, why in self.ended.items()},
            lags=dict(self.lags),
            at=now,
            refused=dict(self.refused),
        )

    def _partitions(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(part for name in names for part in self.state.layout.parts[name])

    def _next(self) -> int:
        self.sequence += 1
        return self.sequence

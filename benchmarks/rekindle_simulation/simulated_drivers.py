"""A driver that follows orders, or plans alone when the store is silent for long.

Its partitions become live some time after they were placed, producers first; it commits an epoch
whenever something runs, and moves partitions as it takes a checkpoint. It may be stalled for a
while, cut from its sidecar, or killed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from rekindle import protocol
from rekindle.coordination import directive_acceptance, session
from rekindle.coordination.directive_acceptance import AcceptedDirectives
from rekindle.coordination.session import ApplicationReading, Case
from rekindle.model import topology as graph
from rekindle.model.settings import ADAPTIVE, Policy
from rekindle.model.topology import Topology
from rekindle_simulation.invariants import Invariants
from rekindle_simulation.simulated_nodes import (
    CAPACITY_PERCENT,
    SimulatedCheckpointStore,
    SimulatedMachines,
)
from rekindle_simulation.simulated_sidecars import SimulatedSidecar
from rekindle_simulation.simulated_store import SimulatedStore
from rekindle_simulation.simulated_world import SimulatedWorld
from rekindle_simulation.simulation_sabotage import SimulationSabotage

STEP_SECONDS = 1.0
CHECKPOINT_SECONDS = 5.0
STEP_PARTITIONS = 2
MEASURED_STEPS = 10
SUSPECTED_SECONDS = 0.5
# Each driver's clock goes right, but began at what somebody had set on its machine.
CLOCK_OFFSET_SECONDS = (0.0, 3600.0, 7200.0)


@dataclass(frozen=True, slots=True)
class SimulatedPipeline:
    """What the driver runs; costs, and each executor's overhead, in percent of one core. Whether
    it `suspects` nodes that are silent before it loses them, and `measures` again and again."""

    topology: Topology
    policy: Policy
    costs: dict[str, float]
    overhead_percent: float
    nodes_expected: int
    suspects: bool = False
    measures: bool = False


@dataclass(slots=True)
class SimulatedDriver:
    """One start of the driver: its generation is its identity."""

    world: SimulatedWorld
    machines: SimulatedMachines
    storage: SimulatedCheckpointStore
    store: SimulatedStore
    pipeline: SimulatedPipeline
    invariants: Invariants
    sabotage: SimulationSabotage | None
    generation: int = 0
    running: bool = True
    stalled_until: float = 0.0
    clock_offset: float = 0.0
    resumed: bool = False
    paused: bool = False
    following: AcceptedDirectives = field(default_factory=lambda: AcceptedDirectives(0))
    case: Case = field(default_factory=Case)
    sequence: int = 0
    checkpoint_at: float = 0.0
    checkpoint: int = 0
    checkpoint_told: int = 0
    measured: int = 0
    waited_steps: int = 0
    seen: dict[str, protocol.NodeSeen] = field(default_factory=dict)
    dropped: set[tuple[str, str]] = field(default_factory=set)
    noticed: dict[tuple[str, int, bool], float] = field(default_factory=dict)
    placement: dict[str, str] = field(default_factory=dict)
    resident: dict[str, str] = field(default_factory=dict)
    ready_at: dict[str, float] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    moving: dict[str, str] = field(default_factory=dict)
    moving_guessed: bool = False
    moved: set[str] = field(default_factory=set)
    moved_in: int = -1
    modes: dict[str, Any] = field(default_factory=dict)
    sidecar: SimulatedSidecar = field(init=False)

    @property
    def can_move(self) -> bool:
        """Whether what a partition would run again is there, and the same."""
        return "off" not in self.modes.values()

    def start(self) -> None:
        """Take a generation and begin to step."""
        self.resumed = bool(self.storage.commits)
        self.generation = self.storage.next_generation()
        self.following = AcceptedDirectives(self.generation, contact_at=self.world.now)
        policy = self.pipeline.policy
        self.modes = {
            "buffering": "off" if policy.buffering == ADAPTIVE else "on",
            "ordering": "off" if policy.ordering == ADAPTIVE else "on",
        }
        self.sidecar = SimulatedSidecar(
            world=self.world,
            store=self.store,
            generation=self.generation,
            deliver=self._receive,
            looked_at=lambda: self.following.directive,
        )
        self.checkpoint_at = self.world.now
        self.world.tell(f"driver {self.generation} starts")
        self.world.after(0.0, self._step)

    def stall(self, seconds: float) -> None:
        """Stop for a while, as by SIGSTOP: what arrives meanwhile is looked at afterwards."""
        self.stalled_until = self.world.now + seconds

    def end(self) -> None:
        """Be gone, with all executors."""
        self.running = False

    def _step(self) -> None:
        if not self.running or self._is_fenced(self.sidecar.fenced):
            return
        if self.world.now < self.stalled_until:
            self.world.after(self.stalled_until - self.world.now + 0.01, self._step)
            return
        self._look()
        self._progress()
        self._commit()
        self._plan_alone()
        self._report()
        self.world.after(STEP_SECONDS, self._step)

    def _receive(self, directive: protocol.Directive) -> None:
        """An order from the sidecar; a stalled driver finds it when it goes on."""
        if not self.running:
            return
        if self.world.now < self.stalled_until:
            late = self.stalled_until - self.world.now + 0.02
            self.world.after(late, lambda: self._receive(directive))
            return
        if directive_acceptance.is_early(self.following, directive):
            return
        taken, why = directive_acceptance.take(self.following, directive)
        if self.sabotage is SimulationSabotage.STALE_DIRECTIVE and why:
            taken = replace(taken, plan_epoch=directive.plan_epoch)
            why = ""
        self.following = taken
        if not why:
            guessed = directive.sequence in self.invariants.guesses
            self._obey(directive, self.invariants.reported.get(directive.sequence, 0), guessed)
        self.sidecar.acknowledge(directive.sequence)

    def _obey(self, directive: protocol.Directive, reported: int, guessed: bool = False) -> None:
        """Carry out an order that was given by our report `reported`, and for which the costs of
        partitions were known or `guessed`."""
        match directive.order:
            case protocol.PlanOrder() as order:
                # the plan may have been made without the report of a move
                unknown = reported <= self.moved_in
                self._drop(order.drops)
                self._place(order, directive.plan_epoch)
                if not (guessed or unknown):
                    self.invariants.placed(order, self.placement, self.pipeline.costs)
            case protocol.MoveOrder(placement=placement):
                wanted = {p: n for p, n in placement.items() if self.placement.get(p) != n}
                self.moving = {p: n for p, n in wanted.items() if n in self.seen}
                self.moving_guessed = guessed
            case protocol.BufferingOrder(mode=mode):
                self.modes["buffering"] = mode
            case protocol.OrderingOrder(mode=mode):
                self.modes["ordering"] = mode
            case protocol.DropOrder(nodes=nodes):
                self._drop(nodes)
            case protocol.PauseOrder():
                self.paused, self.moving = True, {}
            case protocol.ResumeOrder():
                self.paused = False

    def _drop(self, nodes: Mapping[str, str]) -> None:
        self.dropped |= set(nodes.items())
        for name, incarnation in nodes.items():
            if name in self.seen and self.seen[name].incarnation == incarnation:
                self._lose(name)

    def _place(self, order: protocol.PlanOrder, plan_epoch: int) -> None:
        # a coordinator that did not know yet of a move may take what has moved for lost, and what
        # needs that
        unmoved = {p: n for p, n in self.placement.items() if p not in self.moved}
        runs = graph.runnable(self.pipeline.topology, unmoved)
        stayed = {p: n for p, n in unmoved.items() if p in runs}
        self.invariants.planned(self.generation, plan_epoch, order, stayed)
        self.world.tell(f"driver {self.generation} carries out plan {plan_epoch}")
        self.moving, self.moved = {}, set()
        for partition, node in order.placement.items():
            if node in self.seen and partition not in self.placement:
                self.placement[partition] = node
                self.resident.pop(partition, None)
                self.ready_at[partition] = self.world.now + self.world.between(0.5, 6.0)
        self._suspend()

    def _look(self) -> None:
        """Notice nodes that came and went, some time after they did."""
        for name, node in self.machines.nodes.items():
            state = (name, node.starts, node.up)
            at = self.noticed.setdefault(state, node.changed_at + self.world.between(0.1, 3.0))
            if self.world.now < at:
                continue
            incarnation = f"{self.generation}.{node.starts}"
            here = node.up and (name, incarnation) not in self.dropped
            known = self.seen.get(name)
            if known is not None and (not here or known.incarnation != incarnation):
                self._lose(name)
            if here and name not in self.seen:
                self.seen[name] = protocol.NodeSeen(
                    incarnation=incarnation, capacity_percent=CAPACITY_PERCENT
                )

    def _lose(self, name: str) -> None:
        del self.seen[name]
        self.moving = {}
        for held in (self.placement, self.resident):
            for partition in [p for p, node in held.items() if node == name]:
                del held[partition]
        self._suspend()

    def _suspend(self) -> None:
        """What has lost something upstream stops, its state where it is."""
        runs = graph.runnable(self.pipeline.topology, self.placement)
        for partition in [p for p in self.placement if p not in runs]:
            self.resident[partition] = self.placement.pop(partition)
        self.live &= set(self.placement)

    def _progress(self) -> None:
        ready = {p: n for p, n in self.placement.items() if self.ready_at[p] <= self.world.now}
        self.live = set(graph.runnable(self.pipeline.topology, ready))

    def _commit(self) -> None:
        if self.paused or not self.live:
            return
        fenced = self.sabotage is not SimulationSabotage.GENERATION
        counts = self.storage.commit(self.storage.newest + 1, self.generation, fenced=fenced)
        if self._is_fenced(not counts):
            return
        self.invariants.committed(self.storage.commits)
        everything = len(self.live) == len(self.pipeline.costs)
        if everything and self.world.now - self.checkpoint_at > CHECKPOINT_SECONDS:
            self.checkpoint_at, self.checkpoint = self.world.now, self.storage.newest
            self._move()

    def _move(self) -> None:
        """What moves stays live; some partitions at a time."""
        for partition, node in list(self.moving.items())[:STEP_PARTITIONS]:
            del self.moving[partition]
            before = dict(self.placement)
            self.placement[partition] = node
            self.moved.add(partition)
            self.moved_in = self.sequence
            self.invariants.moved(
                before,
                self.placement,
                self.pipeline.costs,
                self.seen,
                waiting=bool(self.moving),
                guessed=self.moving_guessed,
            )

    def _is_fenced(self, newer: bool) -> bool:
        """A driver that meets a newer one ends."""
        if newer and self.sabotage is not SimulationSabotage.GENERATION:
            self.world.tell(f"driver {self.generation} is fenced")
            self.running = False
        return not self.running

    @property
    def clock(self) -> float:
        """Seconds since 1970 as its machine has them: right, or hours off, and turned at times.

        A real driver asks its machine once, at its start; the core has to bear more.
        """
        first = CLOCK_OFFSET_SECONDS[self.generation % len(CLOCK_OFFSET_SECONDS)]
        return self.world.now + first + self.clock_offset

    def _plan_alone(self) -> None:
        """The same decisions as the coordinator's; carried out only when nobody else decides."""
        alone = directive_acceptance.is_alone(self.following, self.world.now)
        decision = session.decide(self.case, self._reading(), self.clock, clock=float, plan=alone)
        self.case = decision.case
        if decision.case.state is not None:
            self.invariants.decided(decision.case.state)
        due = self.case.state.due if self.case.state is not None else None
        waits = due is not None and due.at <= self.world.now and not alone and not self.paused
        self.waited_steps = self.waited_steps + 1 if waits else 0
        self.invariants.waited(
            self.waited_steps * STEP_SECONDS,
            self.sidecar.leaderless_seconds,
            in_contact=self.world.now - (self.following.contact_at or 0.0) < 2 * STEP_SECONDS,
        )
        if not alone:
            return
        for directive in decision.directives:
            if isinstance(directive.order, protocol.PlanOrder):
                if directive.plan_epoch <= self.following.plan_epoch:
                    continue
                self.following = directive_acceptance.planned(self.following, directive.plan_epoch)
                self.world.tell(f"driver {self.generation} plans alone")
            self._obey(directive, reported=self.sequence + 1)

    def _reading(self) -> ApplicationReading:
        own = msgspec.structs.replace(self._progress_report(), directive=self.case.sequence)
        return ApplicationReading(
            topology=self._topology(),
            progress=own,
            statistics=self._statistics(),
            checkpoint=self._checkpoint() if self.checkpoint else None,
            heartbeat=protocol.Heartbeat(generation=self.generation, since=0.0),
            domains=None,
        )

    def _report(self) -> None:
        """Whatever is new, and how things are: a driver that says nothing counts as silent."""
        self.sequence += 1
        reports: list[protocol.Report] = [self._progress_report()]
        forgotten = self.sidecar.knows_nothing
        if self.sequence == 1 or forgotten:
            reports = [self._topology(), self._statistics(), *reports]
            self.checkpoint_told = 0 if forgotten else self.checkpoint_told
        elif self.pipeline.measures and self.sequence % MEASURED_STEPS == 0:
            self.measured = self.sequence
            reports = [self._statistics(), *reports]
        if self.checkpoint_told != self.checkpoint:
            self.checkpoint_told = self.checkpoint
            reports.append(self._checkpoint())
        answered = [self.sidecar.report(report) for report in reports]
        if self.sidecar.listening:
            contact_at = self.world.now if all(answered) else self.following.contact_at
            assert contact_at is not None
            self.following = directive_acceptance.contacted(
                self.following, contact_at, led=self.sidecar.led
            )

    def _topology(self) -> protocol.TopologyReport:
        return protocol.TopologyReport(
            generation=self.generation,
            sequence=0,
            program="simulated",
            topology=self.pipeline.topology,
            policy=self.pipeline.policy,
            nodes_expected=self.pipeline.nodes_expected,
            resumed=self.resumed,
        )

    def _statistics(self) -> protocol.StatisticsReport:
        return protocol.StatisticsReport(
            generation=self.generation,
            sequence=self.measured,
            costs=self.pipeline.costs,
            overhead_percent=self.pipeline.overhead_percent,
        )

    def _checkpoint(self) -> protocol.CheckpointReport:
        return protocol.CheckpointReport(
            generation=self.generation,
            sequence=self.checkpoint,
            epoch=self.checkpoint,
            at=self.checkpoint_at,
        )

    def _heard(self, name: str, seen: protocol.NodeSeen) -> protocol.NodeSeen:
        """A node as a report tells of it; one that is down has been silent since it went."""
        node = self.machines.nodes[name]
        silent_seconds = 0.0 if node.up else self.world.now - node.changed_at
        suspected = self.pipeline.suspects and silent_seconds > SUSPECTED_SECONDS
        return msgspec.structs.replace(seen, silent_seconds=silent_seconds, suspected=suspected)

    def _progress_report(self) -> protocol.ProgressReport:
        forgotten = self.sabotage is SimulationSabotage.FORGOTTEN_ACK
        return protocol.ProgressReport(
            generation=self.generation,
            sequence=self.sequence,
            nodes={name: self._heard(name, seen) for name, seen in self.seen.items()},
            placement=dict(self.placement),
            live=tuple(sorted(self.live)),
            resident=dict(self.resident),
            plan_epoch=0 if forgotten else self.following.plan_epoch,
            directive=self.following.directive,
            epoch=self.storage.newest,
            paused=self.paused,
            moving=self.moving if self.can_move else None,
            alone=directive_acceptance.is_alone(self.following, self.world.now),
            at=self.clock,
            **self.modes,
        )

"""A coordinator's shell that may die, or stand still, between any two of its steps.

    read ──► decide ──► write case and directives at once ──► ask the provider

What it holds in memory is lost with it; another one finds the rest in the store. Only the one that
was first leads, but nothing relies on that: the transaction decides.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rekindle import protocol
from rekindle.coordination import session
from rekindle.coordination.coordination_events import LossNotice
from rekindle.coordination.instructions import Instruction, MovePartitions
from rekindle.coordination.session import ApplicationReading, Case, Decision
from rekindle.model.reasons import Reason
from rekindle.model.settings import DOMAINS
from rekindle.protocol import store_paths
from rekindle_simulation import simulated_store
from rekindle_simulation.invariants import Broken, Invariants
from rekindle_simulation.simulated_nodes import DOMAINS_OF_NODES, SimulatedMachines
from rekindle_simulation.simulated_sidecars import PLACE
from rekindle_simulation.simulated_world import SimulatedWorld
from rekindle_simulation.simulation_sabotage import SimulationSabotage

STEP_SECONDS = 1.0
AWAITED_SECONDS = 10.0


@dataclass(slots=True)
class Coordinator:
    """One process. `fragile`: the chance that it dies, or stands still, at a step."""

    name: str
    world: SimulatedWorld
    store: simulated_store.SimulatedStore
    machines: SimulatedMachines
    invariants: Invariants
    sabotage: SimulationSabotage | None
    driver_gone: Callable[[int], bool]
    restart_driver: Callable[[str], None]
    announces_losses: bool = False
    clock_offset: float = 0.0
    set_back_at: int | None = None
    fragile: float = 0.0
    down_until: float = 0.0
    noticed: bool = False
    session: int | None = None
    case: Case | None = None
    version: int | None = None
    reports: dict[str, tuple[bytes, Any]] = field(default_factory=dict)
    awaited: range = range(0)
    awaited_at: float = 0.0

    def start(self) -> None:
        """Begin to step."""
        self.store.watchers.append(self._notice)
        self.world.after(self.world.between(0.0, STEP_SECONDS), self._tick)

    def crash(self, seconds: float) -> None:
        """Die, and be started again after a while with nothing in memory."""
        self.down_until = self.world.now + seconds
        self.session, self.case, self.reports = None, None, {}
        self.world.tell(f"coordinator {self.name} dies")

    def stall(self, seconds: float) -> None:
        """Stand still with everything in memory."""
        self.down_until = self.world.now + seconds

    def _notice(self, path: str) -> None:
        ours = (store_paths.COORDINATION, store_paths.ACKS, store_paths.DIRECTIVES)
        if self.noticed or any(f"/{name}" in path for name in ours):
            return
        self.noticed = True
        self.world.after(self.world.between(0.01, 0.1), self._look)

    def _look(self) -> None:
        self.noticed = False
        self._step()

    def _tick(self) -> None:
        self._step()
        self.world.after(STEP_SECONDS, self._tick)

    def _step(self) -> None:
        if self.world.now < self.down_until:
            return
        try:
            if not self._leads():
                self.case = None
                return
            self._act()
        except (simulated_store.SimulatedOutage, simulated_store.Expired):
            self.case = None

    def _leads(self) -> bool:
        try:
            if self.session is None:
                raise simulated_store.Expired
            self.store.touch(self.session, self.world.now)
        except simulated_store.Expired:
            self.session = self.store.open(self.world.now)
            self.store.put(
                f"{store_paths.ELECTION}/{store_paths.numbered(self.session)}", b"", self.session
            )
        first = self.store.children(store_paths.ELECTION)[0]
        return (
            store_paths.number(first) == self.session
            or self.sabotage is SimulationSabotage.DOUBLE_PLAN
        )

    def _act(self) -> None:
        reading = self._read()
        if reading is None or self._falters():
            return
        assert self.case is not None
        now = self.world.now + self.clock_offset
        notices = reading.notices
        if self.sabotage is SimulationSabotage.IGNORED_NOTICE:
            reading = replace(reading, notices=None)
        decision = session.decide(self.case, reading, now, clock=float)
        self._compare(reading, now, decision)
        self.invariants.placed_where(decision, notices or {})
        if decision.case.state is not None:
            self.invariants.decided(decision.case.state)
        if self._falters():
            return
        reported = 0 if reading.progress is None else reading.progress.sequence
        if self.world.chance(self.fragile):
            # it stands still with the decision in hand, and goes on as if nothing had been
            self.stall(self.world.between(1.0, 40.0))
            wake, version = self.down_until - self.world.now, self.version
            self.world.after(wake, lambda: self._write_late(decision, reported, version))
            return
        self._write(decision, reported)

    def _write_late(self, decision: Decision, reported: int, version: int | None) -> None:
        """One that has died meanwhile, and has read another version since, has nothing in hand."""
        if self.version != version:
            return
        try:
            self._write(decision, reported)
        except simulated_store.SimulatedOutage:
            self.case = None

    def _write(self, decision: Decision, reported: int) -> None:
        path = PLACE.path(store_paths.COORDINATION)
        if decision.changed:
            writes = {path: session.to_record(decision.case)}
            for directive in decision.directives:
                name = store_paths.numbered(directive.sequence)
                writes[PLACE.path(store_paths.DIRECTIVES, name)] = protocol.encode(directive)
            held = {} if self.sabotage is SimulationSabotage.DOUBLE_PLAN else {path: self.version}
            try:
                self.store.transact(held, writes, None)
            except simulated_store.SimulatedConflict:
                self.case = None
                return
            self.version = self.store.records[path][1]
            self._note(decision, reported)
        self.case = decision.case
        if not self._falters():
            self._ask(decision.case)

    def _ask(self, case: Case) -> None:
        for identity, request in case.requests.items():
            if request.what == "driver":
                self.restart_driver(identity)
            else:
                self.machines.request(identity, request)

    def _read(self) -> ApplicationReading | None:
        topology = self._report(store_paths.TOPOLOGY, protocol.TopologyReport)
        if topology is None:
            return None
        if self.case is None:
            path = PLACE.path(store_paths.COORDINATION)
            found = self.store.get(path)
            self.version = None if found is None else found[1]
            self.case = self._fresh() if found is None else session.from_record(found[0], path)
        progress = self._report(store_paths.PROGRESS, protocol.ProgressReport)
        # one that knows domains leaves it to the driver who is gone, so that nodes are suspected
        by_domain = topology.policy.placement == DOMAINS
        return ApplicationReading(
            topology=topology,
            progress=progress,
            statistics=self._report(store_paths.STATISTICS, protocol.StatisticsReport),
            checkpoint=self._report(store_paths.CHECKPOINT, protocol.CheckpointReport),
            heartbeat=self._report(store_paths.HEARTBEAT, protocol.Heartbeat),
            orders=self._report(store_paths.ORDERS, protocol.Orders) or protocol.Orders(),
            nodes_gone=frozenset() if by_domain else self.machines.down(),
            driver_gone=self.driver_gone(topology.generation),
            domains=DOMAINS_OF_NODES if by_domain else {},
            directives=self._held(self.case, progress),
            notices=self._notices(),
        )

    def _notices(self) -> Mapping[str, LossNotice] | None:
        """As the provider says them, by the clock of this coordinator."""
        if not self.announces_losses:
            return None
        return {
            name: replace(notice, until=notice.until + self.clock_offset)
            for name, notice in self.machines.notices.items()
        }

    def _fresh(self) -> Case:
        """A case without a record, numbered behind all directives and answers in the store."""
        newest = max(
            self._numbers(store_paths.DIRECTIVES) | self._numbers(store_paths.ACKS), default=0
        )
        return Case(sequence=newest, base=newest)

    def _held(self, case: Case, progress: protocol.ProgressReport | None) -> frozenset[int] | None:
        """Numbers of the directives in the store, when the driver has taken none for long."""
        awaited = session.awaited(case, progress)
        if not awaited or awaited != self.awaited:
            self.awaited, self.awaited_at = awaited, self.world.now
        if self.world.now - self.awaited_at < AWAITED_SECONDS:
            return None
        return self._numbers(store_paths.DIRECTIVES)

    def _numbers(self, folder: str) -> frozenset[int]:
        return frozenset(map(store_paths.number, self.store.children(PLACE.path(folder))))

    def _report(self, name: str, kind: Any) -> Any:
        """A record, decoded once for each version of it."""
        path = PLACE.path(name)
        found = self.store.get(path)
        if found is None:
            return None
        known = self.reports.get(name)
        if known is None or known[0] is not found[0]:
            known = (found[0], protocol.decode(found[0], kind, path))
            self.reports[name] = known
        return known[1]

    def _falters(self) -> bool:
        if self.world.chance(self.fragile):
            self.crash(self.world.between(0.5, 20.0))
            return True
        return False

    def turn_clock(self, seconds: float) -> None:
        """Set the clock forward, or back."""
        self.clock_offset += seconds
        if seconds < 0.0:
            self.set_back_at = self.version

    def _compare(self, reading: ApplicationReading, now: float, decision: Decision) -> None:
        """One that is started anew would decide the same, but for moves a moment sooner: one that
        has heard of a change looks first whether there is something to plan, and when placement by
        domains was last looked at is not kept."""
        found = self.store.get(PLACE.path(store_paths.COORDINATION))
        if not decision.directives or found is None or found[1] != self.version:
            return
        if found[1] == self.set_back_at:
            return  # only who has run on knows how long ago that was, by a clock that was set back
        case = session.from_record(found[0], "coordination")
        again = session.decide(case, reading, now, clock=float)
        if reading.statistics is None and _costs(again) != _costs(decision):
            return  # the store has lost costs that only who has taken them still knows
        for kind in (protocol.PlanOrder, protocol.MoveOrder):
            ours, theirs = (_orders(kind, made.directives) for made in (decision, again))
            sooner = kind is protocol.MoveOrder and (not ours or _survive(again.instructions))
            if ours != theirs and not sooner:
                raise Broken(f"started anew, the coordinator would order {theirs}, not {ours}")

    def _note(self, decision: Decision, reported: int) -> None:
        state = decision.case.state
        measured = state is not None and set(state.partitions) <= state.costs.keys()
        for directive in decision.directives:
            plan = isinstance(directive.order, protocol.PlanOrder)
            self.world.tell(
                f"coordinator {self.name}: directive {directive.sequence} for "
                f"{directive.generation}: {directive.text}"
            )
            plan_epoch = directive.plan_epoch if plan else None
            self.invariants.wrote(
                directive.sequence, plan_epoch, measured=measured, reported=reported
            )


def _costs(decision: Decision) -> Mapping[str, float]:
    """Costs of partitions, as far as they are known."""
    state = decision.case.state
    return {} if state is None else state.costs


def _survive(instructions: tuple[Instruction, ...]) -> bool:
    """Whether there are moves among them for the sake of placement by domains."""
    return any(
        isinstance(item, MovePartitions) and item.reason is Reason.SURVIVAL for item in instructions
    )


def _orders(kind: type, directives: tuple[protocol.Directive, ...]) -> list[object]:
    return [item.order for item in directives if isinstance(item.order, kind)]

"""One seed from begin to end: a pipeline, its faults, and whether everything came right.

Called by `rekindle sim` and by the tests, thousands of times.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rekindle.coordination import NodeStatus, domain_placement, rebalancing, session
from rekindle.model import topology as graph
from rekindle.model.settings import ADAPTIVE, ALWAYS, BLOCKING, DOMAINS, EVEN, INCREMENTAL, Policy
from rekindle.model.topology import Query, Topology, TopologyOperator
from rekindle.protocol import store_paths
from rekindle_simulation.invariants import Broken, Invariants
from rekindle_simulation.seeded_faults import QUIET_AT, Faults
from rekindle_simulation.simulated_coordinators import Coordinator
from rekindle_simulation.simulated_drivers import SimulatedDriver, SimulatedPipeline
from rekindle_simulation.simulated_nodes import (
    SimulatedCheckpointStore,
    SimulatedMachines,
    SimulatedNode,
)
from rekindle_simulation.simulated_sidecars import PLACE
from rekindle_simulation.simulated_store import SimulatedStore
from rekindle_simulation.simulated_world import SimulatedWorld
from rekindle_simulation.simulation_sabotage import SimulationSabotage

SETTLED_SECONDS_MAX = 150.0
LOOK_SECONDS = 1.0
NODES = 4
CAPACITY_SHARE = 0.5
COST_MAX = 15.0
OVERHEAD_PERCENT = 10.0
# one seed of so many places by domain, and has nodes suspected before they are lost
DOMAIN_SEEDS = 4
# one seed of so many has a store that loses records
LOSING_SEEDS = 5
# one seed of so many, which leave this rest, has drivers with clocks that turn and refused reports
TROUBLING_SEEDS, TROUBLING_REST = 6, 5
# one seed of so many, which leave this rest, has nodes that are announced to go
ANNOUNCING_SEEDS, ANNOUNCING_REST = 7, 0


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """What became of a seed: `broken` is None, or which invariant did not hold."""

    seed: int
    broken: str | None
    plans: int
    incidents: int
    trace: tuple[str, ...]


def run(seed: int, sabotage: SimulationSabotage | None = None) -> SeedOutcome:
    """Run one seed to the end."""
    simulation = Simulation(
        SimulatedWorld(random.Random(seed)),
        sabotage,
        places_by_domain(seed),
        loses_records(seed),
        troubles_drivers(seed),
        announces_losses(seed),
    )
    broken = None
    try:
        simulation.play()
    except Broken as found:
        broken = str(found)
    return SeedOutcome(
        seed=seed,
        broken=broken,
        plans=simulation.invariants.published,
        incidents=simulation.incidents,
        trace=tuple(simulation.world.trace),
    )


def places_by_domain(seed: int) -> bool:
    """Whether a seed places by domain and has nodes suspected; the others stay what they were."""
    return seed % DOMAIN_SEEDS == DOMAIN_SEEDS - 2


def loses_records(seed: int) -> bool:
    """Whether a seed has a store that loses records and operators that are away; the others stay
    what they were."""
    return seed % LOSING_SEEDS == LOSING_SEEDS - 1


def troubles_drivers(seed: int) -> bool:
    """Whether a seed turns drivers' clocks and has reports refused; the others stay what they
    were."""
    return seed % TROUBLING_SEEDS == TROUBLING_REST


def announces_losses(seed: int) -> bool:
    """Whether a seed has nodes that are announced to go; the others stay what they were."""
    return seed % ANNOUNCING_SEEDS == ANNOUNCING_REST


@dataclass(slots=True)
class Simulation:
    """All parts of one run."""

    world: SimulatedWorld
    sabotage: SimulationSabotage | None
    by_domain: bool
    loses_records: bool = False
    troubles_drivers: bool = False
    announces_losses: bool = False
    store: SimulatedStore = field(default_factory=SimulatedStore)
    storage: SimulatedCheckpointStore = field(default_factory=SimulatedCheckpointStore)
    coordinators: list[Coordinator] = field(default_factory=list)
    drivers: list[SimulatedDriver] = field(default_factory=list)
    restarted: set[str] = field(default_factory=set)
    pipeline: SimulatedPipeline = field(init=False)
    invariants: Invariants = field(init=False)
    machines: SimulatedMachines = field(init=False)

    def __post_init__(self) -> None:
        self.pipeline = replace(
            _pipeline(self.world.random, by_domain=self.by_domain),
            measures=self.loses_records or self.troubles_drivers,
        )
        self.invariants = Invariants(self.pipeline.policy, OVERHEAD_PERCENT)
        nodes = {f"n{index}": SimulatedNode() for index in range(NODES)}
        self.machines = SimulatedMachines(self.world, nodes)

    @property
    def incidents(self) -> int:
        """How many there were."""
        kept = self._case().kept
        return 0 if kept is None else kept.incidents

    def play(self) -> None:
        """Everything in order; raises Broken."""
        self.coordinators += [self._coordinator(name) for name in ("a", "b")]
        self._start_driver()
        for coordinator in self.coordinators:
            coordinator.start()
        faults = Faults(
            self.world,
            self.store,
            self.machines,
            self.coordinators,
            self.drivers,
            self.invariants,
            self._start_driver,
            self.loses_records,
            self.troubles_drivers,
            self.announces_losses,
        )
        faults.plan()
        self._keep_sessions()
        self.world.run(QUIET_AT)
        end = QUIET_AT + SETTLED_SECONDS_MAX
        while wrong := self._unsettled():
            if self.world.now >= end:
                raise Broken(f"{SETTLED_SECONDS_MAX:.0f} s after the last fault {wrong}")
            self.world.run(self.world.now + LOOK_SECONDS)

    def _keep_sessions(self) -> None:
        self.store.expire(self.world.now)
        for driver in self.drivers:
            if driver.running:
                driver.sidecar.step()
        self.world.after(LOOK_SECONDS, self._keep_sessions)

    def _coordinator(self, name: str) -> Coordinator:
        return Coordinator(
            name=name,
            world=self.world,
            store=self.store,
            machines=self.machines,
            invariants=self.invariants,
            sabotage=self.sabotage,
            driver_gone=self._is_gone,
            restart_driver=self._restart_driver,
            announces_losses=self.announces_losses,
        )

    def _is_gone(self, generation: int) -> bool:
        """What the provider says of a driver's process."""
        return not any(d.running and d.generation >= generation for d in self.drivers)

    def _restart_driver(self, identity: str) -> None:
        if identity not in self.restarted:
            self.restarted.add(identity)
            self.world.after(self.world.between(1.0, 5.0), self._start_driver)

    def _start_driver(self) -> None:
        driver = SimulatedDriver(
            world=self.world,
            machines=self.machines,
            storage=self.storage,
            store=self.store,
            pipeline=self.pipeline,
            invariants=self.invariants,
            sabotage=self.sabotage,
        )
        self.drivers.append(driver)
        driver.start()

    def _case(self) -> session.Case:
        found = self.store.records.get(PLACE.path(store_paths.COORDINATION))
        return session.Case() if found is None else session.from_record(found[0], "case")

    def _unsettled(self) -> str:
        """What is still wrong, empty when all is as it should be."""
        running = [driver for driver in self.drivers if driver.running]
        if len(running) != 1:
            return f"{len(running)} drivers run"
        driver, kept = running[0], self._case().kept
        everything = set(graph.partitions(self.pipeline.topology))
        if driver.live != everything:
            return f"{', '.join(sorted(everything - driver.live))} do not run"
        if kept is None or kept.incident is not None:
            return "the incident is not closed"
        if any(view.status is not NodeStatus.UP for view in kept.nodes.values()):
            return "a node does not count as up"
        if any(view.notice is not None for view in kept.nodes.values()):
            return "a node counts as announced to go"
        normal = {
            "buffering": "off" if self.pipeline.policy.buffering == ADAPTIVE else "on",
            "ordering": "off" if self.pipeline.policy.ordering == ADAPTIVE else "on",
        }
        if driver.modes != normal:
            return f"the switches are {driver.modes}"
        moves = driver.moving or self._wanted_moves(driver)
        return f"{', '.join(sorted(moves))} should move" if moves and driver.can_move else ""

    def _wanted_moves(self, driver: SimulatedDriver) -> Mapping[str, str]:
        """Partition -> node, as the one sees it that knows where nodes are."""
        state = driver.case.state
        if self.by_domain:
            # the driver does not know the domains, and the leading coordinator has the newest state
            states = [item.case.state for item in self.coordinators if item.case is not None]
            state = next((item for item in states if item is not None), None)
        if state is None:
            return {}
        surviving = domain_placement.moves(state) if self.by_domain else {}
        return surviving or rebalancing.moves(state)


def _pipeline(chance: random.Random, *, by_domain: bool) -> SimulatedPipeline:
    """Up to five operators, each reading from some before it, on nodes that hold them all."""
    count = chance.randint(1, 5)
    operators = tuple(TopologyOperator(f"o{i}", chance.randint(1, 3)) for i in range(count))
    edges = tuple(
        (f"o{i}", f"o{j}") for j in range(count) for i in range(j) if chance.random() < 0.4
    )
    ends = {operator.name for operator in operators} - {producer for producer, _ in edges}
    queries = tuple(
        Query(f"q{i}", operator.name, chance.randint(1, 10))
        for i, operator in enumerate(operators)
        if operator.name in ends or chance.random() < 0.5
    )
    topology = Topology(operators, edges, queries)
    weights = {name: chance.uniform(0.2, 1.0) for name in graph.partitions(topology)}
    unit = min(COST_MAX, NODES * 100 * CAPACITY_SHARE / sum(weights.values()))
    adaptive = chance.random() < 0.5
    policy = Policy(
        strategy=BLOCKING if chance.random() < 0.2 else INCREMENTAL,
        buffering=ADAPTIVE if adaptive else ALWAYS,
        ordering=ADAPTIVE if adaptive and chance.random() < 0.7 else ALWAYS,
        stabilisation_seconds=chance.choice((0.0, 3.0)),
        solver="best-density",
        placement=DOMAINS if by_domain else EVEN,
    )
    costs = {name: weight * unit for name, weight in weights.items()}
    return SimulatedPipeline(topology, policy, costs, OVERHEAD_PERCENT, NODES, suspects=by_domain)

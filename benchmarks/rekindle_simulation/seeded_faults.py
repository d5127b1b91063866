"""What a seed does to nodes, driver, sidecar, store and coordinators, up to a moment.

Each fault has a begin and an end of its own; after `QUIET_AT` nothing new happens and everything
that was cut, stalled or dead is back, so whatever is still wrong then is our doing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from rekindle.protocol import (
    CheckpointReport,
    Orders,
    PriorityOverride,
    ProgressReport,
    Report,
    StatisticsReport,
    encode,
    store_paths,
)
from rekindle_simulation.invariants import Invariants
from rekindle_simulation.simulated_coordinators import Coordinator
from rekindle_simulation.simulated_drivers import SimulatedDriver
from rekindle_simulation.simulated_nodes import SimulatedMachines
from rekindle_simulation.simulated_sidecars import PLACE
from rekindle_simulation.simulated_store import SimulatedOutage, SimulatedStore
from rekindle_simulation.simulated_world import SimulatedWorld

CALM_SECONDS, QUIET_AT = 15.0, 90.0
FAULTS_MAX = 6
# of some nodes each, beside other faults
ANNOUNCEMENTS = 3
# what may be lost, the more often it is named the likelier
LOST_RECORDS = (
    *(
        store_paths.COORDINATION,
        store_paths.COORDINATION,
        store_paths.DIRECTIVES,
        store_paths.TOPOLOGY,
    ),
    *(store_paths.PROGRESS, store_paths.STATISTICS, store_paths.CHECKPOINT, store_paths.HEARTBEAT),
)
# a driver whose topology is refused is nobody's application
REFUSED_KINDS: tuple[type[Report], ...] = (ProgressReport, StatisticsReport, CheckpointReport)


@dataclass(slots=True)
class Faults:
    """Everything that can be hurt. `start_driver` starts one more driver."""

    world: SimulatedWorld
    store: SimulatedStore
    machines: SimulatedMachines
    coordinators: list[Coordinator]
    drivers: list[SimulatedDriver]
    invariants: Invariants
    start_driver: Callable[[], None]
    loses_records: bool = False
    troubles_drivers: bool = False
    announces_losses: bool = False

    def plan(self) -> None:
        """Choose what happens, and let it happen."""
        world = self.world
        kinds: tuple[Callable[[], None], ...] = (
            self._kill_nodes,
            self._kill_nodes,
            self._break_coordinators,
            self._stop_store,
            self._cut_sidecar,
            self._deafen_driver,
            self._stall_driver,
            self._kill_driver,
            self._start_second_driver,
            self._turn_clock,
            self._give_orders,
        )
        if self.loses_records:
            more = (
                self._empty_store,
                self._lose_record,
                self._restore_store,
                self._take_operators_away,
            )
            world.after(world.between(CALM_SECONDS, QUIET_AT - 1), world.random.choice(more))
            kinds = (*kinds, *more)
        if self.troubles_drivers:
            own = (self._turn_driver_clock, self._refuse_reports)
            for fault in own:
                world.after(world.between(CALM_SECONDS, QUIET_AT - 1), fault)
            kinds = (*kinds, *own)
        if self.announces_losses:
            for _ in range(ANNOUNCEMENTS):
                world.after(world.between(CALM_SECONDS, QUIET_AT - 20.0), self._announce)
            kinds = (*kinds, self._announce)
        self.world.after(world.between(CALM_SECONDS, 40.0), self._kill_nodes)
        for _ in range(world.random.randint(0, FAULTS_MAX)):
            world.after(world.between(CALM_SECONDS, QUIET_AT - 1), world.random.choice(kinds))
        world.after(QUIET_AT, self._heal)

    def _kill_nodes(self) -> None:
        up = sorted(name for name, node in self.machines.nodes.items() if node.up)
        if up:
            count = self.world.random.randint(1, len(up))
            self.machines.kill(self.world.random.sample(up, count))

    def _announce(self) -> None:
        """Some nodes are announced to go; then each goes in time, or before, or stays. Meanwhile
        another one may die unannounced."""
        machines, world = self.machines, self.world
        up = [name for name, node in sorted(machines.nodes.items()) if node.up]
        left = QUIET_AT - 1.0 - world.now
        if not up or left < 1.0:
            return
        seconds = min(world.between(5.0, 40.0), left)
        for name in world.random.sample(up, world.random.randint(1, len(up))):
            machines.announce(name, seconds)
            turn = world.random.random()
            if turn < 0.25:
                world.after(world.between(0.0, seconds), partial(machines.withdraw, name))
            else:
                wait = seconds if turn < 0.75 else world.between(0.0, seconds)
                world.after(wait, partial(machines.kill, [name]))
        others = [name for name in up if name not in machines.notices]
        if others and world.chance(0.5):
            other = world.random.choice(others)
            world.after(world.between(0.0, seconds), lambda: machines.kill([other]))

    def _break_coordinators(self) -> None:
        self.world.tell("coordinators become fragile")
        for coordinator in self.coordinators:
            coordinator.fragile = self.world.between(0.02, 0.3)
        self.world.after(self._while(), self._mend_coordinators)

    def _mend_coordinators(self) -> None:
        for coordinator in self.coordinators:
            coordinator.fragile = 0.0

    def _take_operators_away(self) -> None:
        """Nobody leads, while the store is up and nodes die."""
        seconds = self.world.between(20.0, max(25.0, QUIET_AT - self.world.now))
        self.world.tell(f"all coordinators are away for {seconds:.0f} s")
        for coordinator in self.coordinators:
            coordinator.crash(seconds)
        left = max(0.1, QUIET_AT - 1.0 - self.world.now)
        self.world.after(min(self.world.between(0.0, 20.0), left), self._kill_nodes)

    def _stop_store(self) -> None:
        self.world.tell("the store is away")
        self.store.reachable = False
        self.world.after(self._while(), self._return_store)

    def _return_store(self) -> None:
        self.world.tell("the store is back")
        self.store.reachable = True

    def _empty_store(self) -> None:
        """Its disks are gone, or somebody has removed all that is of the application."""
        if self.world.chance(0.5):
            self.world.tell("the store has lost all records")
            self.store.restore({})
        else:
            self.world.tell("all records of the application are removed")
            self.store.lose(self._records())
        self.invariants.forgotten()

    def _lose_record(self) -> None:
        name = self.world.random.choice(LOST_RECORDS)
        found = [path for path in self._records() if f"/{name}" in path]
        # of directives, the newest one may not have been looked at
        self.world.tell(f"the store loses {', '.join(found[-1:]) or 'nothing'}")
        self.store.lose(found[-1:])
        self.invariants.forgotten()

    def _restore_store(self) -> None:
        """A copy is made now, and is what the store has some time later."""
        copy = self.store.copied()
        self.world.tell("the store is copied")
        self.world.after(self._while(), lambda: self._restore(copy))

    def _restore(self, copy: Mapping[str, bytes]) -> None:
        self.world.tell("the store is restored from its copy")
        self.store.restore(copy)
        self.invariants.forgotten()

    def _records(self) -> list[str]:
        return sorted(path for path in self.store.records if path.startswith(PLACE.path()))

    def _cut_sidecar(self) -> None:
        sidecar = self._newest.sidecar
        self.world.tell(f"sidecar {sidecar.generation} is cut from the store")
        sidecar.linked = False
        self.world.after(self._while(), lambda: setattr(sidecar, "linked", True))

    def _deafen_driver(self) -> None:
        sidecar = self._newest.sidecar
        self.world.tell(f"driver {sidecar.generation} is cut from its sidecar")
        sidecar.listening = False
        self.world.after(self._while(), lambda: setattr(sidecar, "listening", True))

    def _stall_driver(self) -> None:
        self.world.tell(f"driver {self._newest.generation} stands still")
        self._newest.stall(self._while())

    def _kill_driver(self) -> None:
        self.world.tell(f"driver {self._newest.generation} dies")
        self._newest.end()

    def _start_second_driver(self) -> None:
        self._cut_sidecar()
        self.start_driver()

    def _turn_clock(self) -> None:
        coordinator = self.world.random.choice(self.coordinators)
        coordinator.turn_clock(self.world.random.choice((-3600.0, -40.0, 40.0, 3600.0)))
        self.world.tell(f"the clock of {coordinator.name} is now {coordinator.clock_offset:+.0f} s")

    def _turn_driver_clock(self) -> None:
        """Somebody sets the clock of its machine, or a machine was asleep."""
        driver = self._newest
        steps = [step for step in (-3600.0, -40.0, 40.0, 3600.0) if driver.clock + step >= 0]
        driver.clock_offset += self.world.random.choice(steps)  # no clock shows a time before 1970
        self.world.tell(f"the clock of driver {driver.generation} is turned")

    def _refuse_reports(self) -> None:
        """Reports of a kind are not as this sidecar's schema says; all others are."""
        sidecar, kind = self._newest.sidecar, self.world.random.choice(REFUSED_KINDS)
        self.world.tell(f"sidecar {sidecar.generation} refuses {kind.__name__}")
        sidecar.refused.add(kind)
        self.world.after(self._while(), lambda: sidecar.refused.discard(kind))

    def _give_orders(self) -> None:
        queries = sorted({query.name for query in self._newest.pipeline.topology.queries})
        override = PriorityOverride(priority=self.world.random.randint(1, 10))
        orders = Orders(
            priorities={self.world.random.choice(queries): override},
            paused=self.world.chance(0.3),
        )
        self._order(orders)
        self.world.after(self._while(), lambda: self._order(Orders()))

    def _order(self, orders: Orders) -> None:
        try:
            self.store.put(PLACE.path(store_paths.ORDERS), encode(orders))
        except SimulatedOutage:
            self.world.after(1.0, lambda: self._order(orders))

    def _heal(self) -> None:
        """Everything is back, whatever was asked for."""
        self.world.tell("all is well from here on")
        for name in sorted(self.machines.nodes):
            self.machines.revive(name)
            self.machines.withdraw(name)
        if not any(driver.running for driver in self.drivers):
            self.world.after(1.0, self.start_driver)
        # later than any order that waits for the store
        self.world.after(2.0, lambda: self._order(Orders()))

    def _while(self) -> float:
        """How long a fault lasts; none reaches far beyond the end of all faults."""
        left = QUIET_AT - self.world.now
        return min(self.world.between(2.0, 45.0), max(0.1, left))

    @property
    def _newest(self) -> SimulatedDriver:
        return self.drivers[-1]

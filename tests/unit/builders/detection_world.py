"""A cluster in small for the tests of detection: machines that renew leases, executors, drivers.

It knows the truth (which machine is alive) and shows what an operator would see of it. Time passes
only in `pass_to`. Machines renew as kubelets do: at an interval, and after a renewal that the API
server refused again some seconds later.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekindle.coordination import Driver
from rekindle_operator.detection import node_detector
from rekindle_operator.detection.detection_events import DetectionEvent
from rekindle_operator.detection.detection_input import (
    Leases,
    Observation,
    Rules,
    WatchedApplication,
    WatchedNode,
)
from rekindle_operator.detection.node_inventory import NodeInventory

RULES = Rules()
RETRY_SECONDS = 7.0
Change = Callable[["World"], object]


@dataclass
class Machine:
    """`due_at` is when its kubelet renews next, `muted_at` since when its executors say nothing.

    `interval` is how often it renews, `granted` what its lease says of that, where it does."""

    node: WatchedNode
    due_at: float
    interval: float = 10.0
    granted: float | None = None
    kubelet: bool = True
    clock_ahead: float = 0.0
    renewed_at: float | None = None
    leased: bool = True
    muted_at: float | None = None

    @property
    def token(self) -> str:
        """A renewTime by the machine's own clock."""
        at = 0.0 if self.renewed_at is None else self.renewed_at
        return f"{self.node.uid} {at + self.clock_ahead:.6f}"


@dataclass
class Team:
    """An application of the world; `word` replaces what its driver says of nodes."""

    executors: set[str]
    driver: Driver = Driver.THERE
    hears: bool = True
    said_seconds_ago: float = 0.0
    word: Mapping[str, float] | None = None


@dataclass
class World:
    """Machines by name; `sees` whether our requests succeed, `writable` whether renewals do."""

    now: float = 0.0
    machines: dict[str, Machine] = field(default_factory=dict)
    teams: dict[str, Team] = field(default_factory=dict)
    sees: bool = True
    lists: bool = True
    writable: bool = True
    empty_list: bool = False
    uids: int = 0

    def add(self, name: str, *, phase: float = 0.0, **fields: Any) -> Machine:
        """A new machine, whose kubelet renews for the first time `phase` seconds from now."""
        self.uids += 1
        given = {key: fields.pop(key) for key in [*fields] if key in WatchedNode.__slots__}
        node = WatchedNode(**{"uid": f"{name}-{self.uids}", **given})
        self.machines[name] = Machine(node, due_at=self.now + phase, **fields)
        return self.machines[name]

    def change(self, name: str, **fields: Any) -> None:
        """Another value of fields of a Node object."""
        old = self.machines[name].node
        kept = {key: getattr(old, key) for key in WatchedNode.__slots__}
        self.machines[name].node = WatchedNode(**{**kept, **fields})

    def lose(self, *names: str) -> None:
        """Machines die: no renewals, and no word from their executors."""
        for name in names:
            machine = self.machines[name]
            machine.kubelet = False
            machine.muted_at = self.now if machine.muted_at is None else machine.muted_at

    def restore(self, *names: str) -> None:
        """Machines run again and renew at once."""
        for name in names:
            machine = self.machines[name]
            machine.kubelet, machine.muted_at, machine.due_at = True, None, self.now

    def delete(self, *names: str) -> None:
        """Node objects go, and with them their leases."""
        for name in names:
            del self.machines[name]

    def pass_to(self, now: float) -> None:
        """Let time pass, with all renewals that fall into it."""
        for machine in self.machines.values():
            while machine.due_at <= now:
                renews = machine.kubelet and machine.leased and self.writable
                if renews:
                    machine.renewed_at = machine.due_at
                waits = RETRY_SECONDS if machine.kubelet and not self.writable else machine.interval
                machine.due_at += waits
        self.now = now

    def leases(self) -> Leases | None:
        """What a list of leases says now; None when it fails."""
        if not self.sees:
            return None
        there = {n: m for n, m in self.machines.items() if m.leased and m.renewed_at is not None}
        odd = {n: m.granted for n, m in there.items() if m.granted is not None}
        return Leases({n: m.token for n, m in there.items()}, self.now, self.now, odd)

    def observe(self) -> Observation:
        """What the operator would know now."""
        nodes = {name: machine.node for name, machine in self.machines.items()}
        return Observation(
            leases=self.leases(),
            nodes=None if not self.lists else {} if self.empty_list else nodes,
            applications={name: self._application(team) for name, team in self.teams.items()},
        )

    def _application(self, team: Team) -> WatchedApplication:
        silent = {name: self._silence(name) for name in team.executors} if team.hears else {}
        return WatchedApplication(
            executors=frozenset(team.executors),
            driver=team.driver,
            silent_seconds=silent if team.word is None else team.word,
            said_seconds_ago=team.said_seconds_ago,
        )

    def _silence(self, name: str) -> float:
        machine = self.machines.get(name)
        muted_at = None if machine is None else machine.muted_at
        return 0.5 if muted_at is None else self.now - muted_at


def cluster(count: int) -> World:
    """Machines n1, n2, ... whose renewals are spread over the interval, and team `a` with executors
    on the first three."""
    world = World()
    for number in range(count):
        phase = number * 10.0 / count
        world.add(f"n{number + 1}", phase=phase, renewed_at=phase - 10.0)
    world.teams["a"] = Team({f"n{number + 1}" for number in range(min(3, count))})
    return world


@dataclass(frozen=True)
class Round:
    """A round of detection, with what it was told and what it found."""

    at: float
    observation: Observation
    before: NodeInventory
    after: NodeInventory
    verdicts: tuple[DetectionEvent, ...]


def play(
    world: World,
    script: Sequence[tuple[float, Change]],
    moments: Iterable[float],
    rules: Rules = RULES,
) -> Iterator[Round]:
    """Rounds at moments, while the script (ascending moments) happens to the world."""
    state, pending = NodeInventory(), [*script]
    for at in moments:
        while pending and pending[0][0] <= at:
            moment, change = pending.pop(0)
            world.pass_to(moment)
            change(world)
        world.pass_to(at)
        observation = world.observe()
        after, verdicts = node_detector.detect(state, observation, at, rules)
        yield Round(at, observation, state, after, verdicts)
        state = after


def follow(
    world: World, script: Sequence[tuple[float, Change]], until: float
) -> list[DetectionEvent]:
    """All verdicts of rounds every 5 s."""
    moments = [world.now + 5.0 * number for number in range(int((until - world.now) / 5.0) + 1)]
    return [verdict for turn in play(world, script, moments) for verdict in turn.verdicts]


def told(verdicts: Iterable[DetectionEvent]) -> list[str]:
    """Verdicts as lines: `30 confirmed n1 to a: driver-hears-nothing`."""
    return [
        " ".join(
            part
            for part in (
                f"{verdict.at:g}",
                verdict.kind.value,
                verdict.node,
                f"to {verdict.application}" if verdict.application else None,
            )
            if part
        )
        + f": {verdict.reason}"
        for verdict in verdicts
    ]

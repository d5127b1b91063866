"""Nodes that die and come, and the provider that brings them when it is asked.

A node that is up has one executor; each start is another incarnation. The checkpoint store is here
too: it hands out generations and takes commits, and is never away.
"""

from dataclasses import dataclass, field
from functools import partial

from rekindle.coordination.coordination_events import LossNotice
from rekindle.coordination.directives import NodeRequestOrder
from rekindle.model.reasons import Reason
from rekindle_simulation.simulated_world import SimulatedWorld

CAPACITY_PERCENT = 100.0
# node -> failure domain, as the provider knows it and the driver does not
DOMAINS_OF_NODES = {"n0": "a", "n1": "a", "n2": "b", "n3": "b"}


@dataclass(slots=True)
class SimulatedNode:
    """A node; `changed_at` is when it last died or came."""

    up: bool = True
    starts: int = 1
    changed_at: float = 0.0


@dataclass(slots=True)
class SimulatedMachines:
    """All nodes by name, and what the provider has been asked for. `notices` are of nodes that are
    announced to go, with moments as the world has them; `owed` nodes were requested for these, and
    come once others are down."""

    world: SimulatedWorld
    nodes: dict[str, SimulatedNode]
    asked: set[str] = field(default_factory=set)
    notices: dict[str, LossNotice] = field(default_factory=dict)
    owed: int = 0

    def kill(self, names: list[str]) -> None:
        """Nodes die at once."""
        self.world.tell(f"nodes {', '.join(names)} die")
        for name in names:
            node = self.nodes[name]
            node.up, node.changed_at = False, self.world.now
            if self.owed:
                self.owed -= 1
                self.world.after(self.world.between(1.0, 8.0), partial(self.revive, name))

    def announce(self, name: str, seconds: float) -> None:
        """A node is announced to go after so many seconds."""
        self.world.tell(f"node {name} is announced to go in {seconds:.0f} s")
        self.notices[name] = LossNotice("spot", self.world.now + seconds)

    def withdraw(self, name: str) -> None:
        """The notice of a node is gone."""
        if self.notices.pop(name, None) is not None:
            self.world.tell(f"the notice of node {name} is withdrawn")

    def revive(self, name: str) -> None:
        """A node comes, empty."""
        node = self.nodes[name]
        if not node.up:
            node.up, node.changed_at = True, self.world.now
            node.starts += 1
            self.notices.pop(name, None)
            self.world.tell(f"node {name} is up")

    def request(self, identity: str, request: NodeRequestOrder) -> None:
        """Bring as many nodes as are asked for, once for each request."""
        if identity in self.asked or request.what != "nodes":
            return
        self.asked.add(identity)
        down = [name for name, node in sorted(self.nodes.items()) if not node.up]
        if request.reason is Reason.LOSS_ANNOUNCED:
            self.owed += max(0, request.count - len(down))
        delay = 0.0
        for name in down[: request.count]:
            delay += self.world.between(1.0, 8.0)
            self.world.after(delay, partial(self.revive, name))

    def down(self) -> frozenset[str]:
        """What the provider knows to be gone."""
        return frozenset(name for name, node in self.nodes.items() if not node.up)


@dataclass(slots=True)
class SimulatedCheckpointStore:
    """Generations and commits; `commits` are (epoch, generation) in their order."""

    generation: int = 0
    commits: list[tuple[int, int]] = field(default_factory=list)

    def next_generation(self) -> int:
        """A driver starts."""
        self.generation += 1
        return self.generation

    def commit(self, epoch: int, generation: int, *, fenced: bool = True) -> bool:
        """Whether the commit counts: not that of an older generation, not one that is there."""
        if fenced and (generation < self.generation or self._has(epoch)):
            return False
        self.commits.append((epoch, generation))
        return True

    @property
    def newest(self) -> int:
        """The newest epoch that counts."""
        return self.commits[-1][0] if self.commits else 0

    def _has(self, epoch: int) -> bool:
        return bool(self.commits) and self.commits[-1][0] >= epoch

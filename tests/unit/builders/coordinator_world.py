"""A coordinator's core, told a story of nodes and queries: what its tests share."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rekindle import coordination as core
from rekindle.coordination import CoordinationState, coordination_events, instructions
from rekindle.coordination.coordination_events import Event
from rekindle.coordination.instructions import Instruction, Plan
from rekindle.model.settings import Policy
from rekindle.model.topology import Query, Topology, TopologyOperator

# source (2) feeds counts (2) and averages (1); counts feed tops (1); each of the three is a query.
TOPOLOGY = Topology(
    operators=(
        TopologyOperator("source", 2),
        TopologyOperator("counts", 2),
        TopologyOperator("averages", 1),
        TopologyOperator("tops", 1),
    ),
    edges=(("source", "counts"), ("source", "averages"), ("counts", "tops")),
    queries=(
        Query("busiest", "counts", 4),
        Query("slowest", "averages", 10),
        Query("ranking", "tops", 1),
    ),
)
COSTS = {
    "source/0": 20.0,
    "source/1": 20.0,
    "counts/0": 30.0,
    "counts/1": 30.0,
    "averages/0": 40.0,
    "tops/0": 40.0,
}
EVERYTHING = ("busiest/0", "busiest/1", "ranking/0", "slowest/0")
ZONES = {"n1": "zone-1", "n2": "zone-1", "n3": "zone-2", "n4": "zone-2"}  # n5 is in none


@dataclass
class Story:
    """A coordinator, its clock, and all instructions so far."""

    state: CoordinationState
    now: float = 1000.0
    told: list[Instruction] = field(default_factory=list)

    def tell(self, *events: Event, after_seconds: float = 0.0) -> list[Instruction]:
        """Report events and then a tick; gives the new instructions."""
        self.now += after_seconds
        seen = len(self.told)
        for event in (*events, coordination_events.Tick()):
            self.state, instructions = core.advance(self.state, event, self.now, clock=float)
            self.told += instructions
        return self.told[seen:]

    def catch_up(self) -> list[Instruction]:
        return self.tell(*map(coordination_events.QueryCaughtUp, sorted(self.state.catching_up)))

    def back(self, *nodes: str, after_seconds: float = 0.0) -> list[Instruction]:
        events = [coordination_events.NodeBack(node, 100.0, ZONES.get(node)) for node in nodes]
        return self.tell(*events, after_seconds=after_seconds)

    def lose(self, *nodes: str, after_seconds: float = 0.0) -> list[Instruction]:
        return self.tell(coordination_events.NodesLost(nodes), after_seconds=after_seconds)


def fresh(nodes: int = 4, **policy: Any) -> Story:
    return Story(core.initial(TOPOLOGY, Policy(**policy), nodes))


def running(nodes: int = 4, **policy: Any) -> Story:
    """All queries run on n1, n2, ... with measured costs, and a checkpoint is complete."""
    story = fresh(nodes, **policy)
    story.tell(coordination_events.StatisticsReported(COSTS))
    story.back(*(f"n{i}" for i in range(1, nodes + 1)))
    story.tell(after_seconds=60.0)
    story.catch_up()
    story.tell(coordination_events.CheckpointCompleted(5))
    story.told.clear()
    assert set(story.state.placement) == set(COSTS)
    return story


def plans(told: Iterable[Instruction]) -> list[Plan]:
    return [item.plan for item in told if isinstance(item, instructions.PublishPlan)]


def records(told: Iterable[Instruction]) -> dict[str, instructions.RecordEvent]:
    return {item.kind: item for item in told if isinstance(item, instructions.RecordEvent)}


def of_kind(told: Iterable[Instruction], kind: type) -> list[Any]:
    return [item for item in told if isinstance(item, kind)]

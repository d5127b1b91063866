"""The coordinator core under whatever may happen: random pipelines, losses, returns and reports.

Every plan keeps the rules of plans, and once all nodes are back and everyone has reported, all
partitions are placed and the incident is over.
"""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle import coordination as core
from rekindle.coordination import (
    CoordinationState,
    coordination_events,
    directives,
    instructions,
    next_plan,
    node_load,
)
from rekindle.coordination.coordination_events import Event
from rekindle.coordination.instructions import Plan
from rekindle.model import topology as graph
from rekindle.model.settings import Policy
from rekindle.model.topology import Query, Topology, TopologyOperator

NODES = ("n1", "n2", "n3", "n4")
CAPACITY_PERCENT = 100.0
SECONDS = st.sampled_from([0.0, 0.5, 5.0, 30.0, 500.0])
COST = st.floats(0.0, 150.0) | st.sampled_from([1.0, 30.0, 80.0])
POLICIES = st.builds(
    Policy,
    strategy=st.sampled_from(["incremental", "blocking"]),
    stabilisation_seconds=st.sampled_from([0.0, 5.0]),
    correlated_nodes_min=st.integers(1, 3),
)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Up to five operators, each reading from some before it; a query on each end and on some."""
    count = draw(st.integers(1, 5))
    operators = [TopologyOperator(f"o{i}", draw(st.integers(1, 3))) for i in range(count)]
    edges = [(f"o{i}", f"o{j}") for j in range(count) for i in range(j) if draw(st.booleans())]
    ends = {operator.name for operator in operators} - {producer for producer, _ in edges}
    queries = [
        Query(f"q{i}", operator.name, draw(st.integers(1, 10)))
        for i, operator in enumerate(operators)
        if operator.name in ends or draw(st.booleans())
    ]
    return Topology(tuple(operators), tuple(edges), tuple(queries)).checked()


def happenings(topology: Topology) -> st.SearchStrategy[Event]:
    """Any event, for nodes, partitions and queries that there are."""
    partitions = st.sampled_from(graph.partitions(topology))
    queries = st.sampled_from(sorted(graph.closures(topology)))
    lost = st.lists(st.sampled_from(NODES), min_size=1, unique=True).map(tuple)
    capacity = st.sampled_from([50.0, CAPACITY_PERCENT])
    return st.one_of(
        lost.map(coordination_events.NodesLost),
        st.builds(coordination_events.NodeBack, st.sampled_from(NODES), capacity),
        st.sampled_from(NODES).map(coordination_events.NodeSuspected),
        queries.map(coordination_events.QueryCaughtUp),
        st.builds(coordination_events.StatisticsReported, st.dictionaries(partitions, COST)),
        st.integers(1, 9).map(coordination_events.CheckpointCompleted),
        st.integers(1, 9).map(coordination_events.PlanAcknowledged),
        st.just(coordination_events.DriverLost()),
        st.just(coordination_events.Tick()),
    )


def check_plan(before: CoordinationState, plan: Plan) -> None:
    """What holds for every plan."""
    assert plan.plan_epoch == before.plan_epoch + 1
    assert not plan.placement.keys() & before.placement.keys()
    assert all(before.nodes[node].status is core.NodeStatus.UP for node in plan.placement.values())
    placed = {**before.placement, **plan.placement}
    assert graph.runnable(before.topology, placed) == set(placed)
    newly = {
        query
        for query, closure in before.closures.items()
        if closure <= placed.keys() and not closure <= before.placement.keys()
    }
    assert newly == set(plan.query_partitions)
    check_capacity(before, plan)


def check_capacity(before: CoordinationState, plan: Plan) -> None:
    """No node gets more than it has free; over its cap only when all else has been tried."""
    nodes = plan.problem.nodes or {}
    used = dict.fromkeys(nodes, 0.0)
    for name, node in plan.placement.items():
        used[node] += plan.problem.partitions[name].cpu_percent
    assert all(used[node] <= nodes[node] + 1e-6 for node in nodes)
    costs = node_load.steady(before) | dict(before.charges)
    free = {node: before.policy.cpu_cap * before.nodes[node].capacity_percent for node in nodes}
    for name, node in before.placement.items():
        if node in free:
            free[node] -= costs[name]
    if any(nodes[node] > max(0.0, free[node]) + 1e-6 for node in nodes):
        assert not before.catching_up
        assert len(nodes) >= next_plan.nodes_wanted(before)


class Run:
    """A coordinator that checks itself at every step."""

    def __init__(self, topology: Topology, policy: Policy, resumed: bool) -> None:
        self.state = core.initial(topology, policy, len(NODES), resumed=resumed)
        self.now = 1000.0

    def tell(self, event: Event, after_seconds: float) -> None:
        """Report an event and a tick."""
        self.now += after_seconds
        for happened in (event, coordination_events.Tick()):
            before = self.state
            self.state, told = core.advance(before, happened, self.now, clock=float)
            for instruction in told:
                if isinstance(instruction, instructions.PublishPlan):
                    check_plan(before, instruction.plan)
            self.check_state()

    def check_state(self) -> None:
        """What holds after every event."""
        state = self.state
        living = {n for n, view in state.nodes.items() if view.status is not core.NodeStatus.LOST}
        assert graph.runnable(state.topology, state.placement) == set(state.placement)
        assert {*state.placement.values(), *state.resident.values()} <= living
        assert not state.placement.keys() & state.resident.keys()
        assert state.charges.keys() <= state.placement.keys()
        assert all(state.closures[query] <= state.placement.keys() for query in state.catching_up)
        assert state.holding <= (not living)

    def finish(self) -> None:
        """All nodes come back; plans are acknowledged and queries catch up until none is left."""
        for node in NODES:
            self.tell(coordination_events.NodeBack(node, CAPACITY_PERCENT), 1.0)
        for _ in range(len(self.state.closures) + 1):
            self.tell(coordination_events.Tick(), 10.0)
            self.tell(coordination_events.PlanAcknowledged(self.state.plan_epoch), 0.0)
            for query_partition in sorted(self.state.catching_up):
                self.tell(coordination_events.QueryCaughtUp(query_partition), 1.0)
        self.tell(coordination_events.CheckpointCompleted(10), 1.0)


@settings(max_examples=40)
@given(st.data(), topologies(), POLICIES, st.booleans())
def test_whatever_happens_it_ends_once_all_nodes_are_back(
    data: Any, topology: Topology, policy: Policy, resumed: bool
) -> None:
    run = Run(topology, policy, resumed)
    for event, after_seconds in data.draw(
        st.lists(st.tuples(happenings(topology), SECONDS), max_size=12)
    ):
        run.tell(event, after_seconds)
    run.finish()
    assert set(run.state.placement) == set(graph.partitions(topology))
    assert (run.state.incident, run.state.starting) == (None, False)


def test_of_nodes_that_are_lost_one_after_the_other_only_the_last_are_remembered() -> None:
    """Where each executor is a node of its own name, as on Kubernetes, every loss is a new one."""
    topology = Topology((TopologyOperator("o", 1),), (), (Query("q", "o", 1),)).checked()
    run = Run(topology, Policy(stabilisation_seconds=0.0, correlated_nodes_min=2), resumed=False)
    run.tell(coordination_events.NodeBack("stays", CAPACITY_PERCENT), 1.0)
    for number in range(300):
        run.tell(coordination_events.NodeBack(f"pod-{number}", CAPACITY_PERCENT), 1.0)
        run.tell(coordination_events.NodesLost((f"pod-{number}",)), 100.0)
        run.tell(coordination_events.PlanAcknowledged(run.state.plan_epoch), 1.0)
        run.tell(coordination_events.CheckpointCompleted(number), 1.0)
    assert {"stays", "pod-299"} < run.state.nodes.keys()
    assert "pod-0" not in run.state.nodes
    assert len(run.state.nodes) <= 103


def test_nodes_of_an_open_incident_are_all_remembered() -> None:
    topology = Topology((TopologyOperator("o", 1),), (), (Query("q", "o", 1),)).checked()
    run = Run(topology, Policy(stabilisation_seconds=0.0), resumed=False)
    many = tuple(f"pod-{number}" for number in range(300))
    for node in (*many, "stays"):
        run.tell(coordination_events.NodeBack(node, CAPACITY_PERCENT), 1.0)
    run.tell(coordination_events.NodesLost(many), 1.0)
    run.tell(coordination_events.NodeBack("late", CAPACITY_PERCENT), 1.0)
    run.tell(coordination_events.NodesLost(("late",)), 1.0)
    assert run.state.incident is not None
    assert set(run.state.incident.lost) == {*many, "late"}
    assert set(many) < run.state.nodes.keys()


def test_each_loss_of_a_node_that_comes_again_under_its_name_is_a_request_of_its_own() -> None:
    """An address is given again soon; the second loss had the identity of another request."""
    topology = Topology((TopologyOperator("o", 4),), (), (Query("q", "o", 1),)).checked()
    state = core.initial(topology, Policy(stabilisation_seconds=0.0), 3)
    asked: list[str] = []
    now = 1_000.0

    def tell(event: Event) -> None:
        nonlocal state, now
        now += 1.0
        state, told = core.advance(state, event, now, clock=float)
        asked.extend(directives.requests(told, 1, state))

    for node in ("a", "b", "c"):
        tell(coordination_events.NodeBack(node, 100.0, incarnation="1"))
    tell(coordination_events.Tick())
    tell(coordination_events.NodesLost(("a",)))
    tell(coordination_events.NodesLost(("b",)))
    tell(coordination_events.NodeBack("a", 100.0, incarnation="2"))
    tell(coordination_events.NodesLost(("a",)))
    assert len(asked) == 3
    assert len(set(asked)) == 3

"""The next plan: for which query partitions there is room now, and where.

A plan is drafted with the first of these that gives one:

    1  costs of catching up in the policy's time, where plans are incremental
    2  costs of catching up more slowly, on nodes where nothing catches up, so that waiting longer
       would free nothing
    3  steady costs, on those nodes
    4  steady costs on nodes stretched over their cap, where nothing catches up at all and all nodes
       are up again: what ran before the failure must come back, even where it no longer fits under
       the cap

What catches up takes room for a while only. So what there is room for at the lowest costs of the
second, once all before it has caught up, is chosen first, and the first two bring back nothing
else: what matters more is not left out for what needs less, unless its node would rest.

Each is tried without slow nodes first. Nothing is placed on nodes that are announced to go while
any other is up. Blocking plans and the first one of a fresh start begin with the third, on all
nodes. Partitions whose state survived stay on their node where it holds them. With the policy's
placement `domains` what is placed on empty nodes is placed by `domain_placement`. Changes nothing;
`state_machine` calls it.

Why: docs/decisions/0039-no-node-rests-while-something-fits.md.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from rekindle import planning
from rekindle.coordination import domain_placement, node_load
from rekindle.coordination.coordination_state import (
    CoordinationState,
    inactive,
    slow,
    staying,
    usable,
)
from rekindle.coordination.instructions import Plan
from rekindle.model.incidents import IncidentKind
from rekindle.model.plan_problem import Answer, PartitionCost, Problem, QueryDemand
from rekindle.model.reasons import Reason
from rekindle.model.settings import ADAPTIVE, DOMAINS, INCREMENTAL
from rekindle.model.switch_mode import OFF

# How many times longer than the policy wants it catching up may take, where nothing else would use
# the node. Each doubles the room for what it leaves to catch up with.
PATIENCE = (1.0, 2.0, 4.0)
# Of the time for a plan, what the choice among all that waits may take.
CHOICE_SHARE = 0.25

Costs = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Time:
    """Until when there has to be a plan, by this clock."""

    clock: Callable[[], float]
    deadline: float

    @property
    def left_seconds(self) -> float:
        return max(0.0, self.deadline - self.clock())


@dataclass(frozen=True, slots=True)
class _Offer:
    """Queries that may come back, what partitions cost, and what nodes have free for them."""

    queries: tuple[str, ...]
    costs: Costs
    nodes: Costs


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan, and what it reckons per partition that it activates (percent of one core)."""

    plan: Plan
    charges: Costs


def draft(
    state: CoordinationState, reason: Reason, now: float, clock: Callable[[], float]
) -> Draft | None:
    """The next plan, or None when nothing that waits fits. `clock` bounds the time of all
    solvers together."""
    waiting = inactive(state)
    if not waiting or not usable(state):
        return None
    held_up = slow(state)
    time = _Time(clock, clock() + state.policy.solver_budget_seconds)
    for offer in _offers(state, waiting, reason, now, time):
        costs, nodes, fast = offer.costs, offer.nodes, _without(offer.nodes, held_up)
        for offered in (fast, nodes) if held_up and fast else (nodes,):
            problem = _problem(state, offer.queries, costs, offered)
            answer = _solve(state, problem, time)
            if answer.queries:
                plan = _plan(state, problem, answer, reason, now)
                return Draft(plan, {partition: costs[partition] for partition in plan.placement})
    return None


def nodes_wanted(state: CoordinationState) -> int:
    """How many nodes must be up before nothing more is waited for."""
    return state.nodes_expected if state.incident is None else state.incident.nodes_wanted


def nodes_missing(state: CoordinationState) -> int:
    """How many more nodes are wanted than are up and stay; below 0 where there are more."""
    return nodes_wanted(state) - len(staying(state))


def is_incremental(state: CoordinationState, reason: Reason) -> bool:
    """Whether this plan is one of several that share the capacity as it comes."""
    if state.incident is None:
        return False
    if state.incident.kind is IncidentKind.INDEPENDENT:
        return reason is not Reason.INDEPENDENT_FAILURE
    return state.policy.strategy == INCREMENTAL


def _offers(
    state: CoordinationState, waiting: tuple[str, ...], reason: Reason, now: float, time: _Time
) -> Iterator[_Offer]:
    """What to plan with, one after the other."""
    steady = node_load.steady(state)
    nodes, settled = node_load.free(state, steady), _clipped(state, steady)
    if is_incremental(state, reason):
        first, *slower = (
            _clipped(state, node_load.catching_up(state, steady, now, patience))
            for patience in PATIENCE
        )
        at_last = node_load.free(replace(state, charges={}), steady)
        chosen = _chosen(state, waiting, slower[-1], at_last, time)
        yield _Offer(chosen, first, nodes)
        nodes = _without(nodes, nodes.keys() - node_load.at_rest(state))
        for costs in (*slower, settled) if nodes else ():
            yield _Offer(chosen, costs, nodes)
    if nodes:
        yield _Offer(waiting, settled, nodes)
    if not state.catching_up and len(nodes) >= nodes_wanted(state):
        missing = frozenset().union(*(state.closures[query] for query in waiting))
        demands = [settled[name] for name in missing - state.placement.keys()]
        yield _Offer(waiting, settled, node_load.stretched(nodes, demands))


def _chosen(
    state: CoordinationState, waiting: tuple[str, ...], costs: Costs, free: Costs, time: _Time
) -> tuple[str, ...]:
    """Of those that wait, what there is room for at these costs on what nodes have free once
    nothing else catches up; all of them, where there is room for none."""
    answer = planning.solve(
        _problem(state, waiting, costs, _without(free, slow(state)) or free),
        solver=state.policy.solver,
        budget_seconds=CHOICE_SHARE * time.left_seconds,
        clock=time.clock,
    )
    return answer.queries or waiting


def _without(nodes: Costs, left_out: Collection[str]) -> dict[str, float]:
    return {node: cpu_percent for node, cpu_percent in nodes.items() if node not in left_out}


def _clipped(state: CoordinationState, costs: Costs) -> dict[str, float]:
    """No partition so large that it could not go alone on an empty node."""
    largest = node_load.largest_node(state)
    return {partition: min(cost, largest) for partition, cost in costs.items()}


def _problem(
    state: CoordinationState, queries: tuple[str, ...], costs: Costs, nodes: Costs
) -> Problem:
    """Only these queries, which wait, and what they need: the rest runs and is none of the
    planner's business."""
    needed = sorted(frozenset().union(*(state.closures[query] for query in queries)))
    return Problem(
        partitions={
            partition: PartitionCost(
                cpu_percent=costs[partition],
                state_bytes=state.state_bytes.get(partition, 0),
                running_on=state.placement.get(partition),
            )
            for partition in needed
        },
        queries={
            query: QueryDemand(state.priorities[query], tuple(sorted(state.closures[query])))
            for query in queries
        },
        failed=frozenset(needed) - state.placement.keys(),
        nodes={node: max(0.0, cpu_percent) for node, cpu_percent in nodes.items()},
    )


def _solve(state: CoordinationState, problem: Problem, time: _Time) -> Answer:
    answer = planning.solve(
        problem,
        solver=state.policy.solver,
        budget_seconds=time.left_seconds,
        clock=time.clock,
    )
    if state.policy.placement == DOMAINS and not state.placement:
        return domain_placement.placed_by_domain(state, problem, answer)
    return _at_home(answer, problem, state.resident)


def _at_home(answer: Answer, problem: Problem, resident: Mapping[str, str]) -> Answer:
    """The same choice, with surviving state where it is, as far as everything still fits."""
    assert problem.nodes is not None
    homes = {name: resident[name] for name in answer.partitions if name in resident}
    if not homes:
        return answer
    costs = {name: problem.partitions[name].cpu_percent for name in answer.partitions}
    placed = planning.place(costs, problem.nodes, homes)
    if placed.unplaced:
        return answer
    held: dict[str, list[str]] = {}
    for partition, node in sorted(placed.node_of.items()):
        held.setdefault(node, []).append(partition)
    return replace(answer, placement={node: tuple(held[node]) for node in sorted(held)})


def _plan(
    state: CoordinationState, problem: Problem, answer: Answer, reason: Reason, now: float
) -> Plan:
    incident = state.incident
    placement = {name: node for node, held in answer.placement.items() for name in held}
    return Plan(
        plan_epoch=state.plan_epoch + 1,
        at=now,
        incident=None if incident is None else incident.number,
        strategy=state.policy.strategy,
        query_partitions=answer.queries,
        placement=dict(sorted(placement.items())),
        waiting=len(inactive(state)),
        problem=problem,
        answer=answer,
        reason=reason,
        rollback=_rolls_back(state),
    )


def _rolls_back(state: CoordinationState) -> bool:
    """Under adaptive buffering survivors have no outputs to give but those since a rollback, and
    only while buffering is on."""
    incident = state.incident
    if incident is None or state.policy.buffering != ADAPTIVE:
        return False
    first = incident.plans == 0 and not incident.retained
    return first or state.buffering == OFF

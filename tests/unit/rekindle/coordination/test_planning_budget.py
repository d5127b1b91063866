"""One application takes the deciding thread no longer than its budget, however hard it plans."""

import random
import time

import pytest

from rekindle.coordination.session import ApplicationReading, Case, decide
from rekindle.model.settings import Policy
from rekindle.model.topology import Query, Topology, TopologyOperator
from rekindle.protocol import (
    Heartbeat,
    NodeSeen,
    PlanOrder,
    ProgressReport,
    StatisticsReport,
    TopologyReport,
)

BUDGET_SECONDS, NEXT_TO_NOTHING = 0.1, 0.001
# For reading, a first answer and placing, which a solver's limit does not count.
BESIDE_SECONDS = 0.15
SOURCES, OPERATORS, PARTITIONS, NODES = 6, 24, 12, 9


def hard(policy: Policy) -> ApplicationReading:
    """Eighteen queries that share sources, of which nine nodes hold about half: the exact solver
    would need minutes."""
    rng = random.Random(1)
    operators = tuple(TopologyOperator(f"o{number}", PARTITIONS) for number in range(OPERATORS))
    edges = {
        (f"o{source}", f"o{target}")
        for target in range(SOURCES, OPERATORS)
        for source in rng.sample(range(SOURCES), 2)
    }
    queries = tuple(
        Query(f"q{number}", f"o{number}", rng.randint(1, 10))
        for number in range(SOURCES, OPERATORS)
    )
    costs = {
        f"{operator.name}/{part}": rng.uniform(4, 22)
        for operator in operators
        for part in range(PARTITIONS)
    }
    nodes = {
        f"n{number}": NodeSeen(incarnation="1.0", capacity_percent=100.0) for number in range(NODES)
    }
    topology = Topology(operators, tuple(sorted(edges)), queries)
    return ApplicationReading(
        topology=TopologyReport(
            generation=1,
            sequence=0,
            program="p",
            topology=topology,
            policy=policy,
            nodes_expected=NODES,
        ),
        statistics=StatisticsReport(generation=1, sequence=0, costs=costs),
        progress=ProgressReport(generation=1, sequence=1, nodes=nodes, placement={}, live=()),
        heartbeat=Heartbeat(generation=1, since=0.0),
    )


@pytest.mark.parametrize("solver", ["auto", "exact"])
def test_a_plan_takes_its_budget_and_no_more(solver: str) -> None:
    reading = hard(Policy(solver=solver, solver_budget_seconds=BUDGET_SECONDS))
    quick = hard(Policy(solver=solver, solver_budget_seconds=NEXT_TO_NOTHING))
    decide(Case(), quick, 1_000.0, clock=time.thread_time)  # modules are loaded when first needed
    # of this thread, as the machine may have others to do
    began = time.thread_time()
    decision = decide(Case(), reading, 1_000.0, clock=time.thread_time)
    took = time.thread_time() - began
    assert PlanOrder in {type(item.order) for item in decision.directives}
    assert took <= BUDGET_SECONDS + BESIDE_SECONDS, f"{took:.2f} s"

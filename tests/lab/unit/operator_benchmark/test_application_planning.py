"""The benchmark of plans for whole applications: its cluster, and when its bars are met."""

import pytest

from operator_benchmark import application_planning
from operator_benchmark.application_planning import PlanningSize

SMALL = PlanningSize(applications=30, executors=4, nodes=40)


def test_all_applications_wait_with_all_their_pods() -> None:
    demands = application_planning.waiting(SMALL)
    assert len(demands) == SMALL.applications
    assert all(item.driver is not None and len(item.executors) == 4 for item in demands)
    names = {item.name for item in demands}
    assert names.issuperset(name for item in demands for name in item.depends_on)


def test_fewer_nodes_bring_back_fewer_applications() -> None:
    on_all = application_planning.plan_once(SMALL, 1.0)
    on_few = application_planning.plan_once(SMALL, 0.2)
    assert on_all["chosen"] == SMALL.applications
    assert 0 < on_few["chosen"] < SMALL.applications


@pytest.mark.parametrize(
    ("seconds", "megabytes", "met"),
    [(1.9, 100.0, [True, True]), (2.1, 100.0, [False, True]), (1.0, 600.0, [True, False])],
    ids=["met", "slow", "large"],
)
def test_the_slowest_round_counts(seconds: float, megabytes: float, met: list[bool]) -> None:
    quick = {"seconds": 0.1, "cpu_seconds": 0.1, "peak_megabytes": 50.0, "chosen": 1, "nodes": 1}
    slow = {**quick, "seconds": seconds, "peak_megabytes": megabytes}
    bars = application_planning.bars_of([quick, slow], SMALL, "command")
    assert [bar.met for bar in bars] == met

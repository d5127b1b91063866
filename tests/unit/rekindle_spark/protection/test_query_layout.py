"""Protected queries as a topology: names, dependencies, parts, and what a placement completes."""

from collections.abc import Mapping

import pytest

from rekindle.model import topology
from rekindle.model.errors import InputError
from rekindle_spark.protection.query_layout import SLICES_MAX, lay_out


def test_a_query_comes_back_only_with_all_that_it_depends_on() -> None:
    layout = lay_out(["report", "orders", "fraud"], {}, {"report": ["orders"]}, 4)
    own = layout.parts["report"]
    assert layout.complete(own) == frozenset()
    assert layout.complete((*own, *layout.parts["orders"])) == {"report", "orders"}


def test_a_query_that_others_depend_on_is_upstream_of_them_in_the_topology_of_the_planner() -> None:
    layout = lay_out(["report", "orders"], {"report": 5}, {"report": ["orders"]}, 4)
    closures = topology.closures(layout.topology)
    assert closures["report/0"] == {*layout.parts["report"], *layout.parts["orders"]}
    assert topology.query_priorities(layout.topology) == {"report/0": 5, "orders/0": 1.0}


def test_the_load_of_a_query_is_the_sum_of_the_costs_of_its_parts() -> None:
    layout = lay_out(["a", "b"], {}, {}, 6)
    costs = layout.costs({"a": 140.0})
    assert set(costs) == set(layout.parts["a"])
    assert sum(costs.values()) == pytest.approx(140.0)


def test_partitions_are_spread_evenly_over_the_nodes() -> None:
    layout = lay_out(["a", "b"], {}, {}, 4)
    placed = layout.spread(["n2", "n1"], layout.parts)
    assert placed.keys() == {*layout.parts["a"], *layout.parts["b"]}
    assert sorted(placed.values()) == ["n1"] * 17 + ["n2"] * 17
    assert layout.spread([], layout.parts) == {}


def test_no_query_is_cut_into_more_parts_than_a_plan_can_use() -> None:
    layout = lay_out(["a"], {}, {}, 5_000)
    assert len(layout.parts["a"]) == SLICES_MAX + 1


@pytest.mark.parametrize(
    ("names", "priorities", "depends_on", "said"),
    [
        ([], {}, {}, "protect: queries: there are none"),
        (["a"], {"b": 2.0}, {}, "priorities: there is no query 'b'"),
        (["a"], {"a": 11.0}, {}, "query a: priority: is 11.0"),
        (["a"], {}, {"a": ["b"]}, "there is no query 'b'"),
        (["a"], {}, {"b": []}, "depends_on: there is no query 'b'"),
        (["a", "b"], {}, {"a": ["b"], "b": ["a"]}, "these wait for each other"),
        (["a"], {}, {"a": ["a"]}, "these wait for each other: a -> a"),
        (["a/b"], {}, {}, "is no usable name"),
    ],
    ids=["none", "priority-of-none", "priority", "needs-none", "none-needs", "circle", "self", "/"],
)
def test_what_cannot_be_is_refused_with_its_place(
    names: list[str],
    priorities: Mapping[str, float],
    depends_on: Mapping[str, list[str]],
    said: str,
) -> None:
    with pytest.raises(InputError) as refused:
        lay_out(names, priorities, depends_on, 4)
    assert said in str(refused.value)
    assert refused.value.remedy


def clipped(priorities: Mapping[str, float], loads: Mapping[str, float]) -> dict[str, float]:
    """On one node with 80 %, where `report` depends on `orders`."""
    layout = lay_out(loads, priorities, {"report": ["orders"]}, 4)
    return layout.clipped(loads, 1, 80.0)


def test_an_important_query_fits_with_all_that_it_depends_on() -> None:
    loads = clipped({"report": 9}, {"orders": 60.0, "report": 60.0, "fraud": 60.0})
    assert loads["orders"] == loads["report"]
    assert 70.0 < loads["orders"] + loads["report"] < 80.0
    assert loads["fraud"] == 60.0, "what has nothing to do with it fits by itself"


def test_a_query_that_matters_less_makes_nothing_cheaper_that_it_depends_on() -> None:
    loads = clipped({"orders": 9}, {"orders": 60.0, "report": 200.0})
    assert loads["orders"] == 60.0
    assert 70.0 < loads["report"] < 80.0

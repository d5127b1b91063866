"""The graph of operators: what is upstream of what, and what can run."""

import json

import pytest

from rekindle.model import topology
from rekindle.model.errors import InputError
from rekindle.model.topology import Query, Topology, TopologyOperator

SMART_CITY = Topology(  # the example of the paper, Figure 1
    operators=tuple(
        TopologyOperator(name, count)
        for name, count in (
            ("speed", 2),
            ("incidents", 1),
            ("average", 2),
            ("count", 1),
            ("join", 2),
        )
    ),
    edges=(
        ("speed", "average"),
        ("incidents", "count"),
        ("average", "join"),
        ("count", "join"),
    ),
    queries=(
        Query("averages", "average", 4),
        Query("counts", "count", 1),
        Query("both", "join", 10),
    ),
).checked()


def test_partitions_come_in_topological_order() -> None:
    order = topology.partitions(SMART_CITY)
    assert len(order) == len(set(order)) == 8
    for producer, consumer in SMART_CITY.edges:
        producers = [order.index(item) for item in order if item.startswith(f"{producer}/")]
        assert max(producers) < order.index(f"{consumer}/0")


def test_the_closure_of_a_query_partition_holds_itself_and_all_upstream() -> None:
    closures = topology.closures(SMART_CITY)
    assert closures["averages/1"] == {"speed/0", "speed/1", "average/1"}
    assert closures["both/0"] == {
        "speed/0",
        "speed/1",
        "incidents/0",
        "average/0",
        "average/1",
        "count/0",
        "join/0",
    }
    assert set(closures) == {"averages/0", "averages/1", "counts/0", "both/0", "both/1"}


def test_upstream_names_operators_without_the_operator_itself() -> None:
    assert topology.upstream(SMART_CITY, "join") == {"speed", "incidents", "average", "count"}
    assert topology.upstream(SMART_CITY, "speed") == frozenset()


def test_levels_are_the_longest_paths_from_the_sources() -> None:
    skipping = Topology(
        tuple(TopologyOperator(name, 1) for name in "abc"), (("a", "b"), ("b", "c"), ("a", "c")), ()
    )
    assert topology.levels(skipping) == {"a": 0, "b": 1, "c": 2}


def test_a_query_counts_once_however_many_partitions_it_has() -> None:
    priorities = topology.query_priorities(SMART_CITY)
    assert priorities["both/0"] == priorities["both/1"] == 5
    assert priorities["counts/0"] == 1
    assert sum(priorities.values()) == 15


def test_what_lacks_a_producer_cannot_run_and_stops_what_follows() -> None:
    placed = dict.fromkeys(topology.partitions(SMART_CITY), "node")
    assert topology.runnable(SMART_CITY, placed) == set(placed)
    del placed["average/0"]
    assert topology.runnable(SMART_CITY, placed) == set(placed) - {"join/0", "join/1"}
    del placed["speed/1"]
    assert topology.runnable(SMART_CITY, placed) == {"speed/0", "incidents/0", "count/0"}
    assert topology.runnable(SMART_CITY, {}) == frozenset()


def test_a_topology_survives_the_way_through_json() -> None:
    record = json.loads(json.dumps(topology.to_record(SMART_CITY)))
    assert record["version"] == 1
    assert topology.from_record(record) == SMART_CITY


def one(
    operators: tuple[TopologyOperator, ...] = (TopologyOperator("a", 1),), **rest: object
) -> Topology:
    return Topology(operators, **{"edges": (), "queries": (), **rest})  # type: ignore[arg-type]


A, B = TopologyOperator("a", 1), TopologyOperator("b", 1)


@pytest.mark.parametrize(
    ("unsound", "message"),
    [
        (one((A, B), edges=(("a", "b"), ("b", "a"))), "cycle a -> b -> a"),
        (one(edges=(("a", "a"),)), "cycle a -> a"),
        (one((A, A)), "operator a: is there twice"),
        (one(queries=(Query("q", "a", 1), Query("q", "a", 2))), "query q: is there twice"),
        (one(edges=(("a", "z"),)), "edge a -> z: there is no operator 'z'; name one of: a"),
        (one(queries=(Query("q", "z", 1),)), "query q: there is no operator 'z'"),
        (
            one((TopologyOperator("a", 0),)),
            "operator a: parallelism: is 0; give a whole number from 1",
        ),
        (one((TopologyOperator("a", 1.5),)), "operator a: parallelism: is 1.5"),  # type: ignore[arg-type]
        (one((TopologyOperator("a", True),)), "operator a: parallelism: is True"),
        (one((TopologyOperator("a", 1_025),)), "is 1025; give a whole number from 1 to 1,024"),
        (one((TopologyOperator("a/b", 1),)), "operator 'a/b': is no usable name"),
        (one((TopologyOperator("", 1),)), "operator '': is no usable name"),
        (one(queries=(Query("q", "a", 0.5),)), "query q: priority: is 0.5; give a number from 1"),
        (one(queries=(Query("q", "a", 11),)), "query q: priority: is 11"),
        (one(queries=(Query("q", "a", float("nan")),)), "query q: priority: is nan"),
        (one(queries=(Query("q", "a", True),)), "query q: priority: is True"),
        (one(queries=(Query("q", "a", "5"),)), "priority: is '5'"),  # type: ignore[arg-type]
        (
            one(queries=(Query("q", "a", 5, 0),)),
            "query q: lag_goal_seconds: is 0; give seconds from 0.01 to 86400, or None for no goal",
        ),
        (one(queries=(Query("q", "a", 5, -1.0),)), "query q: lag_goal_seconds: is -1.0"),
        (one(queries=(Query("q", "a", 5, 86_401),)), "lag_goal_seconds: is 86401"),
        (one(queries=(Query("q", "a", 5, float("nan")),)), "lag_goal_seconds: is nan"),
        (one(queries=(Query("q", "a", 5, True),)), "lag_goal_seconds: is True"),
        (one(queries=(Query("q", "a", 5, "10"),)), "is '10'"),  # type: ignore[arg-type]
    ],
)
def test_an_unsound_topology_is_refused_with_place_and_remedy(
    unsound: Topology, message: str
) -> None:
    with pytest.raises(InputError) as refused:
        unsound.checked()
    assert message in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([], "topology: is not an object"),
        ({"version": 1, "operators": [], "edges": []}, "topology: queries: is missing"),
        ({"version": 2, "operators": [], "edges": [], "queries": []}, "version: is 2"),
        ({"version": 1, "operators": {}, "edges": [], "queries": []}, "operators: is not a list"),
        ({"version": 1, "operators": [{}], "edges": [], "queries": []}, "operators[0]: name"),
        ({"version": 1, "operators": [], "edges": [["a"]], "queries": []}, "edges[0]: is ['a']"),
        (
            {
                "version": 1,
                "operators": [],
                "edges": [],
                "queries": [{"name": "q", "operator": ["a"], "priority": 1}],
            },
            "query q: there is no operator ['a']",
        ),
    ],
)
def test_a_record_that_is_no_topology_is_refused(record: object, message: str) -> None:
    with pytest.raises(InputError) as refused:
        topology.from_record(record)
    assert message in str(refused.value)

"""The shape of the flights pipeline, its priorities, and the choice of nodes to kill."""

from collections import Counter
from itertools import combinations
from pathlib import Path
from random import Random

import networkx as nx
import pytest

from rekindle.model.errors import InputError
from rekindle_local.flights import flight_data, flight_pipeline
from rekindle_spark.pipeline.steps import Pipeline

NODES = [f"127.0.0.{number}" for number in range(1, 11)]
CLOSURES = {"small": ["a/0"], "other": ["b/0", "b/1"], "large": ["a/0", "b/1", "c/0"]}
PLACEMENT = {"a/0": NODES[0], "b/0": NODES[0], "b/1": NODES[1], "c/0": NODES[2]}


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    path = tmp_path_factory.mktemp("flights")
    flight_data.prepare(path, 1 / flight_data.DAYS_OF_YEAR)
    return flight_pipeline.build(path, seed=3)


def graph(flights: Pipeline) -> nx.DiGraph:
    edges = [(name, step.name) for step in flights.steps.values() for name in step.inputs]
    return nx.DiGraph(edges)


def test_eighteen_queries_share_four_sources(flights: Pipeline) -> None:
    sinks = {name for name, step in flights.steps.items() if step.kind == "sink"}
    sources = {name for name, step in flights.steps.items() if step.kind == "source"}
    assert sinks == set(flight_pipeline.QUERY_KEYS)
    assert len(sinks) == 18
    assert sources == set(flight_data.SOURCES)


def test_the_pipeline_is_four_levels_deep_and_has_few_partitions(flights: Pipeline) -> None:
    rooted = [step for step in flights.steps.values() if step.kind in ("source", "keyed")]
    levels: dict[str, int] = {}
    for step in flights.steps.values():
        above = max((levels[name] for name in step.inputs), default=-1)
        levels[step.name] = above + (step.kind in ("source", "keyed"))
    assert max(levels.values()) == 3
    assert 25 <= sum(step.parallelism for step in rooted) <= 50


def test_every_source_has_a_query_of_its_own_and_some_queries_need_three(
    flights: Pipeline,
) -> None:
    needs = {
        query: frozenset(nx.ancestors(graph(flights), query) & set(flight_data.SOURCES))
        for query in flight_pipeline.QUERY_KEYS
    }
    assert {frozenset([source]) for source in flight_data.SOURCES} <= set(needs.values())
    assert sum(len(sources) >= 3 for sources in needs.values()) >= 5


@pytest.mark.parametrize("seed", range(5))
def test_priorities_use_each_value_from_1_to_10(flights: Pipeline, seed: int) -> None:
    ranks = flight_pipeline.priorities(seed)
    assert set(ranks) == set(flight_pipeline.QUERY_KEYS)
    assert set(ranks.values()) == set(range(1, 11))
    assert max(Counter(ranks.values()).values()) == 2
    assert ranks == flight_pipeline.priorities(seed) != flight_pipeline.priorities(seed + 1)
    if seed == 3:
        assert ranks == {query: flights.steps[query].priority for query in ranks}


def test_the_keys_of_an_unknown_query_are_refused() -> None:
    with pytest.raises(InputError, match="query none: is no query of the flights; name one of"):
        flight_pipeline.keys("none")


def test_a_directory_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"flights_ewr\.parquet: is not there"):
        flight_pipeline.build(tmp_path)


def test_victims_leave_the_closures_of_two_queries_whole() -> None:
    drawn = Counter(
        flight_pipeline.victims(CLOSURES, PLACEMENT, NODES, 8, Random(seed)) for seed in range(40)
    )
    # Of 45 sets only the one that spares the first two nodes leaves two queries.
    assert set(drawn) == {tuple(NODES[2:])}


def test_victims_are_drawn_evenly_among_the_sets_that_fit() -> None:
    fitting = {lost for lost in combinations(NODES, 2) if not set(lost) & set(NODES[:2])}
    rng = Random(1)
    drawn = Counter(
        flight_pipeline.victims(CLOSURES, PLACEMENT, NODES, 2, rng) for _ in range(2800)
    )
    assert set(drawn) == fitting
    assert 60 <= min(drawn.values()) <= max(drawn.values()) <= 140


def test_victims_of_many_nodes_are_drawn_without_counting_all_sets() -> None:
    nodes = [f"127.0.1.{number}" for number in range(60)]
    placement = dict.fromkeys(PLACEMENT, nodes[7])
    lost = flight_pipeline.victims(CLOSURES, placement, nodes, 30, Random(1))
    assert len(set(lost)) == 30
    assert nodes[7] not in lost


@pytest.mark.parametrize("kill", [9, 10, 11])
def test_a_kill_that_leaves_fewer_than_two_queries_is_refused(kill: int) -> None:
    with pytest.raises(InputError, match=f"{kill} of 10: no choice leaves .*; kill fewer nodes"):
        flight_pipeline.victims(CLOSURES, PLACEMENT, NODES, kill, Random(1))


def test_streams_of_different_columns_cannot_be_united(flights: Pipeline) -> None:
    streams = [
        flights.source(f"more-{name}", flights.steps[name].function)
        for name in ("flights_ewr", "weather")
    ]
    with pytest.raises(InputError, match="step mixed: input more-weather: has another schema"):
        flights.union("mixed", *streams)

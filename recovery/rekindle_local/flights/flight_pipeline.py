"""The pipeline over prepared flights, the keys of its rows, and the choices of the seed.

Four sources, 18 queries (see `flight_queries`), priorities 1 to 10 spread over them, and the choice
of nodes to kill. Runs nothing. Called by the commands `demo` and `bench`.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from math import comb
from pathlib import Path
from random import Random
from typing import Any

from rekindle.model.errors import InputError
from rekindle_local.flights import flight_data, flight_queries, flight_topics
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline, Stream

PRIORITY_MAX = 10
SETS_ENUMERATED_MAX = 100_000
DRAWS_MAX = 10_000
# A failure is to leave so many queries that it does not touch.
WHOLE_QUERIES = 2

# The columns that tell a query's output rows apart.
QUERY_KEYS: dict[str, tuple[str, ...]] = {
    "ewr-extreme-delays": ("event_time", "carrier", "flight"),
    "ewr-latest-carriers": ("window_start",),
    "ewr-bad-weather-delays": ("departure", "observed", "carrier", "flight"),
    "jfk-diversions": ("event_time", "carrier", "flight"),
    "jfk-departure-waves": ("origin", "window_start"),
    "lga-cancellation-days": ("window_start", "carrier"),
    "windy-hours": ("event_time", "origin"),
    "weather-days": ("origin", "window_start"),
    "wettest-airports": ("window_start",),
    "airport-days": ("origin", "window_start"),
    "carrier-weeks": ("carrier", "window_start"),
    "late-carriers": ("window_start", "rank"),
    "destination-weeks": ("dest", "window_start"),
    "top-destinations": ("window_start", "rank"),
    "delays-by-weather": ("conditions", "window_start"),
    "carried-delay-chains": ("event_time", "tailnum", "origin", "carrier", "flight"),
    "carried-delay-weeks": ("carrier", "window_start"),
    "top-carried-delays": ("window_start", "rank"),
}


def build(
    input_directory: str | Path,
    seed: int = 1,
    names: Collection[str] | None = None,
    servers: str = "",
) -> Pipeline:
    """The pipeline over files that `flight_data.prepare` wrote, with priorities by `seed`; of some
    queries alone where `names` says which. With `servers` of Kafka it reads and writes topics.

    Raises InputError when a file is missing or was not prepared.
    """
    pipeline = Pipeline("flights")
    directory = Path(input_directory)
    flights = {
        origin.lower(): _source(pipeline, directory, f"flights_{origin.lower()}", servers)
        for origin in flight_data.ORIGINS
    }
    weather = _source(pipeline, directory, "weather", servers)
    flight_queries.add(flights, weather, priorities(seed))
    if servers:
        flight_topics.add_sinks(pipeline, servers)
    return pipeline if names is None else _leading_to(pipeline, names)


def _leading_to(pipeline: Pipeline, names: Collection[str]) -> Pipeline:
    """The steps that some of the queries need, alone."""
    needed = set(names)
    for step in reversed(pipeline.steps.values()):
        if step.name in needed:
            needed.update(step.inputs)
    part = Pipeline(pipeline.name)
    part.steps.update({name: step for name, step in pipeline.steps.items() if name in needed})
    return part


def keys(query: str) -> tuple[str, ...]:
    """The columns that tell the rows of `query` apart; raises InputError for an unknown one."""
    if query not in QUERY_KEYS:
        raise InputError(
            where=f"query {query}",
            what="is no query of the flights",
            remedy=f"name one of: {', '.join(sorted(QUERY_KEYS))}",
        )
    return QUERY_KEYS[query]


def priorities(seed: int) -> dict[str, int]:
    """1 to 10 spread evenly over the queries, which gets which by `seed`."""
    spread = [1 + index * PRIORITY_MAX // len(QUERY_KEYS) for index in range(len(QUERY_KEYS))]
    Random(seed).shuffle(spread)
    return dict(zip(QUERY_KEYS, spread, strict=True))


def victims(
    closures: Mapping[str, Collection[str]],
    placement: Mapping[str, str],
    nodes: Sequence[str],
    kill: int,
    rng: Random,
    *,
    whole: int = WHOLE_QUERIES,
) -> tuple[str, ...]:
    """Draw `kill` of `nodes` uniformly among the sets that leave the closures of `whole` queries
    whole.

    `closures`: partitions of each query; `placement`: node of each partition. Small cases are
    enumerated, large ones drawn until one fits. Raises InputError when none does.
    """
    homes = [frozenset(placement[partition] for partition in part) for part in closures.values()]

    def fits(lost: Sequence[str]) -> bool:
        return sum(home.isdisjoint(lost) for home in homes) >= whole

    chosen: tuple[str, ...] | None = None
    if 0 <= kill <= len(nodes):
        if comb(len(nodes), kill) <= SETS_ENUMERATED_MAX:
            fitting = [lost for lost in combinations(nodes, kill) if fits(lost)]
            chosen = rng.choice(fitting) if fitting else None
        else:
            draws = (tuple(rng.sample(list(nodes), kill)) for _ in range(DRAWS_MAX))
            chosen = next((lost for lost in draws if fits(lost)), None)
    if chosen is None:
        raise InputError(
            where=f"nodes to kill: {kill} of {len(nodes)}",
            what=f"no choice leaves the closures of {whole} queries whole",
            remedy="kill fewer nodes or start more",
        )
    return tuple(node for node in nodes if node in chosen)


def _source(pipeline: Pipeline, directory: Path, name: str, servers: str) -> Stream:
    path = directory / flight_data.file_name(name)
    period = flight_data.repeat_every_seconds(path)
    source: Any = Replay(str(path), event_time="event_time", repeat_every_seconds=period)
    if servers:
        source = flight_topics.source(servers, name, directory)
    return pipeline.source(name, source, parallelism=flight_topics.PARTITIONS[name])

"""The least weighted unavailability that plans alone allow: exact ones, with no restore time.

At the failure, and again at every return, the exact plan for all capacity so far is solved with
steady costs and summed capacity; what it chooses is back at that moment and stays back. No real
run can do better by more than luck in ties, so it is the yardstick of `report.json` (DESIGN 11).
Pure: the solver is handed in. `report_figures` calls it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rekindle.report.input_record import Inputs

# Takes a problem record in the format of `rekindle plan`, gives the queries to bring back.
Choose = Callable[[Mapping[str, Any]], Sequence[str]]


def back_times(
    inputs: Inputs,
    costs: Mapping[str, float],
    running: frozenset[str],
    capacity_steps: Sequence[tuple[float, float]],
    choose: Choose,
) -> Mapping[str, float]:
    """Give the moment at which each query is back; queries that never are have none.

    `costs` are percent of one core per partition, `running` the partitions that survived,
    `capacity_steps` pairs (t, CPU percent that all nodes hold of partitions from t on), ascending.
    """
    back = {query: 0.0 for query in inputs.priorities if inputs.closure(query) <= running}
    placed = set(running)
    for t, capacity in capacity_steps:
        waiting = sorted(set(inputs.priorities) - set(back))
        free = capacity - sum(costs.get(partition, 0.0) for partition in placed)
        if not waiting or free < 0:
            continue
        for query in choose(_problem(inputs, costs, placed, waiting, free)):
            placed |= inputs.closure(query)
        back |= {query: t for query in waiting if inputs.closure(query) <= placed}
    return back


def running_partitions(
    inputs: Inputs, placement: Mapping[str, str], killed: frozenset[str]
) -> frozenset[str]:
    """Give the partitions that belong to a query partition whose closure survived whole."""
    alive = {partition for partition, node in placement.items() if node not in killed}
    whole = [closure for closure in inputs.closures.values() if set(closure) <= alive]
    return frozenset(partition for closure in whole for partition in closure)


def weighted_seconds(
    inputs: Inputs, back: Mapping[str, float], onsets: Mapping[str, float], end: float
) -> float:
    """Weigh by priority how long each query is above its lag threshold until it is back.

    `onsets` are the moments at which a query crosses its threshold when it commits nothing
    from the failure on. A query that is never back is unavailable until `end`.
    """
    seconds = {query: max(0.0, back.get(query, end) - onsets[query]) for query in inputs.priorities}
    total = sum(inputs.priorities.values())
    return sum(inputs.priorities[query] * seconds[query] for query in seconds) / total


def _problem(
    inputs: Inputs,
    costs: Mapping[str, float],
    placed: set[str],
    waiting: Sequence[str],
    free_cpu_percent: float,
) -> Mapping[str, Any]:
    needed = {query: sorted(inputs.closure(query) - placed) for query in waiting}
    return {
        "version": 1,
        "partitions": {
            partition: {"cpu_percent": costs.get(partition, 0.0)}
            for partition in sorted({name for names in needed.values() for name in names})
        },
        "queries": {
            query: {"priority": inputs.priorities[query], "partitions": names}
            for query, names in needed.items()
        },
        "capacity_cpu_percent": free_cpu_percent,
    }

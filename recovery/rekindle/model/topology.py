"""The pipeline's graph: operators, their partitions, and the queries at its ends.

Answers what is upstream of what. Knows nothing of costs, nodes or code; the driver reports a
topology, the coordinator and the planner read it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from rekindle.model import lazy_import
from rekindle.model.errors import InputError, refuse

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = lazy_import.Imported("networkx")


VERSION = 1
PRIORITY_MIN, PRIORITY_MAX = 1, 10
# A day is more than any lag that somebody would promise.
LAG_GOAL_SECONDS_MIN, LAG_GOAL_SECONDS_MAX = 0.01, 86_400.0
LAG_GOAL_REMEDY = "give seconds from 0.01 to 86400, or None for no goal"
# Every partition of a producer makes a block for every one of a consumer, in every epoch.
PARALLELISM_MAX = 1_024


@dataclass(frozen=True, slots=True)
class TopologyOperator:
    """`parallelism` is the number of its partitions, "NAME/0" to "NAME/(parallelism - 1)", at
    most `PARALLELISM_MAX`.
    """

    name: str
    parallelism: int


@dataclass(frozen=True, slots=True)
class Query:
    """A sink on `operator`, priority 1 to 10; its query partitions are "NAME/i", one for each
    partition i of that operator (paper, section 2.1.2, Definition 1). The time in which its lag is
    above `lag_goal_seconds` is counted; None: it has no goal.
    """

    name: str
    operator: str
    priority: float
    lag_goal_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """A directed acyclic graph of operators; an edge (producer, consumer) joins every partition
    of the one with every partition of the other.
    """

    operators: tuple[TopologyOperator, ...]
    edges: tuple[tuple[str, str], ...]
    queries: tuple[Query, ...]

    def checked(self) -> "Topology":
        """Itself when sound; otherwise InputError with place and remedy."""
        _check_operators(self.operators)
        names = {operator.name for operator in self.operators}
        for producer, consumer in self.edges:
            for name in (producer, consumer):
                if name not in names:
                    _refuse_unknown(f"edge {producer} -> {consumer}", name, names)
        _check_queries(self.queries, names)
        _check_acyclic(operator_graph(self))
        return self


def operator_graph(topology: Topology) -> "nx.DiGraph":
    """One node per operator, edges from producer to consumer."""
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(operator.name for operator in topology.operators)
    graph.add_edges_from(topology.edges)
    return graph


def partitions(topology: Topology) -> tuple[str, ...]:
    """All operator partitions, producers before consumers, ties by operator name."""
    slices = _slices(topology)
    order = nx.lexicographical_topological_sort(operator_graph(topology))
    return tuple(partition for operator in order for partition in slices[operator])


def closures(topology: Topology) -> dict[str, frozenset[str]]:
    """Per query partition: its own operator partition and everything upstream of that."""
    slices, graph = _slices(topology), operator_graph(topology)
    above = {query.operator: nx.ancestors(graph, query.operator) for query in topology.queries}
    shared = {
        operator: frozenset(partition for name in names for partition in slices[name])
        for operator, names in above.items()
    }
    return {
        f"{query.name}/{i}": shared[query.operator] | {partition}
        for query in topology.queries
        for i, partition in enumerate(slices[query.operator])
    }


def upstream(topology: Topology, operator: str) -> frozenset[str]:
    """Names of all operators from which a path leads to `operator`, itself not included."""
    return frozenset(nx.ancestors(operator_graph(topology), operator))


def levels(topology: Topology) -> dict[str, int]:
    """Per operator: edges on the longest path from a source to it (a source is 0)."""
    graph = operator_graph(topology)
    return {
        operator: level
        for level, generation in enumerate(nx.topological_generations(graph))
        for operator in generation
    }


def query_priorities(topology: Topology) -> dict[str, float]:
    """Per query partition: its query's priority divided by the number of its partitions, so that
    a whole query counts once.
    """
    slices = _slices(topology)
    return {
        f"{query.name}/{i}": query.priority / len(slices[query.operator])
        for query in topology.queries
        for i in range(len(slices[query.operator]))
    }


def runnable(topology: Topology, placed: Mapping[str, str]) -> frozenset[str]:
    """The largest part of the placed partitions (partition -> node) that is closed upstream.

    A partition reads from all partitions of its producers, so one that is missing, or cannot run
    itself, stops every consumer.
    """
    slices, graph = _slices(topology), operator_graph(topology)
    running: set[str] = set()
    complete: set[str] = set()
    for operator in nx.topological_sort(graph):
        if not complete.issuperset(graph.predecessors(operator)):
            continue
        there = [partition for partition in slices[operator] if partition in placed]
        running.update(there)
        if len(there) == len(slices[operator]):
            complete.add(operator)
    return frozenset(running)


def to_record(topology: Topology) -> dict[str, Any]:
    """The JSON object of a topology."""
    return {
        "version": VERSION,
        "operators": [
            {"name": operator.name, "parallelism": operator.parallelism}
            for operator in topology.operators
        ],
        "edges": [list(edge) for edge in topology.edges],
        "queries": [
            {
                "name": query.name,
                "operator": query.operator,
                "priority": query.priority,
                **({} if (goal := query.lag_goal_seconds) is None else {"lag_goal_seconds": goal}),
            }
            for query in topology.queries
        ],
    }


def from_record(record: object, where: str = "topology") -> Topology:
    """A checked topology from its JSON object; raises InputError for anything else."""
    fields = _fields(record, where, ("version", "operators", "edges", "queries"))
    if fields["version"] != VERSION:
        refuse(f"{where}: version", f"is {fields['version']!r}", f"use version {VERSION}")
    operators = [
        TopologyOperator(**_fields(item, f"{where}: operators[{i}]", ("name", "parallelism")))
        for i, item in enumerate(_list(fields["operators"], f"{where}: operators"))
    ]
    edges = []
    for i, item in enumerate(_list(fields["edges"], f"{where}: edges")):
        ends = _list(item, f"{where}: edges[{i}]")
        if len(ends) != 2 or not all(isinstance(end, str) for end in ends):
            refuse(f"{where}: edges[{i}]", f"is {ends!r}", 'write ["producer", "consumer"]')
        edges.append((ends[0], ends[1]))
    queries = [
        Query(
            **_fields(item, f"{where}: queries[{i}]", ("name", "operator", "priority")),
            lag_goal_seconds=item.get("lag_goal_seconds"),
        )
        for i, item in enumerate(_list(fields["queries"], f"{where}: queries"))
    ]
    try:
        return Topology(tuple(operators), tuple(edges), tuple(queries)).checked()
    except InputError as error:
        raise InputError(
            where=f"{where}: {error.where}", what=error.what, remedy=error.remedy
        ) from error


def _slices(topology: Topology) -> dict[str, tuple[str, ...]]:
    return {
        operator.name: tuple(f"{operator.name}/{i}" for i in range(operator.parallelism))
        for operator in topology.operators
    }


def _check_operators(operators: Iterable[TopologyOperator]) -> None:
    seen: set[str] = set()
    for operator in operators:
        _check_name("operator", operator.name, seen)
        count = operator.parallelism
        whole = isinstance(count, int) and not isinstance(count, bool)
        if not whole or not 1 <= count <= PARALLELISM_MAX:
            remedy = f"give a whole number from 1 to {PARALLELISM_MAX:,}"
            refuse(f"operator {operator.name}: parallelism", f"is {count!r}", remedy)


def _check_queries(queries: Iterable[Query], operators: Iterable[str]) -> None:
    seen: set[str] = set()
    for query in queries:
        _check_name("query", query.name, seen)
        if not isinstance(query.operator, str) or query.operator not in operators:
            _refuse_unknown(f"query {query.name}", query.operator, operators)
        priority = query.priority
        number = isinstance(priority, int | float) and not isinstance(priority, bool)
        if not number or not PRIORITY_MIN <= priority <= PRIORITY_MAX:
            remedy = "give a number from 1 (least) to 10 (most important)"
            refuse(f"query {query.name}: priority", f"is {priority!r}", remedy)
        goal = query.lag_goal_seconds
        number = isinstance(goal, int | float) and not isinstance(goal, bool)
        if goal is not None and not (
            number and LAG_GOAL_SECONDS_MIN <= goal <= LAG_GOAL_SECONDS_MAX
        ):
            where = f"query {query.name}: lag_goal_seconds"
            refuse(where, f"is {goal!r}", LAG_GOAL_REMEDY)


def _check_name(kind: str, name: object, seen: set[str]) -> None:
    if not isinstance(name, str) or not name or "/" in name or not name.isprintable():
        refuse(f"{kind} {name!r}", "is no usable name", "use visible characters without '/'")
    if name in seen:
        refuse(f"{kind} {name}", "is there twice", f"give each {kind} a name of its own")
    seen.add(name)


def _check_acyclic(graph: "nx.DiGraph") -> None:
    try:
        cycle = [producer for producer, _ in nx.find_cycle(graph)]
    except nx.NetworkXNoCycle:
        return
    first = cycle.index(min(cycle))
    path = " -> ".join([*cycle[first:], *cycle[:first], cycle[first]])
    refuse(f"cycle {path}", "nothing on it could ever start", "cut it at one of its arrows")


def _fields(value: object, where: str, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        refuse(where, "is not an object", f"write an object with {', '.join(names)}")
    for name in names:
        if name not in value:
            refuse(f"{where}: {name}", "is missing", "add it")
    return {name: value[name] for name in names}


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        refuse(where, "is not a list", "write [...]")
    return list(value)


def _refuse_unknown(where: str, name: object, known: Iterable[str]) -> NoReturn:
    remedy = f"name one of: {', '.join(sorted(known))}"
    refuse(where, f"there is no operator {name!r}", remedy)

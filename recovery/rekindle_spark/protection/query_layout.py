"""Protected queries as a topology that plans are made for.

    orders.work/0 ─┐                      report.work/0 ─┐
    orders.work/1 ─┼─► orders/0 ─────────► report.work/1 ─┼─► report/0
    ...            ┘   (`report` depends on `orders`)     ┘

Tasks of a query run on any executor, so no part of it belongs to a node. Its CPU is cut into equal
parts, for a plan puts each part on one node. A query comes back as a whole, after all that it
depends on. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from rekindle.model.errors import InputError
from rekindle.model.topology import Query, Topology, TopologyOperator

PRIORITY = 1.0
WORK = ".work"
# Small parts leave little of a node unused, and many of them make reports and plans long.
SLICES_MIN, SLICES_MAX = 16, 64


@dataclass(frozen=True, slots=True)
class QueryLayout:
    """`parts` (query -> partitions) are a query's own, `needs` those of all that it depends on as
    well."""

    topology: Topology
    parts: Mapping[str, tuple[str, ...]]
    needs: Mapping[str, frozenset[str]]

    @property
    def priorities(self) -> dict[str, float]:
        """Of all queries."""
        return {query.name: query.priority for query in self.topology.queries}

    def complete(self, partitions: Iterable[str]) -> frozenset[str]:
        """Queries all of whose partitions are among these, with those of what they depend on."""
        there = frozenset(partitions)
        return frozenset(name for name, needed in self.needs.items() if needed <= there)

    def spread(self, nodes: Iterable[str], queries: Iterable[str]) -> dict[str, str]:
        """The partitions of queries over the nodes, evenly; none where there are no nodes."""
        order = sorted(nodes)
        names = [partition for name in sorted(queries) for partition in self.parts[name]]
        if not order:
            return {}
        return {name: order[number % len(order)] for number, name in enumerate(names)}

    def costs(self, loads: Mapping[str, float]) -> dict[str, float]:
        """CPU of partitions from that of queries, in percent of one core."""
        return {
            partition: load / len(self.parts[name])
            for name, load in loads.items()
            for partition in self.parts[name]
        }

    def clipped(
        self, loads: Mapping[str, float], node_count: int, free_percent: float
    ) -> dict[str, float]:
        """Loads of which each query fits by itself on so many nodes with so much CPU together, and
        each with all that it depends on, as far as none of these is more important. A query whose
        more important dependencies leave too little waits, or else it would slow them down."""
        priorities = self.priorities
        clipped: dict[str, float] = {}
        # among equals a query comes before what it depends on, so that they share the room
        for query in sorted(self.needs, key=lambda key: (-priorities[key], -len(self.needs[key]))):
            needed = [name for name, own in self.parts.items() if self.needs[query].issuperset(own)]
            group = [query] if clipped.keys() & needed else needed
            room = self._room({name: loads[name] for name in group}, node_count)
            share = min(1.0, free_percent / room) if room else 1.0
            clipped.update({name: share * loads[name] for name in group if name not in clipped})
        return clipped

    def _room(self, loads: Mapping[str, float], node_count: int) -> float:
        """What queries need however their parts are packed: a node leaves less than a part
        unused."""
        parts = (load / len(self.parts[name]) for name, load in loads.items())
        return sum(loads.values()) + node_count * max(parts, default=0.0)


def lay_out(
    names: Iterable[str],
    priorities: Mapping[str, float],
    depends_on: Mapping[str, Iterable[str]],
    nodes_expected: int,
) -> QueryLayout:
    """The layout of queries; InputError for names that are unknown or unusable, for priorities that
    are none, and for queries that depend on each other."""
    order = tuple(names)
    above = {name: tuple(depends_on.get(name, ())) for name in order}
    _check_known(order, priorities, depends_on)
    slices = min(max(nodes_expected, SLICES_MIN), SLICES_MAX)
    topology = Topology(
        operators=tuple(
            operator
            for name in order
            for operator in (TopologyOperator(name + WORK, slices), TopologyOperator(name, 1))
        ),
        edges=(
            *((name + WORK, name) for name in order),
            *((other, name + WORK) for name in order for other in above[name]),
        ),
        queries=tuple(Query(name, name, priorities.get(name, PRIORITY)) for name in order),
    ).checked()
    parts = {
        name: (*(f"{name}{WORK}/{index}" for index in range(slices)), f"{name}/0") for name in order
    }
    needs: dict[str, frozenset[str]] = {}
    for name in TopologicalSorter(above).static_order():
        needs[name] = frozenset(parts[name]).union(*(needs[other] for other in above[name]))
    return QueryLayout(topology, parts, needs)


def _check_known(
    names: tuple[str, ...],
    priorities: Mapping[str, float],
    depends_on: Mapping[str, Iterable[str]],
) -> None:
    if not names:
        raise InputError(
            where="protect: queries",
            what="there are none",
            remedy="give a function that starts a query for each name",
        )
    for where, mentioned in (
        ("priorities", tuple(priorities)),
        ("depends_on", tuple(depends_on)),
        *((f"depends_on[{name!r}]", tuple(others)) for name, others in depends_on.items()),
    ):
        for name in mentioned:
            if name not in names:
                raise InputError(
                    where=f"protect: {where}",
                    what=f"there is no query {name!r}",
                    remedy=f"name one of: {', '.join(sorted(names))}",
                )
    try:
        TopologicalSorter({name: tuple(depends_on.get(name, ())) for name in names}).prepare()
    except CycleError as error:
        raise InputError(
            where="protect: depends_on",
            what=f"these wait for each other: {' -> '.join(error.args[1])}",
            remedy="take one of these dependencies out",
        ) from error

"""Reads the graph line of a history: channels, operations with their parameters, outputs.

Refuses names that lead nowhere, cycles, and recorded operations beside modelled ones.
`history_reader` calls it.
"""

from collections.abc import Mapping

import networkx as nx

from rekindle.history import line_schema
from rekindle.history.history_steps import Graph
from rekindle.history.line_schema import Fields
from rekindle.history.operations import FIXED, KINDS, ORDERS, RECORDED, Operation, Value

OPERATIONS_MAX = 100_000


def graph_from(line: Fields) -> Graph:
    """The graph; InputError names the field that cannot be."""
    line.choose("kind", ("graph",))
    line.only("kind", "inputs", "operations", "outputs")
    described = line.inner("operations")
    if not 0 < len(described.record) <= OPERATIONS_MAX:
        remedy = f"describe from 1 to {OPERATIONS_MAX:,}"
        line.refuse("operations", f"describes {len(described.record)} operations", remedy)
    found = {name: _operation(name, described) for name in described.record}
    recorded = {operation.kind == RECORDED for operation in found.values()}
    if len(recorded) > 1:
        line.refuse("operations", "has recorded ones beside others", "use one form for all")
    inputs = () if recorded == {True} else line.take("inputs", line_schema.names)
    if recorded == {True} and "inputs" in line.record:
        line.refuse("inputs", "names channels", "remove it: recorded operations have epochs")
    for name in inputs:
        if name in found:
            line.refuse("inputs", f"names {name}, an operation", "give the channel another name")
    _check_sources(described, found, inputs)
    return Graph(inputs, _in_order(line, found), _outputs(line.inner("outputs"), found))


def _operation(name: str, described: Fields) -> Operation:
    place = described.inner(name)
    described.take(name, lambda _: line_schema.name(name))
    kind = place.choose("kind", (*KINDS, RECORDED))
    if kind == RECORDED:
        place.only("kind", "from")
        return Operation(name, kind, place.take("from", line_schema.names, ()))
    own = {"concatenate": ("window",), "filter": ("keep",)}.get(kind, ())
    place.only("kind", "from", "order", "keyed", *own)
    sources = place.take("from", line_schema.names)
    if kind == "join" and len(sources) != 2:
        place.refuse("from", f"names {len(sources)} sources", "name the two that are joined")
    return Operation(
        name=name,
        kind=kind,
        sources=sources,
        order=place.choose("order", ORDERS, FIXED),
        keyed=place.take("keyed", line_schema.flag, False),
        window=place.take("window", line_schema.integer(1), None),
        keep=_kept(place) if kind == "filter" else (),
    )


def _kept(place: Fields) -> tuple[Value, ...]:
    kept = place.take("keep", line_schema.value)
    if not isinstance(kept, tuple):
        place.refuse("keep", f"is {line_schema.shown(kept)}", "give the list of values that pass")
    return kept


def _check_sources(
    described: Fields, found: Mapping[str, Operation], inputs: tuple[str, ...]
) -> None:
    read = {source for operation in found.values() for source in operation.sources}
    for name, operation in found.items():
        for source in operation.sources:
            if source not in found and source not in inputs:
                remedy = "name an operation or one of the inputs"
                described.refuse(f"{name}.from", f"names {source}, which is not there", remedy)
    for channel in inputs:
        if channel not in read:
            described.refuse(
                "from", f"no operation reads the input {channel}", "remove it from inputs"
            )


def _in_order(line: Fields, found: Mapping[str, Operation]) -> tuple[Operation, ...]:
    """Producers before consumers, otherwise as they stand in the file."""
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(found)
    for name, operation in found.items():
        graph.add_edges_from((source, name) for source in operation.sources if source in found)
    places = {name: place for place, name in enumerate(found)}
    try:
        order = list(nx.lexicographical_topological_sort(graph, key=places.__getitem__))
    except nx.NetworkXUnfeasible:
        cycle = " -> ".join(producer for producer, _ in nx.find_cycle(graph))
        line.refuse("operations", f"have the cycle {cycle}", "cut it at one of its arrows")
    return tuple(found[name] for name in order)


def _outputs(place: Fields, found: Mapping[str, Operation]) -> dict[str, str]:
    outputs = {}
    for channel in place.record:
        source = place.take(channel, line_schema.name)
        if source not in found:
            place.refuse(
                channel, f"is {line_schema.shown(source)}", "name the operation that feeds it"
            )
        outputs[channel] = source
    if not outputs:
        place.refuse("*", "no channel is named", "name at least one, with its operation")
    return outputs

"""A program: a pipeline fused into chains and edges, as it is planned, shipped and run.

    chain   a source or a keyed step with all stateless steps and sinks behind it; its
            partitions are the operator partitions of plans, state and checkpoints
    edge    from a step of one chain to an input of a keyed chain, an exchange by key

Fusing costs nothing in freedom: stateless steps hold no state and sinks follow their input.
Partitions have one number each, in topological order. Frames are addressed by it.

Building a pipeline checks the types and names of the columns of all its steps. A column that cannot
go from one step to the next, or into a Parquet file, is refused before anything starts, with its
step. Keys and aggregates are checked by their operators when the step is added. docs/pipelines.md
has the table of types.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rekindle.model import lazy_import, topology
from rekindle.model.errors import InputError
from rekindle.model.topology import Query, Topology, TopologyOperator
from rekindle_spark.operators import arrow_columns, column_types
from rekindle_spark.operators.aggregates import OVER
from rekindle_spark.output import sink_files
from rekindle_spark.pipeline import late_outputs, unbounded_source
from rekindle_spark.pipeline.chains import Chain, Edge
from rekindle_spark.pipeline.steps import LATE_COLUMNS, REPORTED_COLUMNS, Pipeline, Step
from rekindle_spark.user_code import dead_letter_sieve

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = lazy_import.Imported("networkx")

__all__ = ["Chain", "Edge", "Program", "build", "check"]


def check(steps: Iterable[Step], named: Mapping[str, Step]) -> None:
    """Raise InputError for the first step with a column that cannot be carried or written."""
    for step in steps:
        assert step.schema is not None
        where = f"step {step.name}"
        if step.kind == "sink":
            sink_files.check_schema(where, step.schema)
            arrow_columns.check_cases(where, step.schema.names, REPORTED_COLUMNS)
        else:
            column_types.check(where, step.schema)
        if step.dead_letters and not step.inputs:
            rejected = step.function.reject_schema
            sink_files.check_schema(f"{where}: dead letters", rejected)
            added = [column.name for column in dead_letter_sieve.COLUMNS]
            arrow_columns.check_cases(f"{where}: dead letters", rejected.names, added)
        elif step.dead_letters:
            _check_given(f"{where}: dead letters", named[step.inputs[0]], dead_letter_sieve.COLUMNS)
        for name in step.inputs if step.late else ():
            _check_given(f"{where}: late rows", named[name], LATE_COLUMNS)


def _check_given(where: str, given: Step, added: Iterable[pa.Field]) -> None:
    """What a step keeps beside is written from the rows that it is given."""
    assert given.schema is not None
    sink_files.check_schema(where, given.schema)
    arrow_columns.check_cases(where, given.schema.names, [column.name for column in added])


ROOTS = ("source", "keyed")


@dataclass(frozen=True)
class Program:
    """Everything that drivers and hosts know about one pipeline. `branches` counts the records by
    which branches were made chains of their own; `whole` is the hash of the pipeline without."""

    name: str
    chains: tuple[Chain, ...]
    edges: tuple[Edge, ...]
    branches: int = 0
    whole: str = ""

    @cached_property
    def partition_names(self) -> tuple[str, ...]:
        """Name "CHAIN/INDEX" of each partition number."""
        return tuple(f"{chain.name}/{i}" for chain in self.chains for i in range(chain.parallelism))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Partition number of each name."""
        return {name: number for number, name in enumerate(self.partition_names)}

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The place of each partition number in topological order. Branches are numbered last, so
        that others keep their numbers, and come before their readers all the same."""
        numbers = range(len(self.owner))
        order = sorted(numbers, key=lambda number: (self._depths[self.owner[number].index], number))
        return tuple(sorted(numbers, key=order.__getitem__))

    @cached_property
    def _depths(self) -> tuple[int, ...]:
        """Of each chain a number that is larger than that of all chains it reads from."""
        if not any(chain.reads or chain.relay for chain in self.chains):
            return (0,) * len(self.chains)
        depths = dict.fromkeys(range(len(self.chains)), 0)
        for _ in self.chains:
            for edge in self.edges:
                depths[edge.consumer] = max(depths[edge.consumer], depths[edge.producer] + 1)
        return tuple(depths.values())

    def in_order(self, partitions: Iterable[int]) -> list[int]:
        """Partitions, those that give before those that read."""
        return sorted(partitions, key=self.ranks.__getitem__)

    @cached_property
    def owner(self) -> tuple[Chain, ...]:
        """The chain of each partition number."""
        return tuple(chain for chain in self.chains for _ in chain.partitions)

    def output_parts(self, number: int) -> dict[str, str]:
        """{output: "OUTPUT/INDEX"} of what a partition may have output files of; of a sink that is
        the query partition."""
        chain = self.owner[number]
        return {output: f"{output}/{number - chain.first}" for output in chain.outputs}

    @cached_property
    def sources(self) -> frozenset[int]:
        """The partitions that keep no state, and whose input is there for good: what they give can
        be made again."""
        return frozenset(
            number for chain in self.chains if not chain.keyed for number in chain.partitions
        )

    def sources_of(self, chain: Chain) -> frozenset[str]:
        """The names of the sources that a chain's rows come from."""
        return self._origins[chain.index]

    @cached_property
    def _origins(self) -> tuple[frozenset[str], ...]:
        found: dict[int, frozenset[str]] = {}
        ranks = {chain.index: self.ranks[chain.first] for chain in self.chains}
        for index in sorted(ranks, key=ranks.__getitem__):
            chain = self.chains[index]
            fed = [found[edge.producer] for edge in self.edges if edge.consumer == chain.index]
            own = frozenset() if fed else frozenset([chain.source])
            found[chain.index] = own.union(*fed)
        return tuple(found[chain.index] for chain in self.chains)

    @cached_property
    def uncertain_steps(self) -> frozenset[str]:
        """Steps that may give something else when they run again, and all that follow them."""
        found: set[str] = set()
        for chain in self.chains:
            fed = any(edge.step in found for edge in self.inputs[chain.index])
            if fed or not chain.root.deterministic:
                found.add(chain.name)
            for step in chain.steps:
                if step.inputs[0] in found or not step.deterministic:
                    found.add(step.name)
        return frozenset(found)

    @cached_property
    def uncertain(self) -> frozenset[int]:
        """The partitions that have such a step."""
        return frozenset(
            number
            for chain in self.chains
            if not self.uncertain_steps.isdisjoint(step.name for step in (chain.root, *chain.steps))
            for number in chain.partitions
        )

    @cached_property
    def lenient_steps(self) -> frozenset[str]:
        """Steps with dead letters, and all that follow them: until it is committed which rows were
        left out, a repeat may leave out others. Sources that reject alike are not among them."""
        found: set[str] = set()
        for chain in sorted(self.chains, key=lambda chain: self.ranks[chain.first]):
            fed = any(edge.step in found for edge in self.edges if edge.consumer == chain.index)
            root = chain.root
            if fed or (root.dead_letters and not unbounded_source.rejects_alike(root.function)):
                found.add(chain.name)
            for step in chain.steps:
                if step.inputs[0] in found or step.dead_letters:
                    found.add(step.name)
        return frozenset(found)

    @cached_property
    def lenient(self) -> frozenset[int]:
        """The partitions that have such a step."""
        return frozenset(
            number
            for chain in self.chains
            if not self.lenient_steps.isdisjoint(step.name for step in (chain.root, *chain.steps))
            for number in chain.partitions
        )

    @cached_property
    def inputs(self) -> tuple[tuple[Edge, ...], ...]:
        """Exchanges into each chain, in the fixed order in which they are read."""
        return tuple(
            tuple(e for e in self.edges if e.consumer == chain.index and not e.written)
            for chain in self.chains
        )

    @cached_property
    def outputs(self) -> tuple[tuple[Edge, ...], ...]:
        """Exchanges out of each chain."""
        return tuple(
            tuple(e for e in self.edges if e.producer == chain.index and not e.written)
            for chain in self.chains
        )

    @cached_property
    def levels(self) -> int:
        """Number of levels: Spark stages of an epoch."""
        return max(chain.level for chain in self.chains) + 1

    @cached_property
    def topology(self) -> Topology:
        """What the planner sees: operators, edges, queries."""
        operators = tuple(TopologyOperator(chain.name, chain.parallelism) for chain in self.chains)
        pairs = {(self.chains[e.producer].name, self.chains[e.consumer].name) for e in self.edges}
        queries = tuple(
            Query(sink.name, chain.name, sink.priority, sink.lag_goal_seconds)
            for chain in self.chains
            for sink in chain.sinks
        )
        return Topology(operators, tuple(sorted(pairs)), queries).checked()

    @cached_property
    def hash(self) -> str:
        """Of the structure, not of the functions: a mended function may go on with the state."""
        if self.whole:
            return self.whole
        text = repr([list(_describe(chain, self)) for chain in self.chains])
        return sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def steps(self) -> dict[str, dict[str, Any]]:
        """Of each keyed step its parallelism, and a hash of what decides how its state is read."""
        return {
            chain.name: {"parallelism": chain.parallelism, "state": _state_hash(chain, self)}
            for chain in self.chains
            if chain.keyed
        }

    @cached_property
    def alike(self) -> tuple[int, ...]:
        """For each edge the first that takes the same rows, reduced in the same way, by the same
        keys to as many partitions: what goes to a partition of one goes to that of the other.

        Why: docs/decisions/0040-equal-edges-have-one-content.md.
        """
        firsts: dict[Hashable, int] = {}
        return tuple(firsts.setdefault(self._carried(edge), edge.index) for edge in self.edges)

    def _carried(self, edge: Edge) -> Hashable:
        consumer = self.chains[edge.consumer]
        operator: Any = consumer.root.function
        combining = operator.combining if edge.combine else None
        return edge.step, edge.keys, consumer.parallelism, combining

    def consumers(self, partition: int) -> Iterator[int]:
        """The partitions that a partition has frames for."""
        for edge in self.outputs[self.owner[partition].index]:
            yield from self.chains[edge.consumer].partitions

    def dependents(self, partitions: Iterable[int]) -> set[int]:
        """All that was made, directly or not, of what uncertain steps of partitions have given."""
        found: set[int] = set()
        origins = set(partitions)
        for number in self.in_order(range(len(self.owner))):
            outputs = self.outputs[self.owner[number].index]
            for edge in outputs if number in origins | found else ():
                if edge.step in self.uncertain_steps:
                    found.update(self.chains[edge.consumer].partitions)
        return found

    def producers(self, partition: int) -> Iterator[tuple[Edge, int]]:
        """Each input edge of a partition with each producer partition of it."""
        for (_, producer), edge in self.feeds[self.owner[partition].index].items():
            yield edge, producer

    @cached_property
    def parents(self) -> dict[int, int]:
        """Of each partition of a relay the one that writes what it reads."""
        found: dict[int, int] = {}
        for edge in self.edges:
            if edge.written:
                own, other = self.chains[edge.consumer], self.chains[edge.producer]
                found |= zip(own.partitions, other.partitions, strict=True)
        return found

    def upstream(self, partition: int) -> Iterator[int]:
        """The partitions that have to run an epoch before this one can."""
        if partition in self.parents:
            yield self.parents[partition]
        yield from (producer for _, producer in self.producers(partition))

    def downstream(self, partition: int) -> Iterator[int]:
        """The partitions that can run an epoch once this one has."""
        yield from (relay for relay, parent in self.parents.items() if parent == partition)
        yield from self.consumers(partition)

    @cached_property
    def feeds(self) -> tuple[dict[tuple[int, int], Edge], ...]:
        """For each chain its input edges by their index and each of their producers, in the fixed
        order in which frames are read."""
        return tuple(
            {
                (e.index, producer): e
                for e in edges
                for producer in self.chains[e.producer].partitions
            }
            for edges in self.inputs
        )


def build(pipeline: Pipeline) -> Program:
    """Check a pipeline as a whole and fuse it.

    Raises InputError for a cycle, an unknown input, a pipeline without a sink, a source or keyed
    step that leads to none, or two outputs of one name; for a column that cannot be carried, or not
    be written.
    """
    order = _ordered(pipeline)
    check(order, pipeline.steps)
    roots = [step for step in order if step.kind in ROOTS]
    home = _homes(order)
    chains: list[Chain] = []
    levels: dict[str, int] = {}
    first = 0
    for index, root in enumerate(roots):
        fed_by = [leaf for name in root.inputs for leaf in _leaves(pipeline, name)]
        level = max((levels[home[leaf]] + 1 for leaf in fed_by), default=0)
        levels[root.name] = level
        members = [step for step in order if home.get(step.name) == root.name != step.name]
        chains.append(
            Chain(
                index,
                root,
                tuple(step for step in members if step.kind != "sink"),
                tuple(step for step in members if step.kind == "sink"),
                level,
                first,
            )
        )
        first += root.parallelism
    late_outputs.check_names(order)
    return Program(pipeline.name, tuple(chains), _edges(chains, home, pipeline))


def _ordered(pipeline: Pipeline) -> list[Step]:
    steps = pipeline.steps
    if not any(step.kind == "sink" for step in steps.values()):
        raise InputError(
            where=f"pipeline {pipeline.name}",
            what="has no sink",
            remedy="end at least one stream with .sink(name)",
        )
    for step in steps.values():
        for name in step.inputs:
            if name not in steps:
                raise InputError(
                    where=f"step {step.name}",
                    what=f"reads {name!r}, which is no step",
                    remedy=f"name one of: {', '.join(sorted(steps))}",
                )
    edges = tuple((name, step.name) for step in steps.values() for name in step.inputs)
    checked = Topology(tuple(TopologyOperator(name, 1) for name in steps), edges, ()).checked()
    graph = topology.operator_graph(checked)
    _check_ends(steps, graph)
    position = {name: number for number, name in enumerate(steps)}
    order = nx.lexicographical_topological_sort(graph, key=position.__getitem__)
    return [steps[name] for name in order]


def _check_ends(steps: Mapping[str, Step], graph: "nx.DiGraph") -> None:
    sinks = (name for name, step in steps.items() if step.kind == "sink")
    needed = set().union(*(nx.ancestors(graph, sink) for sink in sinks))
    for step in steps.values():
        if step.kind in ROOTS and step.name not in needed:
            raise InputError(
                where=f"step {step.name}",
                what="leads to no sink, so nothing would come of it",
                remedy="end it with .sink(name), or take it out",
            )


def _homes(order: list[Step]) -> dict[str, str]:
    """The root of the chain that each step belongs to; a union belongs to none."""
    home: dict[str, str] = {}
    for step in order:
        if step.kind in ROOTS:
            home[step.name] = step.name
        elif step.kind != "union":
            if step.inputs[0] not in home:
                raise InputError(
                    where=f"step {step.name}",
                    what=f"reads the union {step.inputs[0]!r} without a key",
                    remedy="put maps, filters and sinks before the union or behind a keyed step",
                )
            home[step.name] = home[step.inputs[0]]
    return home


def _leaves(pipeline: Pipeline, name: str) -> list[str]:
    """The step itself, or what a union unites."""
    step = pipeline.steps[name]
    if step.kind != "union":
        return [name]
    return [leaf for inner in step.inputs for leaf in _leaves(pipeline, inner)]


def _edges(chains: list[Chain], home: dict[str, str], pipeline: Pipeline) -> tuple[Edge, ...]:
    index = {chain.name: chain.index for chain in chains}
    edges: list[Edge] = []
    for chain in chains:
        operator: Any = chain.root.function
        combine = hasattr(operator, "combine") and not chain.root.late
        inputs = [
            (slot, leaf)
            for slot, name in enumerate(chain.root.inputs)
            for leaf in _leaves(pipeline, name)
        ]
        for slot, name in inputs:
            schema = operator.combined_schema if combine else pipeline.steps[name].schema
            producer, keys = index[home[name]], chain.root.keys
            edges.append(Edge(len(edges), producer, chain.index, slot, name, keys, schema, combine))
    return tuple(edges)


def _describe(chain: Chain, program: Program) -> Iterator[str]:
    yield f"{chain.name} {chain.root.kind} x{chain.parallelism} {chain.root.schema}"
    for step in (*chain.steps, *chain.sinks):
        yield f"{step.name} {step.kind} {step.inputs} {step.schema}"
    for edge in program.inputs[chain.index]:
        yield f"{edge.step} -> {edge.slot} by {edge.keys} {_counted(edge.schema)}"
    if chain.root.late:
        yield "late rows are kept"
    if chain.keyed:
        yield repr(sorted(_parameters(vars(chain.root.function)).items()))


def _state_hash(chain: Chain, program: Program) -> str:
    """Not of the parallelism, nor of the steps that feed it, but of what they give it."""
    operator = chain.root.function
    edges = program.inputs[chain.index]
    # the same where producers combine rows and where the operator does
    schemas = [getattr(operator, "combined_schema", edge.schema) for edge in edges]
    inputs = {f"{e.slot} by {e.keys} {_counted(of)}" for e, of in zip(edges, schemas, strict=True)}
    parameters = sorted(_parameters(vars(operator)).items())
    text = repr([type(operator).__name__, str(chain.root.schema), sorted(inputs), parameters])
    return sha256(text.encode()).hexdigest()[:16]


def _counted(schema: pa.Schema) -> pa.Schema:
    """What counts of an edge's schema: a store is gone on with from before sums had 128 bits."""
    return pa.schema([field for field in schema if field.name != OVER.name])


def _parameters(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """What decides how an operator's state is read: sizes, bounds, names; no functions."""
    plain = (int, float, str, bool, type(None))
    return {
        name: value
        for name, value in attributes.items()
        if isinstance(value, plain)
        or (isinstance(value, tuple | list) and all(isinstance(item, plain) for item in value))
    }

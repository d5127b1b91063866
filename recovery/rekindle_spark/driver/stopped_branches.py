"""Branches: parts of a chain that stop alone, and catch up as chains of their own.

    source ──► a ──► important           source ──────────────► a ──► important
          └──► b ──► other       ──►     source again (b~branch) ──► b ──► other

    keyed  ──► a ──► important           keyed ──► a ──► important
          └──► b ──► other       ──►          └─ files ─► relay (b~branch) ──► b ──► other

Where a stateless step raises, its partition runs on without the step and all that follows it
(`progress`, `query_stop`). A record fixes that before an epoch runs so. The next driver makes a
chain of the branch, in all partitions, with its own progress and restore points, which catches up
like anything that is behind. Behind a source it reads the same offsets, behind a keyed step what
that writes for it. Other partitions keep their numbers, for durable input names them. A savepoint,
at which nothing is behind, joins the two again.
Decided in docs/decisions/0002-branches-that-stop-alone.md; formats: docs/formats.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rekindle.model.errors import InputError
from rekindle_spark import intervals
from rekindle_spark.checkpoint import restore_points
from rekindle_spark.checkpoint.restore_points import DurableInput, RestorePoints
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.output import sink_files
from rekindle_spark.pipeline.chains import Chain, Edge, branch_name
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Step
from rekindle_spark.store.checkpoint_store import StoreHistory


@dataclass(frozen=True, slots=True)
class Branch:
    """Where a branch was left out first: a chain, the branch's first step, and the epoch from which
    on a partition has run without it."""

    chain: str
    step: str
    partition: str
    epoch: int
    text: str

    def record(self) -> dict[str, Any]:
        """As it stands in the store."""
        return asdict(self)


def head(program: Program, chain: Chain, step: str, gone: Iterable[str] = ()) -> str | None:
    """The first step of the branch to leave out where `step` raises: steps above it that lead to
    nothing else are left out with it.

    None where there is no such branch: beside it and `gone` nothing of the chain would be left, the
    chain may give something else in a repeat, dead letters may be missing among the rows that the
    branch gets, another chain reads both the branch and what is left, or a relay would have to read
    what Parquet cannot hold.
    """
    steps = {one.name: one for one in chain.steps}
    if step not in steps or not program.uncertain.isdisjoint(chain.partitions):
        return None
    needed = _needed(program, chain, chain.following([*gone, step]))
    if chain.name not in needed:
        return None
    while steps[step].inputs[0] not in needed:
        step = steps[step].inputs[0]
    out, edges = chain.following([step]), program.outputs[chain.index]
    readers = {edge.consumer for edge in edges if edge.step in out}
    rest = {edge.consumer for edge in edges if edge.step not in out}
    origin = steps.get(steps[step].inputs[0], chain.root)
    # a chain of its own would choose by itself which rows are left out
    if origin.name in program.lenient_steps:
        return None
    is_kept = not (chain.keyed or chain.relay) or sink_files.is_writable(origin.schema)
    return step if is_kept and readers.isdisjoint(rest) else None


def split(program: Program, records: Sequence[Mapping[str, Any]]) -> Program:
    """A pipeline's program with a chain for each branch that the records name.

    Raises InputError where a step got dead letters behind which rows wait for a branch.
    """
    if not records:
        return program
    made = program
    for record in records:
        chain = next((one for one in made.chains if one.name == record["chain"]), None)
        # it is a chain already where it has stopped in several partitions
        if chain is not None and record["step"] in {step.name for step in chain.steps}:
            made = _split(made, chain, record["step"])
    _check_waiting(made)
    return replace(made, branches=len(records), whole=program.hash)


def _check_waiting(program: Program) -> None:
    """Raise InputError where a repeat may write other rows for a branch than it has read."""
    for edge in program.edges:
        if edge.written and edge.step in program.lenient_steps:
            branch = program.chains[edge.consumer].name
            raise InputError(
                where=f"step {edge.step}",
                what=f"has dead letters, or gets rows from a step that has, and {branch} waits "
                "for what it gives",
                remedy="take dead_letters=True out there until a savepoint has joined the branch",
            )


def _split(program: Program, parent: Chain, step: str) -> Program:
    if parent.keyed or parent.relay:
        return _split_relay(program, parent, step)
    gone = parent.following([step])
    needed = _needed(program, parent, gone)
    above = _above(parent, step)
    root = replace(parent.root, name=branch_name(step))
    branch = Chain(
        len(program.chains),
        root,
        tuple(_read(one, parent, root) for one in parent.steps if one.name in gone | above),
        tuple(_read(one, parent, root) for one in parent.sinks if one.name in gone),
        0,
        len(program.partition_names),
        reads=parent.source,
        copies=(above & needed) | (above & parent.copies),
    )
    rest = replace(
        parent,
        steps=tuple(one for one in parent.steps if one.name in needed),
        sinks=tuple(one for one in parent.sinks if one.name not in gone),
    )
    return _with_branch(program, parent, rest, branch, gone)


def _split_relay(program: Program, parent: Chain, step: str) -> Program:
    """The same for a chain without offsets to read again: it writes what the branch reads."""
    gone, steps = parent.following([step]), {one.name: one for one in (parent.root, *parent.steps)}
    needed, origin = _needed(program, parent, gone), steps[steps[step].inputs[0]]
    root = replace(
        origin,
        name=branch_name(step),
        kind="relay",
        inputs=(),
        parallelism=parent.parallelism,
        function=None,
        dead_letters=False,
    )
    branch = Chain(
        len(program.chains),
        root,
        tuple(_read(one, origin, root) for one in parent.steps if one.name in gone),
        tuple(_read(one, origin, root) for one in parent.sinks if one.name in gone),
        parent.level + 1,
        len(program.partition_names),
        taps=tuple(tap for tap in parent.taps if tap[1] in gone),
    )
    rest = replace(
        parent,
        steps=tuple(one for one in parent.steps if one.name in needed),
        sinks=tuple(one for one in parent.sinks if one.name not in gone),
        taps=(
            *(tap for tap in parent.taps if tap[1] not in gone),
            (branch.name, origin.name),
        ),
    )
    made = _with_branch(program, parent, rest, branch, gone)
    written = Edge(
        len(made.edges),
        parent.index,
        branch.index,
        0,
        origin.name,
        (),
        origin.schema,
        combine=False,
        written=True,
    )
    return replace(made, edges=(*made.edges, written))


def _with_branch(
    program: Program, parent: Chain, rest: Chain, branch: Chain, gone: Iterable[str]
) -> Program:
    """A chain in two: what is left of it in its place, and the branch behind all others."""
    chains = [rest if chain is parent else chain for chain in program.chains]
    edges = [
        replace(edge, producer=branch.index)
        if edge.producer == parent.index and edge.step in gone
        else edge
        for edge in program.edges
    ]
    return replace(program, chains=(*chains, branch), edges=tuple(edges))


def _needed(program: Program, chain: Chain, gone: Iterable[str]) -> set[str]:
    """The steps of a chain that lead to its sinks and edges but for those `gone`, and its root."""
    needed = {edge.step for edge in program.outputs[chain.index]}
    needed |= {sink.inputs[0] for sink in chain.sinks} | {step for _, step in chain.taps}
    needed -= set(gone)
    for step in reversed(chain.steps):
        if step.name in needed:
            needed.update(step.inputs)
    return needed


def _above(chain: Chain, step: str) -> frozenset[str]:
    """The steps between a chain's root and one of its steps."""
    steps, above = {one.name: one for one in chain.steps}, set()
    name = steps[step].inputs[0]
    while name in steps:
        above.add(name)
        name = steps[name].inputs[0]
    return frozenset(above)


def _read(step: Step, parent: Chain | Step, root: Step) -> Step:
    """A step that reads the branch's root where it has read the parent's, or a step of it."""
    inputs = (root.name if name == parent.name else name for name in step.inputs)
    return replace(step, inputs=tuple(inputs))


def are_joined(history: StoreHistory) -> bool:
    """Whether the newest checkpoint is a savepoint with the states of all chains that branches have
    become, behind which there is nothing: the pipeline as it is written goes on from it as well."""
    record = history.checkpoint
    if record is None or not history.branches:
        return False
    is_whole = record.get("branches", 0) == len(history.branches) and not record.get("older")
    return is_whole and max(history.offsets, default=0) <= record["epoch"]


def branch_restore_points(program: Program, history: StoreHistory) -> RestorePoints:
    """From where each partition is brought back. The chain of a branch that a checkpoint does not
    know starts from where its parent would."""
    record = history.checkpoint
    points = restore_points.from_record(record, program)
    if record is None:
        return points
    for chain, parent in _split_after(program, history.branches, record.get("branches", 0)):
        for index, number in enumerate(chain.partitions):
            origin = points.older.get(parent.first + index)
            if origin is not None and number not in points.older:
                points.older[number] = origin
            points.inputs = [
                _shared(one, parent.first + index, number, points.epoch(number))
                for one in points.inputs
            ]
    return points


def _shared(stored: DurableInput, parent: int, branch: int, last: int) -> DurableInput:
    """Durable input in which a branch has the frames of its parent up to the epoch `last`."""
    epochs = [epoch for epoch in intervals.numbers(stored.frames.get(parent, ())) if epoch <= last]
    if not epochs:
        return stored
    return replace(stored, frames={**stored.frames, branch: intervals.of(epochs)})


def heirs(
    program: Program, records: Sequence[Mapping[str, Any]], known: int, chain: Chain
) -> list[Chain]:
    """The chains that records after the first `known` have split off from a chain, and from those
    that they have split off."""
    found = [chain]
    for branch, parent in _split_after(program, records, known):
        if parent in found:
            found.append(branch)
    return found[1:]


def left_out(progress: PartitionTable) -> dict[str, int]:
    """The last epoch of each branch that is left out, by the name that its chain will have."""
    found: dict[str, int] = {}
    for number, branches in progress.left_out.items():
        index = number - progress.program.owner[number].first
        for step, one in branches.items():
            found[f"{branch_name(step)}/{index}"] = one.epoch - 1
    return found


def _split_after(
    program: Program, records: Sequence[Mapping[str, Any]], known: int
) -> list[tuple[Chain, Chain]]:
    """The chains that branches have become by records after the first `known`, each with its
    parent, in the order in which they were split off."""
    by_name = {chain.name: chain for chain in program.chains}
    found: dict[str, tuple[Chain, Chain]] = {}
    before = {branch_name(record["step"]) for record in records[:known]}
    for record in records[known:]:
        name = branch_name(record["step"])
        if name in by_name and name not in before:
            found.setdefault(name, (by_name[name], by_name[record["chain"]]))
    return list(found.values())

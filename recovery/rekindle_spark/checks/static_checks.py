"""All checks of a pipeline and its settings that call no function of the user.

Called by `rekindle check`, and by `rekindle run` before anything is started. One of them is whether
a pipeline fits the nodes and epochs of its settings, as far as files show (`sizing`). Limits of the
driver are those of docs/scale.md. Memory is estimated for what a source's file determines: its row
groups, and the rows that a join keeps. Nothing is run here.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from rekindle import coordination
from rekindle.model.errors import InputError
from rekindle.model.settings import RuntimeSettings, Settings
from rekindle_spark.checks.check_findings import CheckFinding, of_error, warning
from rekindle_spark.checks.repeatability import repeatability
from rekindle_spark.operators import IntervalJoin
from rekindle_spark.pipeline import program, program_pickle
from rekindle_spark.pipeline.program import Chain, Program
from rekindle_spark.pipeline.replay import ROW_GROUPS_CACHED_MAX, Replay
from rekindle_spark.pipeline.steps import Pipeline, Step


def beforehand(pipeline: Pipeline, settings: Settings) -> list[CheckFinding]:
    """Check a pipeline as a whole; the first error of its structure hides what else there is."""
    try:
        built = program.build(pipeline)
        coordination.initial(built.topology, settings.policy, settings.runtime.nodes_expected)
    except InputError as error:
        return [of_error(settings.placed(error))]
    found = [*_paths(built), *repeatability(built)]
    try:
        shipped = program_pickle.pack(built)
    except InputError as error:
        return [of_error(error), *found]
    return [*found, *sizing(built, len(shipped), settings.runtime)]


def _paths(built: Program) -> list[CheckFinding]:
    """Executors look for a relative path in folders of their own."""
    return [
        warning(
            f"step {chain.name}: source file {chain.root.function.path}",
            "is relative, and executors have current folders of their own",
            "begin it at Path(__file__).parent, or with /",
        )
        for chain in built.chains
        if isinstance(chain.root.function, Replay)
        and not Path(chain.root.function.path).is_absolute()
    ]


# What one driver carries in each second of an epoch (docs/scale.md).
PARTITIONS_MAX, FRAMES_MAX = 1_000, 18_000
PARTITIONS_PER_NODE_MAX = 8
PROGRAM_MIB_MAX = 16
# Where no budget is set: more than that is worth a word.
MEMORY_MIB_MAX = 1_024
MIB = 2**20
# How many stretches of event time are looked at to find the fullest one.
SAMPLES = 100_000


def sizing(program: Program, program_bytes: int, settings: RuntimeSettings) -> list[CheckFinding]:
    """Warn of a pipeline that is too large for its driver, its nodes or the memory of hosts."""
    return [
        *_driver(program, program_bytes, settings),
        *_nodes(program, settings),
        *_row_groups(program, settings),
        *_joins(program, settings),
    ]


def _driver(
    program: Program, program_bytes: int, settings: RuntimeSettings
) -> Iterator[CheckFinding]:
    where, seconds = f"pipeline {program.name}", max(1.0, settings.epoch_seconds)
    partitions = len(program.partition_names)
    frames = {
        edge.step: program.chains[edge.producer].parallelism
        * program.chains[edge.consumer].parallelism
        for edge in program.edges
    }
    remedy = "lower parallelism, or give longer epochs (docs/scale.md)"
    if partitions > PARTITIONS_MAX * seconds:
        what = f"has {partitions:,} partitions, more than one driver can carry in an epoch"
        yield warning(where, f"{what} of {settings.epoch_seconds:g} s", remedy)
    if sum(frames.values()) > FRAMES_MAX * seconds:
        largest = max(frames, key=frames.__getitem__)
        what = f"exchanges {sum(frames.values()):,} frames in each epoch, most behind {largest}"
        yield warning(where, what, remedy)
    if program_bytes > PROGRAM_MIB_MAX * MIB:
        what = f"is {program_bytes / MIB:,.0f} MiB with what its functions hold"
        yield warning(
            where, what, "load large tables and models in the function, from a file on all nodes"
        )


def _nodes(program: Program, settings: RuntimeSettings) -> Iterator[CheckFinding]:
    nodes = settings.nodes_expected
    for chain in program.chains:
        if nodes > 1 and chain.parallelism > PARTITIONS_PER_NODE_MAX * nodes:
            what = f"is {chain.parallelism} for {nodes} nodes (nodes_expected)"
            remedy = "take once or twice the number of nodes: each partition costs in every epoch"
            yield warning(f"step {chain.name}: parallelism", what, remedy)


def _row_groups(program: Program, settings: RuntimeSettings) -> Iterator[CheckFinding]:
    """A host keeps a file's newest row groups, decoded, for each of its partitions."""
    for chain in program.chains:
        if chain.keyed or not isinstance(chain.root.function, Replay):
            continue
        sizes = sorted(chain.root.function.row_group_bytes(), reverse=True)
        held = sum(sizes[:ROW_GROUPS_CACHED_MAX]) * _per_node(chain, settings)
        if held > _limit_bytes(settings):
            what = f"keeps up to {held / MIB:,.0f} MiB of its file's row groups on a node"
            remedy = "write the file with smaller row groups, or narrow it with `columns`"
            yield warning(f"step {chain.name}: {chain.root.function.path}", what, remedy)


def _joins(program: Program, settings: RuntimeSettings) -> Iterator[CheckFinding]:
    steps = {step.name: step for chain in program.chains for step in (chain.root, *chain.steps)}
    for chain in program.chains:
        operator = chain.root.function
        if not isinstance(operator, IntervalJoin):
            continue
        kept = sum(
            _kept_bytes(steps, edge.step, operator.within) for edge in program.inputs[chain.index]
        )
        held = kept // chain.parallelism * _per_node(chain, settings)
        if held > _limit_bytes(settings):
            what = f"keeps up to {held / MIB:,.0f} MiB of rows on a node, those of"
            what += f" {operator.within / 1e6:,.0f} s of both sides"
            remedy = "lower within_seconds, filter before the join, or give it more partitions"
            yield warning(f"step {chain.name}", what, remedy)


def _kept_bytes(steps: Mapping[str, Step], name: str, within: int) -> int:
    """What the rows of a step take for so long a stretch of event time, at most; 0: unknown."""
    step = steps[name]
    while step.kind in ("map", "filter"):
        step = steps[step.inputs[0]]
    if step.kind != "source" or not isinstance(step.function, Replay):
        return 0
    times = step.function.event_times()
    if not len(times):
        return 0
    begins = np.arange(0, len(times), max(1, len(times) // SAMPLES))
    rows = int((np.searchsorted(times, times[begins] + within, side="right") - begins).max())
    return rows * sum(step.function.row_group_bytes()) // len(times)


def _per_node(chain: Chain, settings: RuntimeSettings) -> int:
    """How many partitions of a chain a node gets at most, spread evenly."""
    return -(-chain.parallelism // settings.nodes_expected)


def _limit_bytes(settings: RuntimeSettings) -> float:
    """Half of a host's budget."""
    budget = settings.host_memory_bytes_max
    return MEMORY_MIB_MAX * MIB if budget is None else budget / 2

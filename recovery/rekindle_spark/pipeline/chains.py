"""The parts of a program: chains, whose partitions are placed, and the edges between them.

A chain is a source or a keyed step with all stateless steps and sinks behind it. Its partitions are
the operator partitions of plans, state and checkpoints. Made by `program` and `stopped_branches`.

Why: docs/decisions/0020-exchanges-are-not-elided.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from rekindle_spark.pipeline import late_outputs
from rekindle_spark.pipeline.steps import Step
from rekindle_spark.user_code.dead_letter_sieve import ENDING

BRANCH = "~branch"


def branch_name(step: str) -> str:
    """The name of the chain that a branch becomes, by its first step."""
    return f"{step}{BRANCH}"


def is_branch(partition_name: str) -> bool:
    """Whether it is a partition of the chain that a branch has become."""
    return partition_name.rpartition("/")[0].endswith(BRANCH)


@dataclass(frozen=True)
class Chain:
    """A root step with the stateless steps and sinks behind it, in order.

    The chain of a branch (`stopped_branches`) behind a source `reads` that source's offsets, and
    has copies of the steps between the two: these steps belong to another chain. One behind a keyed
    step is a `relay`: it reads what the chain before it has written for it, as one of the `taps`
    there (the branch's first step, and the step whose rows it gets).
    """

    index: int
    root: Step
    steps: tuple[Step, ...]
    sinks: tuple[Step, ...]
    level: int
    first: int
    reads: str = ""
    copies: frozenset[str] = frozenset()
    taps: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The root step's name: the operator's name in topology and plans."""
        return self.root.name

    @property
    def source(self) -> str:
        """The name under which the offsets of its input are logged, where it is a source."""
        return self.reads or self.name

    @property
    def relay(self) -> bool:
        """Whether it reads what another chain has written for it."""
        return self.root.kind == "relay"

    @property
    def parallelism(self) -> int:
        """Number of partitions."""
        return self.root.parallelism

    @property
    def partitions(self) -> range:
        """The numbers of its partitions."""
        return range(self.first, self.first + self.parallelism)

    @property
    def outputs(self) -> tuple[str, ...]:
        """What its partitions may have output files of: sinks, and rows that steps keep beside."""
        letters = (name + ENDING for name in self.letters)
        return (*(sink.name for sink in self.sinks), *letters, *late_outputs.names(self.root))

    @property
    def letters(self) -> tuple[str, ...]:
        """Its steps with dead letters."""
        steps = (step for step in (self.root, *self.steps) if step.dead_letters)
        return tuple(step.name for step in steps if step.name not in self.copies)

    def following(self, steps: Iterable[str]) -> frozenset[str]:
        """Some of its stateless steps with all steps and sinks that follow them."""
        found = set(steps)
        for step in (*self.steps, *self.sinks) if found else ():
            if not found.isdisjoint(step.inputs):
                found.add(step.name)
        return frozenset(found)

    @property
    def calls_functions(self) -> bool:
        """Whether one of its stateless steps calls a function."""
        return any(step.kind in ("map", "filter") for step in self.steps)

    @property
    def keyed(self) -> bool:
        """Whether it has an operator with state (else it is a source)."""
        return self.root.kind == "keyed"


@dataclass(frozen=True)
class Edge:
    """An exchange: rows of `step` go by `keys` to input `slot` of a keyed chain.

    One that is `written` is no exchange: what a partition writes is read by the partition of the
    consumer with the same index, once it is there.
    """

    index: int
    producer: int
    consumer: int
    slot: int
    step: str
    keys: tuple[str, ...]
    schema: pa.Schema
    combine: bool
    written: bool = False

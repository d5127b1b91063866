"""From where each partition can be brought back: its state in the store, and its input since.

A global checkpoint has the state of every partition that runs. Of one that is behind, it has an
older state and *durable input*: the frames for it of the epochs since. So checkpoints go on through
the longest outage, and executors keep only what came after the last one. Bookkeeping of the driver;
`state_files` reads and writes the files, `durable_input_job` has them written.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from rekindle_spark import intervals
from rekindle_spark.pipeline.chains import is_branch
from rekindle_spark.pipeline.program import Program
from rekindle_store import checkpoint_records


@dataclass(frozen=True, slots=True)
class DurableInput:
    """What was written with one checkpoint, whose epoch it bears: frames of some epochs of some
    producers, for each of some partitions. Epochs are stretches as in `intervals`."""

    checkpoint: int
    frames: Mapping[int, tuple[int, ...]]
    partitions: frozenset[int]

    def overlaps(self, first: int, last: int) -> bool:
        """Whether a frame of these epochs may be in it."""
        return any(
            begin <= last and first < end
            for epochs in self.frames.values()
            for begin, end in zip(epochs[::2], epochs[1::2], strict=True)
        )


@dataclass(slots=True)
class RestorePoints:
    """`newest` is the epoch of the newest global checkpoint, `older` has the epoch of the state of
    each partition that was behind then, `inputs` what they have of the epochs since. `chains` are
    the epochs of the files that a state is made of, oldest first, where they are several.
    `branches` is the epoch from which the first of those is to go on that are left out now."""

    newest: int = 0
    older: dict[int, int] = field(default_factory=dict)
    inputs: list[DurableInput] = field(default_factory=list)
    chains: dict[int, tuple[int, ...]] = field(default_factory=dict)
    branches: int | None = None
    _covered: dict[tuple[int, int], tuple[int, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def oldest(self) -> int:
        """The earliest epoch that anybody starts from."""
        known = [self.newest] if self.branches is None else [self.newest, self.branches]
        return min([*known, *self.older.values()])

    def epoch(self, partition: int) -> int:
        """The epoch of the state that a partition starts from; 0 before all input."""
        return self.older.get(partition, self.newest)

    def has(self, partition: int, producer: int, epoch: int) -> bool:
        """Whether the frames of a producer's epoch for a partition are in the store."""
        key = (partition, producer)
        if key not in self._covered:
            stored = (one for one in self.inputs if partition in one.partitions)
            self._covered[key] = intervals.union(one.frames.get(producer, ()) for one in stored)
        return intervals.has(self._covered[key], epoch)

    def needs(self, partition: int, producer: int, epoch: int) -> bool:
        """Whether a partition that is brought back would lack these frames if nobody kept them."""
        return epoch > self.epoch(partition) and not self.has(partition, producer, epoch)

    def checkpoints(self, partition: int, first: int, last: int) -> list[int]:
        """With which checkpoints input of these epochs was written for a partition."""
        return [
            stored.checkpoint
            for stored in self.inputs
            if partition in stored.partitions and stored.overlaps(first, last)
        ]

    def after(
        self,
        epoch: int,
        behind: Iterable[int],
        written: DurableInput | None,
        bases: Mapping[int, int] = MappingProxyType({}),
    ) -> "RestorePoints":
        """As it is when a checkpoint has become global: all but those `behind` have their state
        in it, and `written` is what they have got with it. `bases` are the epochs of the files that
        files of this checkpoint build on."""
        older = {partition: self.epoch(partition) for partition in behind}
        chains = {number: chain for number, chain in self.chains.items() if number in older}
        for number, base in bases.items():
            assert base == self.epoch(number), f"partition {number} builds on epoch {base}"
            chains[number] = (*self.chains.get(number, (base,)), epoch)
        stored = [*self.inputs, *([] if written is None else [written])]
        kept = (replace(one, partitions=one.partitions & older.keys()) for one in stored)
        inputs = [one for one in kept if one.partitions]
        return RestorePoints(epoch, older, inputs, chains)

    def record(self, names: Mapping[int, str] | tuple[str, ...]) -> dict[str, Any]:
        """As a checkpoint's record has it; partitions by name."""
        return {
            "older": {names[number]: epoch for number, epoch in sorted(self.older.items())},
            "inputs": [
                {
                    "checkpoint": stored.checkpoint,
                    "frames": {names[u]: list(spans) for u, spans in sorted(stored.frames.items())},
                    "partitions": [names[number] for number in sorted(stored.partitions)],
                }
                for stored in self.inputs
            ],
            "chains": {names[number]: list(chain) for number, chain in sorted(self.chains.items())},
        }


def from_record(record: Mapping[str, Any] | None, program: Program) -> RestorePoints:
    """Read back what a checkpoint's record says; None: there is no checkpoint."""
    if record is None:
        return RestorePoints()
    numbers = program.numbers
    inputs = [
        DurableInput(
            stored["checkpoint"],
            {numbers[name]: tuple(spans) for name, spans in stored["frames"].items()},
            frozenset(numbers[name] for name in stored["partitions"]),
        )
        for stored in record.get("inputs", ())  # absent in the records of earlier versions
    ]
    older = {numbers[name]: epoch for name, epoch in record.get("older", {}).items()}
    chains = {numbers[name]: tuple(chain) for name, chain in record.get("chains", {}).items()}
    return RestorePoints(record["epoch"], older, inputs, chains)


def begin(record: Mapping[str, Any], name: str) -> int:
    """Behind which epoch a partition may be run again, as a checkpoint's record says; of the chain
    of a branch, which the checkpoint may not know, any that somebody starts from."""
    older = record.get("older", {})
    first = checkpoint_records.oldest(record) if is_branch(name) else record["epoch"]
    return int(older.get(name, first))

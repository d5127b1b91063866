"""Durable input: the frames for one partition of some epochs, as a file in the store.

    checkpoints/EPOCH/OPERATOR-INDEX.input

Written by a host whatever partitions it owns, from what it is handed, and read by the host that
brings the partition back. Which frames they are the driver knows (`restore_points`). Format:
docs/formats.md.
"""

from collections.abc import Iterable, Mapping, Sequence

from rekindle_spark import intervals
from rekindle_spark.executor import frames
from rekindle_spark.executor.frames import Frame
from rekindle_spark.executor.partition import Incomplete
from rekindle_spark.pipeline.program import Program
from rekindle_store import checksummed_file
from rekindle_store.store_files import Files
from rekindle_store.transfers import Moved, unwatched

INPUT_VERSION = 1


def chosen(
    program: Program,
    partition: int,
    wanted: Mapping[int, tuple[int, ...]],
    received: Mapping[tuple[int, int], Sequence[Frame]],
) -> list[Frame]:
    """The frames of `wanted`, {producer: stretches of epochs}, among those received by (target,
    epoch), in order of epoch, edge and producer. Raises Incomplete where one is absent."""
    keys = sorted(
        (epoch, edge.index, producer)
        for edge, producer in program.producers(partition)
        for epoch in intervals.numbers(wanted.get(producer, ()))
    )
    found = {
        (epoch, frame.edge, frame.producer): frame
        for epoch in {epoch for epoch, _, _ in keys}
        for frame in received.get((partition, epoch), ())
    }
    for key in keys:
        if key not in found:
            name = program.partition_names[key[2]]
            text = f"no frame of {name} in epoch {key[0]} to be preserved"
            raise Incomplete(text, (key[2], key[0]))
    return [found[key] for key in keys]


def save(files: Files, name: str, kept: Iterable[Frame], moved: Moved = unwatched) -> int:
    """Put frames into a file; gives its bytes. The folder must be there."""
    body = b"".join(frames.raw(frame) for frame in kept)
    files.put({name: checksummed_file.seal(INPUT_VERSION, {}, body)}, moved)
    return len(body)


def load(files: Files, name: str, first: int, last: int, moved: Moved = unwatched) -> list[Frame]:
    """The frames of some epochs. Raises what `checksummed_file.load` raises."""
    _, body = checksummed_file.load(files, name, INPUT_VERSION, moved=moved)
    return [frame for frame in frames.frames(body) if first <= frame.epoch <= last]

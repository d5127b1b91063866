"""Blocks on the wire: one frame per edge, producer partition, target and epoch.

A frame is a fixed header and one Arrow record batch without its schema (both ends know it from
the program). A producer sends a frame to every target of an edge in every epoch, with zero rows
where it has none: empty and lost never look alike, and a reader goes on only when each producer
is there exactly once. A frame that a disk or a network has changed is as good as absent: each has a
checksum of all its bytes. Format: docs/formats.md.

Why: docs/decisions/0012-no-manifests.md.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc

from rekindle_spark.operators import arrow_columns

FRAME_VERSION = 2
# version, edge, producer, target, plan epoch, epoch, watermark, rows, digest, payload bytes
HEADER = struct.Struct("<HHIIIqqI8sI")
# Behind it, of the payload and then of the header: what is sent to several is summed once. CRC-32
# takes a quarter of the time of the digests' BLAKE2b, and nobody damages frames on purpose.
CHECKSUM = struct.Struct("<I")
# Frames in durable input of earlier versions have no checksum; the file has one.
UNCHECKED_VERSION = 1
NO_DIGEST = bytes(8)


@dataclass(frozen=True, slots=True)
class Label:
    """Whose rows, and for whom. `watermark` of the producer after the epoch, in microseconds."""

    edge: int
    producer: int
    target: int
    plan_epoch: int
    epoch: int
    watermark: int


@dataclass(frozen=True, slots=True)
class Frame(Label):
    """One producer's rows of one epoch for one target."""

    rows: int
    digest: bytes
    payload: memoryview


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows as frames hold them, whoever sends them to whom; `sum_of_payload` is its CRC-32."""

    rows: int
    digest: bytes
    payload: pa.Buffer | memoryview | bytes
    sum_of_payload: int


NOTHING = Packed(0, NO_DIGEST, b"", zlib.crc32(b""))


def encode(label: Label, table: pa.Table | None) -> bytes:
    """The bytes of one frame; `table` is None for zero rows."""
    packed = NOTHING if table is None else pack(arrow_columns.batch(table))
    (block,) = encode_each(label, [(label.target, packed)])
    return block


def pack(batch: pa.RecordBatch) -> Packed:
    """Rows for any frame. In memory they are there twice meanwhile."""
    if batch.num_rows == 0:
        return NOTHING
    if batch.num_columns and not any(  # the bytes of no columns do not say how many rows
        pa.types.is_nested(column.type) or column.null_count for column in batch.columns
    ):
        payload = _plain(batch)  # these are the very bytes that `digest` sums
        return Packed(batch.num_rows, _hash(payload), payload, zlib.crc32(payload))
    payload = batch.serialize()
    sum_ = digest(pa.Table.from_batches([batch]))
    return Packed(batch.num_rows, sum_, payload, zlib.crc32(payload))


def encode_each(label: Label, parts: Iterable[tuple[int, Packed]]) -> Iterator[bytes]:
    """The bytes of a frame for each of some targets, whose rows are given with them; all else is as
    the label has it."""
    before = (FRAME_VERSION, label.edge, label.producer)
    after = (label.plan_epoch, label.epoch, label.watermark)
    for target, packed in parts:
        told = (packed.rows, packed.digest, len(packed.payload))
        head = HEADER.pack(*before, target, *after, *told)
        checksum = CHECKSUM.pack(zlib.crc32(head, packed.sum_of_payload))
        yield b"".join((head, checksum, packed.payload))


def frames(data: memoryview) -> Iterator[Frame]:
    """All frames in a stretch of bytes that has been checked, or was made here."""
    position = 0
    while position < len(data):
        fields = HEADER.unpack_from(data, position)
        begin = position + HEADER.size
        if fields[0] != UNCHECKED_VERSION:
            assert fields[0] == FRAME_VERSION, f"frame version {fields[0]}"
            begin += CHECKSUM.size
        position = begin + fields[-1]
        yield Frame(*fields[1:-1], data[begin:position])  # type: ignore[call-arg]


def sound(data: memoryview) -> tuple[list[Frame], bool]:
    """The frames in a stretch of blocks that are as they were made, and whether all are. What
    follows a head whose length is damaged may be lost with it."""
    found: list[Frame] = []
    position, count, least = 0, 0, HEADER.size + CHECKSUM.size
    while len(data) - position >= least:
        fields = HEADER.unpack_from(data, position)
        begin = position + least
        end = begin + fields[-1]
        if fields[0] != FRAME_VERSION or end > len(data):
            break
        payload, head = data[begin:end], data[position : position + HEADER.size]
        checksum = zlib.crc32(head, zlib.crc32(payload))
        if CHECKSUM.unpack_from(data, position + HEADER.size)[0] == checksum:
            found.append(Frame(*fields[1:-1], payload))  # type: ignore[call-arg]
        position, count = end, count + 1
    return found, position == len(data) and len(found) == count


def by_target(found: Iterable[Frame]) -> dict[tuple[int, int], list[Frame]]:
    """Sort frames by target and epoch."""
    sorted_: dict[tuple[int, int], list[Frame]] = {}
    for frame in found:
        sorted_.setdefault((frame.target, frame.epoch), []).append(frame)
    return sorted_


def raw(frame: Frame) -> bytes:
    """The bytes that a frame was read from."""
    label = Label(*_fields(frame))
    packed = Packed(frame.rows, frame.digest, frame.payload, zlib.crc32(frame.payload))
    (block,) = encode_each(label, [(frame.target, packed)])
    return block


def decode(frame: Frame, schema: pa.Schema) -> pa.Table:
    """The frame's rows."""
    if frame.rows == 0:
        return schema.empty_table()
    return pa.Table.from_batches([batch_of(frame, schema)])


def batch_of(frame: Frame, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a frame that has some."""
    return pa.ipc.read_record_batch(pa.py_buffer(frame.payload), schema)


def digest(table: pa.Table) -> bytes:
    """Eight bytes that depend on the rows alone, not on how memory holds them."""
    filled, partial = list[pa.Array](), list[pa.Array]()
    for array in map(arrow_columns.whole, table.columns):
        if pa.types.is_nested(array.type):
            partial += _parts(array)
        elif array.null_count:
            partial.append(array.drop_null())
            filled.append(array.is_valid())
        else:
            filled.append(array)
    sum_ = blake2b(_plain(_nameless(filled)), digest_size=8)
    for column in partial:
        sum_.update(_plain(_nameless([column])))
    return sum_.digest()


def combined_digest(digests: list[bytes]) -> str:
    """One digest of a partition's whole output of an epoch, as hexadecimal digits."""
    return blake2b(b"".join(digests), digest_size=8).hexdigest()


def _fields(label: Label) -> tuple[int, ...]:
    """In the order of the header."""
    return (
        label.edge,
        label.producer,
        label.target,
        label.plan_epoch,
        label.epoch,
        label.watermark,
    )


def _hash(data: pa.Buffer) -> bytes:
    return blake2b(data, digest_size=8).digest()


def _parts(array: pa.Array) -> Iterator[pa.Array]:
    """What nested values are made of, as arrays without nulls: where there are values, how long
    lists are, and what is in them. Below a null, at any depth, memory may hold anything."""
    if array.null_count:
        yield array.is_valid()
        array = array.drop_null()
    kind = array.type
    if pa.types.is_map(kind):  # Arrow does not say how long these are
        entries = pa.struct([kind.key_field, kind.item_field])
        array = array.cast(pa.list_(pa.field("entries", entries, nullable=False)))
    if pa.types.is_struct(kind):
        for field in array.flatten():
            yield from _parts(field)
    elif pa.types.is_nested(kind):
        yield pc.list_value_length(array)
        yield from _parts(array.flatten())
    else:
        yield array


def _nameless(columns: Sequence[pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(columns, names=[""] * len(columns))


def _plain(filled: pa.RecordBatch) -> pa.Buffer:
    """Rows without nulls as bytes. They are copied: a slice keeps offsets of its whole, and Arrow
    writes up to 64 bytes of what follows it there."""
    return pa.concat_batches([filled, filled.slice(0, 0)]).serialize()

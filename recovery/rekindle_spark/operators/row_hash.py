"""Which partition a row belongs to, the same on every machine and in every version of libraries.

Version 1. A row's hash starts at 0; for each key column in order, `hash = mix(hash ^ column_hash)`
where `mix` is splitmix64's step (Steele, Lea and Flood, OOPSLA 2014) and `column_hash`, of 64 bits:
    booleans, integers, dates, times    mix(value as int64, in its own unit; uint64 by its bits)
    floats                              mix(IEEE bits as float64; one zero, one NaN)
    strings, bytes, UUIDs               BLAKE2b with an 8-byte digest, read as little-endian
    decimals                            the same, of the number without its point in 16 bytes
                                        (decimal256: 32), two's complement, the least first
    null                                NULL_HASH
The partition is the hash's upper 32 bits scaled to [0, partitions). A change of any of this would
send a key to another partition than its state: it needs a migration.
Called by `partition` for exchanges and by `joins`.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from rekindle_spark.operators import arrow_columns
from rekindle_spark.operators.arrow_columns import Integers

Hashes = NDArray[np.uint64]
NULL_HASH = np.uint64(0x9AE16A3B2F90404F)
# Of texts that are no longer than that: with the longest ones 26 MiB.
DISTINCT_CACHED_MAX, CACHED_BYTES_MAX = 65_536, 256
PARTITIONS_MAX = 2**31


def hashes(table: pa.Table | pa.RecordBatch, keys: Sequence[str]) -> Hashes:
    """The hash of each row's keys, uint64."""
    combined = np.zeros(table.num_rows, np.uint64)
    for name in keys:
        combined = _mix(combined ^ _column_hashes(arrow_columns.whole(table[name])))
    return combined


def partition_of(
    table: pa.Table | pa.RecordBatch, keys: Sequence[str], partitions: int
) -> Integers:
    """The partition of each row, int64 in [0, partitions)."""
    assert 0 < partitions <= PARTITIONS_MAX
    upper = hashes(table, keys) >> np.uint64(32)
    return ((upper * np.uint64(partitions)) >> np.uint64(32)).view(np.int64)


def split(
    table: pa.Table, keys: Sequence[str], partitions: int, among: Collection[int] | None = None
) -> dict[int, pa.Table]:
    """Rows by partition, in the order they had; only partitions that have rows, and of `among`
    where not all are wanted."""
    parts = split_batch(arrow_columns.batch(table), keys, partitions, among)
    return {target: pa.Table.from_batches([part]) for target, part in parts.items()}


def split_batch(
    batch: pa.RecordBatch,
    keys: Sequence[str],
    partitions: int,
    among: Collection[int] | None,
) -> dict[int, pa.RecordBatch]:
    """`split` of a batch, into slices of another one."""
    if batch.num_rows == 0:
        return {}
    if partitions == 1:
        return {0: batch}
    targets = partition_of(batch, keys, partitions)
    if among is not None and len(among) < partitions:
        wanted = np.isin(targets, list(among))
        batch, targets = batch.filter(pa.array(wanted)), targets[wanted]
        if batch.num_rows == 0:
            return {}
    counts = np.bincount(targets)
    found = np.flatnonzero(counts).tolist()
    if len(found) == 1:
        return {found[0]: batch}
    # numpy sorts 16-bit integers by radix: a tenth of the time.
    narrow = targets.astype(np.uint16) if partitions <= 2**16 else targets
    rows = batch.take(pa.array(np.argsort(narrow, kind="stable")))
    sizes, ends = counts.tolist(), np.cumsum(counts).tolist()
    return {target: rows.slice(ends[target] - sizes[target], sizes[target]) for target in found}


def _column_hashes(array: pa.Array) -> Hashes:
    kind = array.type
    if arrow_columns.has_integers(kind):
        result = _mix(arrow_columns.integers(array).view(np.uint64))
    elif kinds.is_floating(kind):
        floats = arrow_columns.canonical(array)
        filled = floats.fill_null(0) if floats.null_count else floats
        bits = filled.to_numpy(zero_copy_only=False).astype(np.float64).view(np.uint64)
        result = _mix(bits)
    else:
        result = _text_hashes(array)
    present = arrow_columns.valid(array)
    return result if present is None else np.asarray(np.where(present, result, NULL_HASH))


def _text_hashes(array: pa.Array) -> Hashes:
    encoded = arrow_columns.comparable(array).dictionary_encode("encode")
    words = encoded.dictionary
    if kinds.is_decimal(words.type):
        words = words.view(pa.binary(words.type.byte_width))
    texts = words.cast(pa.large_binary()).to_pylist()
    if array.null_count:
        texts = [text or b"" for text in texts]
    are_short = max(map(len, texts), default=0) <= CACHED_BYTES_MAX
    text_hash = _cached_hash if are_short else _text_hash
    distinct: Hashes = np.fromiter(map(text_hash, texts), np.uint64, len(texts))
    return np.take(distinct, np.asarray(encoded.indices))


def _text_hash(text: bytes) -> int:
    return _cached_hash(text) if len(text) <= CACHED_BYTES_MAX else _digest(text)


@lru_cache(maxsize=DISTINCT_CACHED_MAX)
def _cached_hash(text: bytes) -> int:
    return _digest(text)


def _digest(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def _mix(values: Hashes) -> Hashes:
    """Splitmix64's output for the state `values`, modulo 2**64."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))

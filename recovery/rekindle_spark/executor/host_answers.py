"""Answers of a host: outcomes and faults in a report, and its bytes with the blocks.

Formats: docs/formats.md. Called by `host`.
"""

import json
import struct
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rekindle_spark.executor import source_reading
from rekindle_spark.executor.partition import PartitionOutcome
from rekindle_spark.executor.source_reading import RowsRead
from rekindle_spark.pipeline.program import Program
from rekindle_spark.user_code import dead_letter_sieve

# What Java, which reads the answers, has in one array.
BLOCK_BYTES_MAX = 2**31 - 1


def sinks(outcome: PartitionOutcome) -> dict[str, list[Any]]:
    """Rows, file and digest of each sink that got rows, as the report says it."""
    return {
        query: [sunk.table.num_rows, sunk.file, sunk.digest]
        for query, sunk in outcome.sinks.items()
    }


def choices(outcome: PartitionOutcome) -> list[dict[str, Any]]:
    """Which rows were left out, by step, as the report says it: nothing where none were."""
    found = {step: [one.left, one.alone] for step, one in outcome.choices.items()}
    return [found] if found else []


def read(epochs: Iterable[Mapping[str, RowsRead]]) -> dict[str, Any]:
    """What was read of source partitions in some epochs, as the report says it: nothing where the
    source has none."""
    found = source_reading.merged(epochs)
    said = {
        name: [one.greatest, one.offsets, one.bytes, one.ahead, one.rows]
        for name, one in found.items()
    }
    return {"read": said} if said else {}


def fault(program: Program, item: Mapping[str, Any], error: BaseException) -> dict[str, str]:
    """What says where something was raised that nobody has foreseen; the log has the traceback."""
    traceback.print_exception(error)
    name, epochs = program.partition_names[item["partition"]], f"{item['from']} to {item['to']}"
    return {
        "where": f"partition {name}, epochs {epochs}",
        "what": dead_letter_sieve.raised(error),
        "remedy": "see the traceback in the executor's log; committed output stays",
    }


def encode(report: Mapping[str, Any], blocks: Sequence[tuple[int, Sequence[bytes]]]) -> bytes:
    """An answer's bytes. Raises OverflowError for blocks that are more than Java can read."""
    text = json.dumps(report).encode()
    parts = [struct.pack(">i", len(text)), text, struct.pack(">i", len(blocks))]
    for target, pieces in blocks:
        size = sum(map(len, pieces))
        if size > BLOCK_BYTES_MAX:
            raise OverflowError(f"{size:,} bytes for partition {target}, of {BLOCK_BYTES_MAX:,}")
        parts.append(struct.pack(">ii", target, size))
        parts += pieces
    return b"".join(parts)

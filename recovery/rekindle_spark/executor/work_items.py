"""Turns the items of a request into work, wanted output and file names.

Called by `host`, whose requests they are. Formats: docs/formats.md.
"""

import hashlib
from dataclasses import replace
from typing import Any

import pyarrow as pa

from rekindle.model.errors import DamagedError, RunError
from rekindle.model.switch_mode import ON
from rekindle_spark.checkpoint import state_files
from rekindle_spark.executor import partition
from rekindle_spark.executor.frames import Frame
from rekindle_spark.executor.job_activity import Entry
from rekindle_spark.executor.partition import PartitionWork
from rekindle_spark.operators import column_types
from rekindle_spark.pipeline.chains import Chain
from rekindle_spark.pipeline.program import Program
from rekindle_spark.user_code.dead_letter_sieve import LeftOutRows, Tolerance
from rekindle_store import checkpoint_records, checksummed_file, store_files
from rekindle_store.checkpoint_records import Kind, file_name


def counts(item: dict[str, Any], epoch: int) -> bool:
    """Whether an epoch's output is wanted; otherwise it is only made again for those who read."""
    return bool(item["counts"]) and item["counts"][0] <= epoch <= item["counts"][1]


def work(
    program: Program, request: dict[str, Any], item: dict[str, Any], epoch: int
) -> PartitionWork:
    """What to run of an item in one epoch."""
    number, ordered = item["partition"], request.get("ordering", ON) == ON
    chain, tolerance = program.owner[number], Tolerance(*request["dead_letters"])
    without = frozenset(step for step, begin in item.get("without", {}).items() if epoch >= begin)
    certain = ordered and number not in program.uncertain
    named = (request["generation"], item["plan_epoch"], request["attempt"])
    # A host that was given up may still put a file in place, after another one's counts.
    is_same = certain and number not in program.lenient
    attempt = "" if is_same else "".join(f"-{number}" for number in named)
    asked = PartitionWork(
        number,
        item["plan_epoch"],
        epoch,
        ordered=ordered,
        attempt=attempt,
        without=without,
        tolerance=tolerance,
    )
    if certain and "choices" in item:
        known = item["choices"].get(str(epoch), {}).items()
        chosen = {step: LeftOutRows(tuple(left), tuple(alone)) for step, (left, alone) in known}
        asked = replace(asked, choices=chosen)
    if chain.keyed:
        return asked
    readers = None if item["readers"] is None else frozenset(item["readers"])
    if chain.relay:
        table, watermark = _tap(
            store_files.at(request["store"]), chain, number - chain.first, epoch
        )
        return replace(asked, tapped=table, watermark=watermark, readers=readers)
    *span, watermark = request["offsets"][str(epoch)][chain.source]
    asked = replace(asked, watermark=watermark, readers=readers)
    if len(span) == 1:  # of a source that has partitions
        return replace(asked, spans=tuple(map(tuple, span[0])))
    return replace(asked, begin=span[0], end=span[1])


def stored_frames(
    program: Program, request: dict[str, Any], item: dict[str, Any], entry: Entry
) -> dict[int, list[Frame]]:
    """The durable input of an item, by epoch."""
    found: dict[int, list[Frame]] = {}
    for checkpoint in item["inputs"]:
        place = checkpoint_file(request, program, item["partition"], checkpoint, "input")
        entry.begin(f"loading {place[1]}")
        for frame in state_files.load_frames(*place, item["from"], item["to"], entry.sign):
            frame = _renumbered(program, frame)
            found.setdefault(frame.epoch, []).append(frame)
    return found


def _renumbered(program: Program, frame: Frame) -> Frame:
    """A frame as if the chain had made it that makes such frames now: a branch was a part of
    another chain before."""
    chain, before = (
        program.chains[program.edges[frame.edge].producer],
        program.owner[frame.producer],
    )
    if chain is before:
        return frame
    return replace(frame, producer=chain.first + frame.producer - before.first)


def _tap(store: store_files.Files, chain: Chain, index: int, epoch: int) -> tuple[pa.Table, int]:
    """What a relay reads of an epoch, and its watermark. It is there once the partition before has
    run the epoch."""
    folder = f"outputs/{chain.name}"
    name = f"{folder}/{index}-{epoch:09d}.parquet"
    try:
        data = store.read(name)
    except FileNotFoundError:
        below = (f"{folder}/{one}" for one in store.names(folder))
        attempted = checkpoint_records.attempted_rows(below, index, epoch)
        if attempted is None:
            raise DamagedError(
                where=name,
                what="is not there, but the epoch has run",
                remedy="restore it from a copy of the store",
            ) from None
        name = attempted
        data = store.read(name)
    table = checksummed_file.check_rows(name, data)
    watermark = int(table.schema.metadata[partition.WATERMARK])
    assert chain.root.schema is not None
    # Parquet has seconds as milliseconds, and other names inside of lists
    return column_types.converted(table, chain.root.schema), watermark


def checkpoint_file(
    request: dict[str, Any], program: Program, number: int, epoch: int, kind: Kind
) -> tuple[store_files.Files, str]:
    """The store, and the file's name in it."""
    return store_files.at(request["store"]), file_name(epoch, program.partition_names[number], kind)


def program_digest(data: bytes) -> str:
    """What a host compares a program's bytes with, before it loads them."""
    return hashlib.sha256(data).hexdigest()


def program_bytes(request: dict[str, Any]) -> bytes:
    """The program that a request names, as it lies in the store. RunError where that is not the one
    that the driver has written: its digest comes over Spark, and loading runs code."""
    _, name, wanted = request["program"]
    data = store_files.at(request["store"]).read(name)
    if program_digest(data) != wanted:
        raise RunError(
            where=f"{request['store']}/{name}",
            what="is not the program that the driver has written there (by its SHA-256)",
            remedy="find out who else writes to the store, then start the driver again",
        )
    return data

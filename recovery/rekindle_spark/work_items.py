"""What the items of a request mean: which work, what counts of it, and which files belong to it.

Called by `host`, whose requests they are. Formats: docs/formats.md.
"""

from dataclasses import replace
from typing import Any

from rekindle.modes import ON
from rekindle_spark import inputs, partition
from rekindle_spark.frames import Frame
from rekindle_spark.partition import Work
from rekindle_spark.poison import Tolerance
from rekindle_spark.program import Program
from rekindle_spark.restoring import Kind, file_name
from rekindle_store import files

__all__ = ["checkpoint_file", "counts", "stored_frames", "work"]


def counts(item: dict[str, Any], epoch: int) -> bool:
    """Whether an epoch's output is wanted; otherwise it is only made again for those who read."""
    return bool(item["counts"]) and item["counts"][0] <= epoch <= item["counts"][1]


def work(program: Program, request: dict[str, Any], item: dict[str, Any], epoch: int) -> Work:
    """What to run of an item in one epoch."""
    number, ordered = item["partition"], request.get("ordering", ON) == ON
    chain, tolerance = program.owner[number], Tolerance(*request["dead_letters"])
    certain = ordered and number not in program.uncertain
    attempt = "" if certain else f"-{item['plan_epoch']}-{request['attempt']}"
    asked = Work(number, item["plan_epoch"], epoch, 0, 0, partition.BEFORE_ALL, ordered, attempt)
    if chain.keyed:
        return replace(asked, tolerance=tolerance)
    begin, end, watermark = request["offsets"][str(epoch)][chain.name]
    readers = None if item["readers"] is None else frozenset(item["readers"])
    given = {"begin": begin, "end": end, "watermark": watermark, "readers": readers}
    return replace(asked, **given, tolerance=tolerance)


def stored_frames(
    program: Program, request: dict[str, Any], item: dict[str, Any]
) -> dict[int, list[Frame]]:
    """The durable input of an item, by epoch."""
    found: dict[int, list[Frame]] = {}
    for checkpoint in item["inputs"]:
        place = checkpoint_file(request, program, item["partition"], checkpoint, "input")
        for frame in inputs.load(*place, item["from"], item["to"]):
            found.setdefault(frame.epoch, []).append(frame)
    return found


def checkpoint_file(
    request: dict[str, Any], program: Program, number: int, epoch: int, kind: Kind
) -> tuple[files.Files, str]:
    """The store, and the file's name in it."""
    return files.at(request["store"]), file_name(epoch, program.partition_names[number], kind)

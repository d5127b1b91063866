"""A changed pipeline goes on from the savepoint that the one before has left.

A savepoint is a checkpoint with the states of all partitions, at which the driver before has ended
because it was asked to (`epoch_loop`, `checkpoint_coordinator`): of any other one that driver may
go on. States are matched by the names of their steps: those of steps that are gone stay behind, new
steps begin empty, with their next whole window (`initial_from`). Where a step's parallelism
is another, each key's state moves to where its input will go (`redistributed`). All that
becomes a checkpoint of a later epoch, in which nothing is read, whose record has its cut as well:
one record, so an upgrade is there or is not. The epoch is as many later as drivers have started
since: a fenced one, that stood still while it carried over, never writes the files of this one.
Nor does it write those of a driver that goes on from the savepoint with the pipeline before: that
one checkpoints no epoch of `claimed`. Called by `driver_main` at its start.

A step that is new has an event time from which on its rows are whole: all that have it, or a later
one, will come. A window of which rows have gone by before would be wrong without a sign of it. So
its first window is the first one that is whole, and what is made of it is whole from later on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from rekindle.model.errors import InputError, RunError
from rekindle_spark.checkpoint import state_files
from rekindle_spark.driver import source_intake
from rekindle_spark.driver.epoch_cutter import Cut
from rekindle_spark.driver.source_intake import Greatest
from rekindle_spark.executor.partition import BEFORE_ALL
from rekindle_spark.operators import row_hash, state_tables
from rekindle_spark.operators.joins import IntervalJoin
from rekindle_spark.operators.windows import WindowAggregate
from rekindle_spark.pipeline import unbounded_source
from rekindle_spark.pipeline.program import Chain, Program
from rekindle_spark.store.checkpoint_store import CheckpointStore, StoreHistory
from rekindle_store.checkpoint_records import file_name
from rekindle_store.store_files import Files


def is_needed(program: Program, history: StoreHistory) -> bool:
    """Whether another pipeline has written the checkpoint that is to be gone on from."""
    return history.checkpoint is not None and history.checkpoint["program"] != program.hash


def check(program: Program, history: StoreHistory) -> None:
    """Raise InputError where this pipeline cannot go on from what the store has."""
    record = history.checkpoint
    begin = 0 if record is None else record["epoch"]
    since = {name for name in history.fold.finished if history.fold.last(name) > begin}
    if record is None or not is_needed(program, history):
        if since - set(program.partition_names):
            _refuse(program, history, "give it an empty store, or run the pipeline as it was")
        return
    is_savepoint = record.get("savepoint", False) and not record.get("older")
    if not is_savepoint or max(history.offsets, default=0) > begin:
        _refuse(
            program,
            history,
            "run the pipeline as it was and end it with `rekindle savepoint STORE`, or give this "
            "one an empty store",
        )
    if history.offsets[begin]["final"]:
        _refuse(program, history, "give it an empty store: the input of this one has ended")
    for name, step in program.steps.items():
        before = record["steps"].get(name, step)
        if before["state"] != step["state"]:
            raise InputError(
                where=f"step {name}",
                what="has another operator, keys or columns than in the savepoint",
                remedy="give it another name, so that it begins empty, or leave it as it was",
            )


def carry_over(program: Program, store: CheckpointStore, history: StoreHistory, now: float) -> None:
    """Make the checkpoint that this pipeline goes on from. Its history has been checked."""
    before = history.checkpoint
    assert before is not None
    epoch = _epoch(before, store.generation)
    last = Cut.from_record(history.offsets[before["epoch"]])
    cut = _cut(program, last, epoch, before.get("greatest", {}))
    store.begin_checkpoint(cut.epoch)
    sizes: dict[str, int] = {}
    begun = _begun(program, before, cut)
    for chain in program.chains:
        if chain.keyed:
            sizes |= _carry_chain(store.files, before, chain, cut, begun.get(chain.name))
    is_made = store.complete_checkpoint(
        cut.epoch,
        {
            "program": program.hash,
            "steps": program.steps,
            "at": now,
            "bytes": sizes,
            "published": None,
            "savepoint": True,
            "cut": cut.record(),
            "begun": begun,
        },
    )
    if not is_made:
        raise RunError(
            where=f"checkpoint store {history.place}",
            what=f"has a record of epoch {cut.epoch} that a fenced driver has left",
            remedy="start again: each start carries the states over to another epoch",
        )


def claimed(history: StoreHistory, generation: int) -> int:
    """The last epoch whose files a driver may still write that started between the savepoint that
    is gone on from and this generation, to carry over; 0 where it is no savepoint."""
    record = history.checkpoint
    if record is None or not record.get("savepoint", False):
        return 0
    between = generation - 1
    return _epoch(record, between) if between > record["generation"] else 0


def _epoch(savepoint: Mapping[str, Any], generation: int) -> int:
    """The epoch to which a driver of this generation carries a savepoint over."""
    return int(savepoint["epoch"]) + max(1, generation - int(savepoint["generation"]))


def _cut(program: Program, last: Cut, epoch: int, read: Mapping[str, Greatest]) -> Cut:
    """An epoch without input, with the event times that the savepoint's record has. A source that
    is new begins where the others are in event time."""
    offsets, streams = {}, {}
    for chain in program.chains:
        if not chain.keyed and unbounded_source.is_unbounded(chain.root.function):
            before = last.streams.get(chain.name, source_intake.beginning(last.cut_at))
            streams[chain.name] = before.without_rows(read.get(chain.name, {}))
        elif not chain.keyed:
            _, end = last.offsets.get(chain.name, (0, None))
            begin = chain.root.function.rows_at(last.least_watermark) if end is None else end
            offsets[chain.name] = (begin, begin)
    return replace(last, epoch=epoch, offsets=offsets, streams=streams)


def _begun(program: Program, before: Mapping[str, Any], cut: Cut) -> dict[str, int | None]:
    """For each keyed step that is new from which event time on, in microseconds, all rows of its
    input are still to come; None where none have gone by."""
    whole, begun = list[int](), dict[str, int | None]()
    for chain in program.chains:
        operator = chain.root.function
        fed = max((whole[edge.producer] for edge in program.inputs[chain.index]), default=None)
        if fed is None:
            whole.append(cut.least_watermark + 1)
        elif chain.name in before["steps"]:
            whole.append(max(fed, kept_from(operator, cut.least_watermark)))
        else:
            whole.append(new_from(operator, fed))
            begun[chain.name] = fed if cut.least_watermark > BEFORE_ALL else None
    return begun


def _carry_chain(
    files: Files, before: Mapping[str, Any], chain: Chain, cut: Cut, begins_at: int | None
) -> dict[str, int]:
    """Write the states of one step, which begins at an event time where it is new; bytes of each
    partition's."""
    step = before["steps"].get(chain.name)
    if step is None:
        operator, watermark = chain.root.function, BEFORE_ALL
        empty = operator.initial()
        if begins_at is not None:
            empty = initial_from(operator, begins_at)
        dumped = [operator.dump(empty)] * chain.parallelism
    else:
        read = [
            state_files.read(files, _file(before["epoch"], chain, index))
            for index in range(step["parallelism"])
        ]
        watermark = min(reached for reached, _ in read)
        dumped = redistributed(
            chain.root.function.state_keys, [tables for _, tables in read], chain.parallelism
        )
    sizes: dict[str, int] = {}
    contents: dict[str, bytes] = {}
    for index, tables in enumerate(dumped):
        data, sizes[f"{chain.name}/{index}"] = state_files.seal(tables, watermark)
        contents[_file(cut.epoch, chain, index)] = data
    files.put(contents)
    return sizes


def _file(epoch: int, chain: Chain, index: int) -> str:
    return file_name(epoch, f"{chain.name}/{index}", "state")


def _refuse(program: Program, history: StoreHistory, remedy: str) -> None:
    what = "is not the one that wrote this checkpoint store"
    if history.place:
        what += f", {history.place}"
    if history.owner:
        what += f", which is that of {history.owner}"
    raise InputError(where=f"pipeline {program.name}", what=what, remedy=remedy)


LATE_ROWS = "late_rows"


def redistributed(
    state_keys: Sequence[Sequence[str]], dumped: Sequence[Sequence[pa.Table]], parallelism: int
) -> list[list[pa.Table]]:
    """The tables of `parallelism` partitions from those of the partitions before, in order.

    The whole numbers are moments before which nothing has to be done, of which the earliest holds
    for all, and the count of late rows, which the first partition takes over.
    """
    if len(dumped) == parallelism:
        return [list(of_one) for of_one in dumped]
    scalars = [state_tables.load_scalars(of_one[0]) for of_one in dumped]
    whole = {name: min(one[name] for one in scalars) for name in scalars[0]}
    late_rows = sum(one[LATE_ROWS] for one in scalars)
    fresh = [
        [state_tables.dump_scalars(**{**whole, LATE_ROWS: 0 if index else late_rows})]
        for index in range(parallelism)
    ]
    for place, keys in enumerate(state_keys, start=1):
        joined = pa.concat_tables([of_one[place] for of_one in dumped]).combine_chunks()
        parts = row_hash.split(joined, keys, parallelism)
        for index, of_one in enumerate(fresh):
            of_one.append(parts.get(index, joined.schema.empty_table()))
    return fresh


def initial_from(operator: Any, moment: int) -> Any:
    """The state of a step that is new, and whose rows are whole from an event time in microseconds
    on."""
    if isinstance(operator, WindowAggregate):
        return operator.initial_from(moment)
    return operator.initial()


def new_from(operator: Any, moment: int) -> int:
    """From when on the output of a new step is whole, whose input is from `moment` on."""
    if isinstance(operator, WindowAggregate):
        # the newest window that is left out ends here
        return operator.first_whole_start(moment) - operator.slide + operator.size + 1
    if isinstance(operator, IntervalJoin):
        return moment + operator.within
    return moment


def kept_from(operator: Any, watermark: int) -> int:
    """From when on the output of a step that goes on at a watermark is all still to come."""
    # a window is emitted when the watermark has passed its last moment: the one before its end
    return watermark + (2 if isinstance(operator, WindowAggregate) else 1)

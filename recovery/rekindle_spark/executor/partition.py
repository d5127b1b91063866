"""One operator partition for one epoch: root, stateless steps, frames and rows of sinks out.

Pure: the same state and the same frames give the same results. The host keeps them.
"""

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rekindle.model.errors import ColumnError, StepError
from rekindle_spark import intervals
from rekindle_spark.executor import frames, source_reading
from rekindle_spark.executor.frames import Frame, Label, Packed
from rekindle_spark.executor.source_reading import RowsRead, Span
from rekindle_spark.operators import KeyedStateful, arrow_columns, column_types, row_hash
from rekindle_spark.pipeline import late_outputs
from rekindle_spark.pipeline.chains import branch_name
from rekindle_spark.pipeline.late_outputs import InTime
from rekindle_spark.pipeline.program import Chain, Edge, Program
from rekindle_spark.pipeline.steps import Step
from rekindle_spark.user_code import code_locations, dead_letter_sieve, print_forwarding
from rekindle_spark.user_code.dead_letter_sieve import LeftOutRows, Sieve, Tolerance
from rekindle_spark.user_code.watchdog import Watchdog

BEFORE_ALL = -(2**63)
# How tables of other libraries become the ones that functions return.
CONVERSIONS = {
    "pandas": ": pyarrow.Table.from_pandas(it, schema=…, preserve_index=False)",
    "polars": ": to_arrow() makes one",
}
# in the metadata of what relays read
WATERMARK = b"watermark"
# The chains, by index and the steps that they are without, whose steps have given no rows for none.
QuietSteps = set[tuple[int, frozenset[str]]]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition's state after an epoch: its operator's, and the watermark it has reached."""

    watermark: int
    operator: Any


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """What to run: one partition, one epoch. `begin`, `end` and `watermark` are a source's; one
    that has partitions has `spans` of these.

    `readers` are the partitions that frames are made for, None for all. Steps that it is `without`,
    and all that follow them, are left out. `tapped` are the rows of a relay. `ordered`: input is
    taken in the fixed order, so that a repeat gives the same; otherwise as it came. `choices` are
    those of steps with dead letters, where the epoch is committed already. Where a repeat
    may give something else, `attempt` tells their files apart.
    """

    partition: int
    plan_epoch: int
    epoch: int
    begin: int = 0
    end: int = 0
    watermark: int = BEFORE_ALL
    ordered: bool = True
    attempt: str = ""
    readers: frozenset[int] | None = None
    without: frozenset[str] = frozenset()
    tapped: pa.Table | None = None
    tolerance: Tolerance = dead_letter_sieve.STRICT
    choices: Mapping[str, LeftOutRows] = field(default_factory=dict)
    spans: tuple[Span, ...] | None = None


@dataclass(frozen=True, slots=True)
class Sunk:
    """The rows of one sink, or dead letters, the file's name for them, and their digest. The file
    of a committed epoch's dead letters is there: a repeat does not know why they were left out."""

    table: pa.Table
    file: str
    digest: str
    is_there: bool = False


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """What came of it. `blocks`: target partition to frame; `sinks`: those that got rows, and
    outputs of dead letters and late rows; `taps`: what relays will read. `late` is how many rows
    came too late, `choices` which rows were left out, by step, where there are any, `read` what
    was read of source partitions."""

    state: PartitionState
    blocks: list[tuple[int, bytes]]
    sinks: dict[str, Sunk]
    rows: int
    digest: str
    late: int = 0
    taps: dict[str, Sunk] = field(default_factory=dict)
    choices: dict[str, LeftOutRows] = field(default_factory=dict)
    read: dict[str, RowsRead] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Begun:
    """What a chain's root gives, of so many rows: its state, its table, and its late rows by
    output; `late_rows` counts those that are kept nowhere too. `read`: see `PartitionOutcome`.
    `letters` are records that a source could not decode, `choice` is which: `is_known` where an
    epoch that is committed has left out the same."""

    state: PartitionState
    table: pa.Table
    rows: int
    late: Mapping[str, pa.Table] = field(default_factory=dict)
    late_rows: int = 0
    read: dict[str, RowsRead] = field(default_factory=dict)
    letters: pa.Table | None = None
    choice: LeftOutRows = field(default_factory=LeftOutRows)
    is_known: bool = False


class Incomplete(Exception):
    """A producer's frame is absent or there twice; says which. `lacks` is the partition that was to
    give it, and the epoch; None where that is not known."""

    def __init__(self, text: str, lacks: tuple[int, int] | None = None) -> None:
        super().__init__(text)
        self.lacks = lacks


def initial(chain: Chain) -> PartitionState:
    """The state before the first epoch."""
    return PartitionState(BEFORE_ALL, chain.root.function.initial() if chain.keyed else None)


def run(
    program: Program,
    work: PartitionWork,
    state: PartitionState,
    received: Sequence[Frame],
    watchdog: Watchdog | None = None,
    quiet: QuietSteps | None = None,
) -> PartitionOutcome:
    """Run one epoch of one partition.

    `received` holds the frames of this partition and epoch, in any order. Raises Incomplete,
    or StepError where a user's function raises or returns another schema. `watchdog` knows of each
    call of a function before it is made. `quiet` takes note where steps have given no rows for
    none.
    """
    chain = program.owner[work.partition]
    watchdog = watchdog or Watchdog()
    watchdog.begin(work.partition, work.epoch, chain.name)
    try:
        return _run(program, chain, work, state, received, watchdog, quiet)
    finally:
        watchdog.end()


def skip(
    program: Program,
    work: PartitionWork,
    state: PartitionState,
    received: Sequence[Frame],
    quiet: QuietSteps,
) -> PartitionOutcome | None:
    """What `run` would give for an epoch in which nothing happens, without running a step; None
    where something may happen. Raises Incomplete as `run` does.

    Nothing happens where there are no rows, the operator has nothing to close, and all steps are
    known to give no rows for none. The watermark moves all the same, and all frames are made.
    """
    chain = program.owner[work.partition]
    if (chain.index, work.without) not in quiet:
        return None
    if not chain.keyed:
        if not _reads_nothing(chain, work):
            return None
        after = PartitionState(work.watermark, None)
    elif any(frame.rows for frame in received):
        return None
    else:
        _, watermark = _arrived(program, work, received)
        if not chain.root.function.is_idle(state.operator, watermark):
            return None
        after = replace(state, watermark=watermark)
    gone = chain.following(work.without)
    if _taps(chain, work, gone):
        return None
    blocks: list[tuple[int, bytes]] = []
    for edge, targets in _exits(program, chain, work, gone):
        nothing = [frames.NOTHING] * len(targets)
        blocks += _framed(work, after.watermark, edge, targets, nothing)
    digest = frames.combined_digest([frames.NO_DIGEST] * len(blocks))
    return PartitionOutcome(after, blocks, {}, 0, digest)


def _run(
    program: Program,
    chain: Chain,
    work: PartitionWork,
    state: PartitionState,
    received: Sequence[Frame],
    watchdog: Watchdog,
    quiet: QuietSteps | None,
) -> PartitionOutcome:
    name, sieves = program.partition_names[work.partition], _sieves(program, chain, work, watchdog)
    with print_forwarding.at(chain.name, name, work.epoch):
        if chain.keyed:
            begun = _operated(program, work, state, received, sieves.get(chain.name))
        elif work.tapped is not None:
            begun = _Begun(PartitionState(work.watermark, None), work.tapped, work.tapped.num_rows)
        else:
            begun = _read(chain, work)
    gone, watermark = chain.following(work.without), begun.state.watermark
    exits = _exits(program, chain, work, gone)
    counted = chain.sinks if work.readers is None else ()
    counted = tuple(sink for sink in counted if sink.name not in gone)
    ends = {edge.step for edge, _ in exits} | {sink.inputs[0] for sink in counted}
    taps = _taps(chain, work, gone)
    tables = _stateless(chain, begun.table, ends | set(taps.values()), sieves)
    if quiet is not None and work.readers is None and _are_quiet(chain, work, tables):
        quiet.add((chain.index, work.without))
    blocks, sums = _exchanged(program, work, watermark, tables, exits)
    sinks = {
        sink.name: _guarded(sink, partial(_sunk, chain, work, tables[sink.inputs[0]], sums))
        for sink in counted
        if tables[sink.inputs[0]].num_rows
    }
    for output, rows in begun.late.items():
        sinks[output] = _sunk(chain, work, rows, sums)
    for sieve in sieves.values() if work.readers is None else ():
        if sieve.letters and sieve.step not in chain.copies:
            sunk = _letters(chain, work, pa.concat_tables(sieve.letters), sums)
            output = sieve.step + dead_letter_sieve.ENDING
            sinks[output] = replace(sunk, is_there=sieve.known is not None)
    if begun.letters is not None and not chain.reads and work.readers is None:
        sunk = _letters(chain, work, begun.letters, sums)
        sinks[chain.name + dead_letter_sieve.ENDING] = replace(sunk, is_there=begun.is_known)
    tapped = {
        name: _tapped(chain, _named(program, work, step), tables[step], watermark, sums)
        for name, step in taps.items()
    }
    digest = frames.combined_digest(sums)
    made = {chain.name: begun.choice, **{name: sieve.choice for name, sieve in sieves.items()}}
    choices = {name: choice for name, choice in made.items() if choice != LeftOutRows()}
    late = begun.late_rows
    return PartitionOutcome(
        begun.state, blocks, sinks, begun.rows, digest, late, tapped, choices, begun.read
    )


def _sieves(
    program: Program, chain: Chain, work: PartitionWork, watchdog: Watchdog
) -> dict[str, Sieve]:
    """For each step with a user's function what runs it and finds rows for which it raises."""
    steps = {step.name: step for step in (chain.root, *chain.steps)}
    operator, sieves = chain.root.function, {}
    for name, step in steps.items():
        if step is not chain.root:
            event_time, function = steps[step.inputs[0]].event_time, step.function
        elif isinstance(operator, KeyedStateful):
            event_time, function = operator.event_time, operator.operator.handle
        else:
            continue
        sieves[name] = Sieve(
            name,
            program.partition_names[work.partition],
            work.epoch,
            (event_time, *chain.root.keys),
            work.tolerance if step.dead_letters else dead_letter_sieve.STRICT,
            _share(chain, work)[0] if work.spans is None and _is_first(chain, step) else None,
            function=function,
            watchdog=watchdog,
            known=work.choices.get(name) if step.dead_letters else None,
        )
    return sieves


def _read(chain: Chain, work: PartitionWork) -> _Begun:
    """What a source chain's partition reads."""
    source, state = chain.root.function, PartitionState(work.watermark, None)
    declared = partial(_declared, chain.root)
    if work.spans is None:
        table = _guarded(chain.root, lambda: declared(source.read(*_share(chain, work))))
        return _Begun(state, table, table.num_rows)
    now = time.time()
    spans = source_reading.share(work.spans, work.partition - chain.first, chain.parallelism)
    known = work.choices.get(chain.name) if chain.root.dead_letters else None
    left = frozenset(intervals.numbers(known.left)) if known is not None else frozenset()
    found = _guarded(chain.root, lambda: source_reading.read(source, spans, declared, now, left))
    begun = _Begun(state, found.rows, found.rows.num_rows, read=found.read)
    if found.rejects is None:
        return begun
    named = (chain.name, work.epoch, found.rejects)
    if known is not None and found.places is not None:
        letters = dead_letter_sieve.letters_again(*named, found.places, left)
    else:
        tolerance = work.tolerance if chain.root.dead_letters else None
        letters = dead_letter_sieve.letters_of(*named, begun.rows, tolerance)
    choice = LeftOutRows(intervals.of(found.places or ()))
    is_known = known is not None and found.places is not None
    return replace(begun, letters=letters, choice=choice, is_known=is_known)


def _operated(
    program: Program,
    work: PartitionWork,
    state: PartitionState,
    received: Sequence[Frame],
    sieve: Sieve | None,
) -> _Begun:
    """What a keyed chain's operator makes of its input."""
    chain = program.owner[work.partition]
    inputs, watermark = _gather(program, work, received)
    rows = sum(table.num_rows for table in inputs)
    in_time = InTime(inputs)
    if chain.root.late:
        split = (chain.root, inputs, state.watermark, work.epoch)
        in_time = _guarded(chain.root, lambda: late_outputs.separate(*split))
    after, table = _process(chain, state, in_time.inputs, watermark, sieve)
    after = in_time.counted(after)
    late_rows = after.late_rows - state.operator.late_rows
    return _Begun(PartitionState(watermark, after), table, rows, in_time.late, late_rows)


def _is_first(chain: Chain, step: Step) -> bool:
    """Whether a step gets rows straight from a source."""
    return not (chain.keyed or chain.relay) and step.inputs[:1] == (chain.name,)


def _taps(chain: Chain, work: PartitionWork, gone: Set[str]) -> dict[str, str]:
    """By its name the step whose rows each relay gets, or will once it is a chain."""
    if work.readers is not None:
        return {}
    taps = dict(chain.taps)
    if chain.keyed or chain.relay:
        inputs = {step.name: step.inputs[0] for step in chain.steps}
        taps |= {branch_name(step): inputs[step] for step in sorted(work.without)}
    return {name: step for name, step in taps.items() if step not in gone}


def _named(program: Program, work: PartitionWork, step: str) -> PartitionWork:
    """The work, without an attempt where a repeat gives the same rows of a step, whatever others of
    the chain leave out: a relay does not know which attempt was the last."""
    certain = work.ordered and work.partition not in program.uncertain
    return replace(work, attempt="") if certain and step not in program.lenient_steps else work


def _tapped(
    chain: Chain, work: PartitionWork, table: pa.Table, watermark: int, sums: list[bytes]
) -> Sunk:
    """What a relay reads of an epoch, without rows too: its watermark is with them."""
    sunk = _sunk(chain, work, table, sums)
    noted = table.replace_schema_metadata({WATERMARK: str(watermark)})
    return replace(sunk, table=noted)


def _process(
    chain: Chain,
    state: PartitionState,
    inputs: Sequence[pa.Table],
    watermark: int,
    sieve: Sieve | None,
) -> tuple[Any, pa.Table]:
    if sieve is not None:
        sieve.rows = sum(table.num_rows for table in inputs)
    call = (state.operator, inputs, state.watermark, watermark, *([] if sieve is None else [sieve]))
    operator_state, table = _guarded(chain.root, lambda: chain.root.function.process(*call))
    return operator_state, table


def _gather(
    program: Program, work: PartitionWork, received: Sequence[Frame]
) -> tuple[list[pa.Table], int]:
    """Input tables by slot, in the fixed order (edge, producer) or as the frames have come, and
    the least watermark."""
    found, watermark = _arrived(program, work, received)
    chain = program.owner[work.partition]
    slots: list[list[pa.RecordBatch]] = [[] for _ in chain.root.inputs]
    schemas: dict[int, pa.Schema] = {}
    edges = program.feeds[chain.index]
    for key in edges if work.ordered else found:
        edge, frame = edges[key], found[key]
        schemas[edge.slot] = edge.schema
        if frame.rows:
            slots[edge.slot].append(frames.batch_of(frame, edge.schema))
    return [pa.Table.from_batches(slot, schemas[i]) for i, slot in enumerate(slots)], watermark


def _arrived(
    program: Program, work: PartitionWork, received: Sequence[Frame]
) -> tuple[dict[tuple[int, int], Frame], int]:
    """The frame of each edge and producer, in the order in which they have come, and their least
    watermark. Raises Incomplete where one is absent."""
    edges = program.feeds[program.owner[work.partition].index]
    found = {key: frame for key, frame in _unique(received).items() if key in edges}
    for _, producer in edges.keys() - found.keys():
        name = program.partition_names[producer]
        lacks = (producer, work.epoch)
        raise Incomplete(f"no frame of {name} in epoch {work.epoch}", lacks)
    return found, min(frame.watermark for frame in found.values())


def _unique(received: Sequence[Frame]) -> dict[tuple[int, int], Frame]:
    """Frames by edge and producer; the same frame twice counts once, another one is an error."""
    found: dict[tuple[int, int], Frame] = {}
    for frame in received:
        other = found.setdefault((frame.edge, frame.producer), frame)
        if other.digest != frame.digest or other.rows != frame.rows:
            raise Incomplete(f"two different frames of producer {frame.producer}")
    return found


def _share(chain: Chain, work: PartitionWork) -> tuple[int, int]:
    """What a source partition reads: its share of the epoch's stretch of offsets."""
    index, share = work.partition - chain.first, work.end - work.begin
    begin = work.begin + share * index // chain.parallelism
    return begin, work.begin + share * (index + 1) // chain.parallelism


def _stateless(
    chain: Chain, table: pa.Table, ends: Set[str], sieves: Mapping[str, Sieve]
) -> dict[str, pa.Table]:
    """The tables of the steps that lead to `ends`, and of the root."""
    needed = set(ends)
    for step in reversed(chain.steps):
        if step.name in needed:
            needed.update(step.inputs)
    tables = {chain.name: table}
    for step in chain.steps:
        if step.name in needed:
            sieve = sieves[step.name]
            with print_forwarding.at(step.name, sieve.partition, sieve.epoch):
                tables[step.name] = _apply(step, tables[step.inputs[0]], sieve)
    return tables


def _apply(step: Step, table: pa.Table, sieve: Sieve) -> pa.Table:
    if step.kind == "filter":
        return sieve.run(table, lambda part: _filtered(step, part))
    return sieve.run(table, lambda part: _declared(step, step.function(part)))


def _filtered(step: Step, table: pa.Table) -> pa.Table:
    """The rows that a filter keeps. Raises StepError where what it has returned is no truth value
    for each row."""
    mask = step.function(table)
    if isinstance(mask, pc.Expression):
        return table.filter(mask)
    kind = getattr(mask, "type", None)
    if isinstance(mask, np.ndarray) and mask.ndim == 1:
        kind = pa.from_numpy_dtype(mask.dtype)
    is_array = isinstance(mask, pa.Array | pa.ChunkedArray | np.ndarray)
    if is_array and kind == pa.bool_() and len(mask) == table.num_rows:
        return table.filter(mask)
    got = type(mask).__name__
    if is_array:
        got += f" of {len(mask)} values of type {kind}"
    count = f"{table.num_rows} " if table.num_rows else ""
    raise _returned(
        step,
        f"{got} where {count}truth values were expected, one for each row",
        "return a pyarrow array of type bool, as pyarrow.compute makes of columns",
    )


def _returned(step: Step, what: str, remedy: str) -> StepError:
    """What is wrong with what a step's function has returned."""
    function = code_locations.defined_at(getattr(step.function, "read", step.function))
    said = f"returned {what}, by {function}" if function else f"returned {what}"
    return StepError(where=f"step {step.name}", what=said, remedy=remedy)


def _declared(step: Step, result: Any) -> pa.Table:
    """What a map has returned, in the layout that was declared. Raises StepError for other columns,
    and an error of Arrow's for a null where none may be, which counts as the function's."""
    assert step.schema is not None
    if isinstance(result, pa.Table):
        if result.schema.equals(step.schema):
            fields = enumerate(step.schema)
            if all(field.nullable or not result.column(i).null_count for i, field in fields):
                return result
            return column_types.converted(result, step.schema)
        if column_types.differ_in_layout(result.schema, step.schema):
            return column_types.converted(result, step.schema)
    remedy = "return a pyarrow.Table with the declared schema"
    if isinstance(result, pa.Table):
        got, why = result.schema, f" ({column_types.difference(result.schema, step.schema)})"
    else:
        got, why = type(result).__name__, ""
        remedy += CONVERSIONS.get(type(result).__module__.partition(".")[0], "")
    raise _returned(
        step, f"{_one_line(got)} where {_one_line(step.schema)} was declared{why}", remedy
    )


def _guarded(step: Step, work: Callable[[], Any]) -> Any:
    """Run a source or operator: whatever it raises becomes a StepError that names the step."""
    try:
        result, error = dead_letter_sieve.attempt(work)
    except ColumnError as error_of_column:
        raise error_of_column.at(step.name) from error_of_column
    if error is not None:
        function = code_locations.raised_at(error)
        what = dead_letter_sieve.raised(error) + (f", in {function}" if function else "")
        raise StepError(
            where=f"step {step.name}", what=what, remedy=dead_letter_sieve.MEND
        ) from error
    return result


def _exits(
    program: Program, chain: Chain, work: PartitionWork, gone: Set[str]
) -> list[tuple[Edge, list[int]]]:
    """The edges that frames are made for, with the partitions that get them."""
    edges = (edge for edge in program.outputs[chain.index] if edge.step not in gone)
    exits = [(edge, _targets(program, edge, work)) for edge in edges]
    return [(edge, targets) for edge, targets in exits if targets]


def _targets(program: Program, edge: Edge, work: PartitionWork) -> list[int]:
    """The partitions that get frames of an edge."""
    consumers = program.chains[edge.consumer].partitions
    return [number for number in consumers if work.readers is None or number in work.readers]


def _reads_nothing(chain: Chain, work: PartitionWork) -> bool:
    """Whether a chain without an operator has no input in an epoch."""
    if work.tapped is not None:
        return bool(work.tapped.num_rows == 0)
    if work.spans is None:
        begin, end = _share(chain, work)
        return begin >= end
    index = work.partition - chain.first
    spans = source_reading.share(work.spans, index, chain.parallelism)
    return all(begin >= end for _, begin, end, _ in spans)


def _are_quiet(chain: Chain, work: PartitionWork, tables: Mapping[str, pa.Table]) -> bool:
    """Whether all steps have given no rows for none, and will do so again."""
    if any(table.num_rows for table in tables.values()):
        return False
    is_certain = all(step.deterministic for step in (chain.root, *chain.steps))
    return is_certain and (chain.keyed or _reads_nothing(chain, work))


def _exchanged(
    program: Program,
    work: PartitionWork,
    watermark: int,
    tables: Mapping[str, pa.Table],
    exits: Sequence[tuple[Edge, Sequence[int]]],
) -> tuple[list[tuple[int, bytes]], list[bytes]]:
    """Frames for the targets of each edge, and the digests of their rows. Edges that are alike have
    their rows reduced, split and encoded once."""
    chain = program.owner[work.partition]
    packed: dict[Hashable, dict[int, Packed]] = {}
    blocks: list[tuple[int, bytes]] = []
    sums: list[bytes] = []
    steps = {step.name: step for step in (chain.root, *chain.steps)}
    for edge, targets in exits:
        first = program.chains[edge.consumer].first
        places = tuple(target - first for target in targets)
        alike = program.alike[edge.index], places
        if alike not in packed:
            pack = partial(_packed, program, edge, tables[edge.step], places)
            packed[alike] = _guarded(steps[edge.step], pack)
        rows = [packed[alike].get(place, frames.NOTHING) for place in places]
        blocks += _framed(work, watermark, edge, targets, rows)
        sums += (part.digest for part in rows)
    return blocks, sums


def _framed(
    work: PartitionWork,
    watermark: int,
    edge: Edge,
    targets: Sequence[int],
    rows: Sequence[Packed],
) -> Iterator[tuple[int, bytes]]:
    """The frame of an edge for each of some targets."""
    label = Label(edge.index, work.partition, 0, work.plan_epoch, work.epoch, watermark)
    made = frames.encode_each(label, zip(targets, rows, strict=True))
    return zip(targets, made, strict=True)


def _packed(
    program: Program, edge: Edge, table: pa.Table, places: Sequence[int]
) -> dict[int, Packed]:
    """What goes over an edge to each of some of its consumer's partitions, by their places in it;
    only to those that get rows."""
    consumer = program.chains[edge.consumer]
    if edge.combine:
        table = _guarded(consumer.root, lambda: consumer.root.function.combine(table))
    batch = arrow_columns.batch(table)
    parts = row_hash.split_batch(batch, list(edge.keys), consumer.parallelism, places)
    return {place: frames.pack(rows) for place, rows in parts.items()}


def _letters(chain: Chain, work: PartitionWork, letters: pa.Table, sums: list[bytes]) -> Sunk:
    """Output of dead letters; a repeat may word the same error in another way."""
    added = [column.name for column in dead_letter_sieve.COLUMNS]
    return _sunk(chain, work, letters, sums, added)


def _sunk(
    chain: Chain,
    work: PartitionWork,
    table: pa.Table,
    sums: list[bytes],
    without: Sequence[str] = (),
) -> Sunk:
    sums.append(frames.digest(table.drop_columns(without)))
    file = f"{work.partition - chain.first}-{work.epoch:09d}{work.attempt}.parquet"
    return Sunk(table, file, sums[-1].hex())


def _one_line(value: object) -> str:
    return " ".join(str(value).split())[:300]

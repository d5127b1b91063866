"""The in-process driver: a pipeline's epochs one after the other, each on all its partitions.

    cut      the input of an epoch, with `epoch_cutter`, as the driver on Spark cuts it
    run      each partition in topological order with `partition.run`, as hosts do; its frames go
             to the partitions that they name
    repeat   the same once more, as after a failure: by the program unpickled anew, from the state
             as a checkpoint has it; a repeat that differs ends the run
    write    what sinks get, as Parquet, from which the outputs are read

So what depends on hashing, on the cut of epochs, on pickling or on what a function keeps for
itself shows here. There are no executors, no failures and no clock.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle.model.errors import RunError, StepError, refuse
from rekindle.model.settings import RuntimeSettings
from rekindle.model.topology import PARALLELISM_MAX
from rekindle_spark.checkpoint import state_files
from rekindle_spark.driver import epoch_cutter
from rekindle_spark.driver.epoch_cutter import Cut, EpochCutter
from rekindle_spark.executor import frames, partition
from rekindle_spark.executor.partition import PartitionOutcome, PartitionState, PartitionWork
from rekindle_spark.output.sink_files import SinkFiles
from rekindle_spark.pipeline import late_outputs, program, program_pickle, unbounded_source
from rekindle_spark.pipeline.program import Chain, Program
from rekindle_spark.pipeline.steps import LATE_COLUMNS, Pipeline, Source, Step
from rekindle_spark.testing.table_source import TableSource, table_of
from rekindle_spark.user_code import argument_checks, dead_letter_sieve
from rekindle_spark.user_code.dead_letter_sieve import Tolerance
from rekindle_spark.user_code.watchdog import Watchdog
from rekindle_store.transfers import Moved, unwatched

EPOCHS_MAX = 10_000
# How many rows are taken of a pipeline's own sources, which may have no end.
OWN_ROWS_MAX = 10_000
PLAN_EPOCH = 1

Progress = Callable[[Cut, int], None]


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """What a run gave. `outputs`: the rows of each query, and of each output of dead letters.

    `rows` counts the input of each source; `has_more` says that it was not all there is.
    `late_rows` counts, for each keyed step, the rows that came too late for it.
    """

    outputs: dict[str, pa.Table]
    rows: dict[str, int]
    has_more: bool
    late_rows: dict[str, int]


def run_pipeline(
    pipeline: Pipeline,
    inputs: Mapping[str, Any] | None = None,
    *,
    epochs: int = 3,
    parallelism: int | None = None,
    rows_max: int | None = None,
    repeat: bool = True,
) -> dict[str, pa.Table]:
    """Run a pipeline on tables in this process; return the rows of each query, by its name.

    `inputs` gives for sources, by their names, a table of Arrow, polars or pandas, or a list of
    dicts. Sources without one are read as on a cluster. `epochs` is into how many epochs the input
    is cut, `parallelism` what sources and keyed steps have instead of their own, `rows_max` the
    rows of all sources together, in the order of event time (10,000 where a source is read). With
    `repeat` each epoch runs twice, the second time as after a failure. Rows are in the order of
    epochs, then of partitions. The last epoch closes all windows.

    Raises InputError for wrong arguments, StepError where a step's function raises or returns
    another schema, RunError where a repeat differs.
    """
    found = run(
        pipeline, inputs, epochs=epochs, parallelism=parallelism, rows_max=rows_max, repeat=repeat
    )
    return found.outputs


def run(
    pipeline: Pipeline,
    inputs: Mapping[str, Any] | None = None,
    *,
    epochs: int = 3,
    parallelism: int | None = None,
    rows_max: int | None = None,
    repeat: bool = True,
    settings: RuntimeSettings | None = None,
    progress: Progress | None = None,
    watchdog: Watchdog | None = None,
) -> PipelineResult:
    """Do as `run_pipeline` does; return also what was read, and what came too late.

    `settings` say how dead letters are found; `progress` is called before each partition, with
    the cut of its epoch and its number; `watchdog` notes each call of a function.
    """
    argument_checks.check_whole("epochs", epochs, EPOCHS_MAX)
    if rows_max is not None:
        argument_checks.check_whole("rows_max", rows_max, 2**53)
    built = program.build(_prepared(pipeline, inputs or {}, parallelism))
    shipped = program_pickle.pack(built)
    sources = _sources(built)
    whole = _whole(sources, rows_max)
    runtime = settings or RuntimeSettings()
    tolerance = Tolerance(
        runtime.dead_letter_tries, runtime.dead_letters_max, runtime.dead_letters_percent_max
    )
    driver = _Driver(
        shipped, program_pickle.unpack(shipped), tolerance, repeat, watchdog or Watchdog()
    )
    for cut in _cuts(sources, whole.rows, epochs):
        try:
            driver.run_epoch(cut, progress or (lambda *_: None))
        except StepError as error:
            # Nothing is committed here, and nothing has to be started again.
            remedy = error.remedy.replace(dead_letter_sieve.MEND, "mend the step's function")
            raise StepError(where=error.where, what=error.what, remedy=remedy) from error.__cause__
    return PipelineResult(
        driver.read_outputs(),
        {name: end for name, (_, end) in whole.offsets.items()},
        _has_more(sources, whole),
        driver.late_rows(),
    )


def _prepared(pipeline: Pipeline, inputs: Mapping[str, Any], parallelism: int | None) -> Pipeline:
    """The same pipeline with tables in the place of sources, and with another parallelism."""
    argument_checks.check_kind(
        "pipeline", pipeline, Pipeline, "give a rekindle_spark.pipeline.Pipeline"
    )
    argument_checks.check_kind(
        "inputs", inputs, Mapping, 'give tables by source, as {"rows": table}'
    )
    if parallelism is not None:
        argument_checks.check_whole("parallelism", parallelism, PARALLELISM_MAX)
    sources = [step.name for step in pipeline.steps.values() if step.kind == "source"]
    for name in inputs:
        if name not in sources:
            remedy = f"name one of: {', '.join(sources)}"
            refuse("inputs", f"there is no source {argument_checks.shown(name)}", remedy)
    prepared = Pipeline(pipeline.name)
    for step in pipeline.steps.values():
        if step.name in inputs:
            step = _with_table(step, inputs[step.name])
        if parallelism is not None and (step.kind == "source" or step.keys):
            step = replace(step, parallelism=parallelism)
        prepared.steps[step.name] = step
    return prepared


def _with_table(step: Step, rows: Any) -> Step:
    table = table_of(f"inputs: {step.name}", rows, step.schema)
    source = TableSource(table, step.event_time)
    source.check(step.name)
    return replace(step, function=source, dead_letters=False)


def _sources(built: Program) -> dict[str, Source]:
    sources = {chain.name: chain.root.function for chain in built.chains if not chain.keyed}
    for name, source in sources.items():
        if unbounded_source.is_unbounded(source):
            what = f"lacks rows for the source {name!r}, whose rows nobody knows beforehand"
            refuse("inputs", what, f'give it some, as {{"{name}": table}}')
    return sources


def _whole(sources: Mapping[str, Source], rows_max: int | None) -> Cut:
    """All input of the run, as if it were one epoch: the rows of an event time stay together."""
    if rows_max is None:
        tables = [source for source in sources.values() if isinstance(source, TableSource)]
        given = sum(table.rows for table in tables)
        rows_max = given if len(tables) == len(sources) else max(given, OWN_ROWS_MAX)
    beginning = epoch_cutter.beginning(sources, 0.0, 1.0)
    return EpochCutter(sources, beginning, max(1, rows_max)).cut(2.0**62, 1.0)


def _has_more(sources: Mapping[str, Source], whole: Cut) -> bool:
    ends = {name: end for name, (_, end) in whole.offsets.items()}
    return any(
        source.rows_at(source.event_time_at(ends[name])) > ends[name]
        for name, source in sources.items()
    )


def _cuts(sources: Mapping[str, Source], rows: int, epochs: int) -> Iterator[Cut]:
    """Cut the first `rows` rows into epochs, at a row a second; the last one closes all windows."""
    cutter = EpochCutter(sources, epoch_cutter.beginning(sources, 0.0, 1.0), max(1, rows))
    for number in range(1, epochs + 1):
        yield cutter.cut(float(rows * number // epochs), 1.0, final=number == epochs)


@dataclass(slots=True)
class _Driver:
    """Runs epochs of a program in this process; `state_files` are those behind the newest one."""

    shipped: bytes
    program: Program
    tolerance: Tolerance
    repeat: bool
    watchdog: Watchdog
    states: dict[int, PartitionState] = field(init=False)
    outputs: SinkFiles = field(init=False)

    def __post_init__(self) -> None:
        owners = enumerate(self.program.owner)
        self.states = {number: partition.initial(chain) for number, chain in owners}
        self.outputs = SinkFiles(_MemoryFiles())

    def run_epoch(self, cut: Cut, progress: Progress) -> None:
        """Run one epoch on all partitions, each once more where repeats are wanted."""
        again = program_pickle.unpack(self.shipped) if self.repeat else None
        blocks: dict[int, list[bytes]] = {}
        for number, chain in enumerate(self.program.owner):
            progress(cut, number)
            work = self._work(number, chain, cut)
            received = list(frames.frames(memoryview(b"".join(blocks.pop(number, [])))))
            before = self.states[number]
            outcome = partition.run(self.program, work, before, received, self.watchdog)
            if again is not None and number not in self.program.uncertain:
                restored = _restored(again.owner[number], before, cut.epoch)
                repeated = partition.run(again, work, restored, received, self.watchdog)
                _compare(again, work, outcome, repeated)
            self.states[number] = outcome.state
            for target, block in outcome.blocks:
                blocks.setdefault(target, []).append(block)
            for output, sunk in outcome.sinks.items():
                self.outputs.write(output, sunk.file, sunk.table)

    def read_outputs(self) -> dict[str, pa.Table]:
        """Read what was written, in the order of epochs and partitions."""
        found: dict[str, list[pa.Table]] = {}
        for name, content in self.outputs.unfinished.items():
            table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
            found.setdefault(name.split("/")[1], []).append(table)
        # Parquet has no seconds, and dates in one form only: what was written is what is declared
        return {
            name: pa.concat_tables(
                [schema.empty_table(), *(table.cast(schema) for table in found.get(name, ()))]
            )
            for name, schema in self._schemas()
        }

    def late_rows(self) -> dict[str, int]:
        """Count the rows that came too late, for each keyed step."""
        counts: dict[str, int] = {}
        for number, state in self.states.items():
            chain = self.program.owner[number]
            if chain.keyed:
                counts[chain.name] = counts.get(chain.name, 0) + state.operator.late_rows
        return counts

    def _work(self, number: int, chain: Chain, cut: Cut) -> PartitionWork:
        work = PartitionWork(number, PLAN_EPOCH, cut.epoch, tolerance=self.tolerance)
        if chain.keyed:
            return work
        begin, end = cut.offsets[chain.name]
        return replace(work, begin=begin, end=end, watermark=cut.watermark)

    def _schemas(self) -> Iterator[tuple[str, pa.Schema]]:
        """Each output with its schema."""
        for chain in self.program.chains:
            steps = {step.name: step for step in (chain.root, *chain.steps)}
            yield from ((sink.name, sink.schema) for sink in chain.sinks)
            for slot, output in enumerate(late_outputs.names(chain.root)):
                edge = next(e for e in self.program.inputs[chain.index] if e.slot == slot)
                yield output, pa.schema([*edge.schema, *LATE_COLUMNS])
            for step in steps.values():
                if step.dead_letters:
                    is_root = step is chain.root
                    schema = step.function.input_schema if is_root else steps[step.inputs[0]].schema
                    yield (
                        step.name + dead_letter_sieve.ENDING,
                        pa.schema([*(schema or ()), *dead_letter_sieve.COLUMNS]),
                    )


def _restored(chain: Chain, state: PartitionState, epoch: int) -> PartitionState:
    """A state as another executor would have it, from a checkpoint."""
    if not chain.keyed or epoch == 1:
        return partition.initial(chain)
    files = _MemoryFiles()
    tables = chain.root.function.dump(state.operator)
    files.put({"state": state_files.seal(tables, state.watermark)[0]})
    return state_files.load(files, "state", chain, epoch)


def _compare(
    again: Program, work: PartitionWork, first: PartitionOutcome, second: PartitionOutcome
) -> None:
    """Raise RunError where a repeat gave something else, which names the steps that did."""
    if first.digest == second.digest:
        return
    chain = again.owner[work.partition]
    differing = _differing(again, chain, first, second)
    steps = [step.name for step in (chain.root, *chain.steps) if step.name in differing]
    raise RunError(
        where=f"step {(steps or [chain.name])[0]}, epoch {work.epoch}",
        what="gave another output when it ran again on the same input",
        remedy="take clocks, random numbers, unordered data and what it keeps for itself out of "
        "its function, or declare the step deterministic=False",
    )


def _differing(
    again: Program, chain: Chain, first: PartitionOutcome, second: PartitionOutcome
) -> set[str]:
    """The steps of a chain whose rows differ, of those that sinks and other chains read."""
    sinks = {
        sink.inputs[0]
        for sink in chain.sinks
        if _digest(first, sink.name) != _digest(second, sink.name)
    }
    edges = {edge for edge, *_ in _frame_digests(first) ^ _frame_digests(second)}
    return sinks | {again.edges[edge].step for edge in edges}


def _digest(outcome: PartitionOutcome, output: str) -> str:
    return outcome.sinks[output].digest if output in outcome.sinks else ""


def _frame_digests(outcome: PartitionOutcome) -> set[tuple[int, int, bytes]]:
    """Edge, target and digest of each frame of an outcome."""
    return {
        (frame.edge, frame.target, frame.digest)
        for _, block in outcome.blocks
        for frame in frames.frames(memoryview(block))
    }


class _MemoryFiles:
    """The files of a store in memory (`store_files.Files`), for one process."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    @property
    def place(self) -> str:
        """It has none that another process could find."""
        return "memory"

    def make_folder(self, name: str) -> None:
        """Folders need not be made."""

    def create(self, name: str, data: bytes) -> None:
        """Make a file that must not be there yet."""
        if self.contents.setdefault(name, data) != data:
            raise FileExistsError(name)

    def put(self, files: Mapping[str, bytes], moved: Moved = unwatched) -> None:
        """Make files, in the place of those that are there."""
        self.contents.update(files)
        moved(sum(map(len, files.values())))

    def read(self, name: str, moved: Moved = unwatched) -> bytes:
        """Return a file's content."""
        if name not in self.contents:
            raise FileNotFoundError(name)
        moved(len(self.contents[name]))
        return self.contents[name]

    def size(self, name: str) -> int:
        """Return a file's bytes."""
        return len(self.read(name))

    def stream_names(self, folder: str) -> Iterator[str]:
        """List the files below a folder, one after the other."""
        yield from self.names(folder)

    def names(self, folder: str) -> list[str]:
        """List the files below a folder."""
        names: Sequence[str] = list(self.contents)
        return [name[len(folder) + 1 :] for name in names if name.startswith(f"{folder}/")]

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, as far as they are there."""
        for name in names:
            self.contents.pop(name, None)

    def remove_leftovers(self, seconds: float) -> None:
        """There are none."""

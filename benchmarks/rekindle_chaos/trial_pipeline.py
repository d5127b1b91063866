"""The queries of a trial as a pipeline: the file that `rekindle run` is given.

The trial's folder is in the environment. In its folder `traps` lies what is to go wrong inside of a
user's function.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rekindle_chaos import step_schemas, trial_inputs, trial_topics, trials
from rekindle_chaos.step_schemas import Shape
from rekindle_chaos.trials import ChaosTrial, Step
from rekindle_spark.connectors.decoding import Json
from rekindle_spark.connectors.kafka import Kafka
from rekindle_spark.connectors.kafka_sink import KafkaSink
from rekindle_spark.operators import Aggregate, StatefulOperator
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline, Stream
from rekindle_spark.pipeline.unbounded_source import SourceTerms

DIRECTORY = "REKINDLE_CHAOS_DIRECTORY"
RAISE, LOOKUP = "raise", "lookup-away"
# Long enough for any trial: a partition with nothing to read holds the watermark.
IDLE_SECONDS = 86_400.0


class Steps(StatefulOperator):
    """By how much a key's number is above the one before it, and how many times it was."""

    value_schema = pa.schema([("last", pa.int64()), ("number", pa.int64())])

    def __init__(self, column: str, time: str) -> None:
        self.column, self.time = column, time

    def handle(self, key: tuple[Any, ...], rows: list[dict[str, Any]], value: Any) -> Iterable[Any]:
        last, number = value.get() if value.exists() else (None, 0)
        for row in rows:
            found = row[self.column]
            if found is None:
                continue
            if last is not None and found > last:
                number += 1
                yield (*key, row[self.time], found - last, number)
            last = found
        value.update((last, number))


def pipeline() -> Pipeline:
    """What `rekindle run` runs."""
    directory = Path(os.environ[DIRECTORY])
    return build(trials.load(directory / "trial.json"), directory)


def build(trial: ChaosTrial, directory: Path) -> Pipeline:
    """The pipeline of a trial whose input lies in a folder."""
    built = Pipeline(f"chaos-{trial.seed}")
    found = step_schemas.of_all(trial.steps)
    streams: dict[str, Stream] = {}
    for step in trial.steps:
        if isinstance(step, trials.Sink):
            to = None
            if step.topic:
                to = KafkaSink(_servers(directory), step.name, key=step.key)
            streams[step.input].sink(step.name, priority=step.priority, to=to)
        else:
            streams[step.name] = _stream(built, streams, step, found[step.name], directory)
    return built


def _stream(
    built: Pipeline, streams: dict[str, Stream], step: Step, shape: Shape, directory: Path
) -> Stream:
    schema = trial_topics.schema_of(shape)
    match step:
        case trials.TrialSource():
            path = trial_inputs.path(directory / "input", step.name)
            rows = _topic(step, schema, directory) if step.topic else Replay(str(path), "at")
            return built.source(step.name, rows, parallelism=step.parallelism)
        case trials.Filter():
            return streams[step.input].filter(step.name, _above(step.column, step.above))
        case trials.ScaleStep():
            scaled = _looked_up if step.letters else _scaled
            return streams[step.input].map(
                step.name,
                scaled(step, directory / "traps"),
                schema=schema,
                dead_letters=step.letters,
            )
        case trials.Pick():
            picked = _picked(step, schema)
            return streams[step.input].map(step.name, picked, schema=schema, event_time=shape.time)
        case trials.WindowStep():
            return streams[step.input].window(
                step.name,
                keys=step.keys,
                size_seconds=step.size_seconds,
                slide_seconds=step.slide_seconds,
                aggregates={name: Aggregate(*given) for name, given in step.aggregates.items()},
                parallelism=step.parallelism,
            )
        case trials.TopStep():
            return streams[step.input].top(
                step.name,
                by=step.by,
                count=step.count,
                keys=step.keys,
                parallelism=step.parallelism,
            )
        case trials.Rises():
            return streams[step.input].stateful(
                step.name,
                Steps(step.column, shape.time),
                keys=step.keys,
                schema=schema,
                event_time=shape.time,
                parallelism=step.parallelism,
            )
        case trials.Join():
            return streams[step.left].join(
                step.name,
                streams[step.right],
                keys=step.keys,
                within_seconds=step.within_seconds,
                parallelism=step.parallelism,
            )
        case trials.Union():
            return built.union(step.name, *(streams[name] for name in step.inputs))
    raise AssertionError(step)


def _topic(step: trials.TrialSource, schema: pa.Schema, directory: Path) -> Kafka:
    return Kafka(
        _servers(directory),
        topics=[step.name],
        value=Json(schema, units={"at": "us"}),
        event_time="at",
        columns=(),
        terms=SourceTerms(idle_seconds=IDLE_SECONDS),
    )


def _servers(directory: Path) -> str:
    return (directory / trial_topics.SERVERS).read_text()


def _above(column: str, above: int) -> Callable[[pa.Table], Any]:
    return lambda table: pc.greater(table[column], above)


def _scaled(step: trials.ScaleStep, traps: Path) -> Callable[[pa.Table], pa.Table]:
    trap = traps / RAISE

    def scaled(table: pa.Table) -> pa.Table:
        if trap.exists():
            trap.unlink(missing_ok=True)
            raise ValueError("a trap was set for once")
        return _with_column(step, table)

    return scaled


def _looked_up(step: trials.ScaleStep, traps: Path) -> Callable[[pa.Table], pa.Table]:
    """As if what some of its rows need were elsewhere, and away while the trap is there."""
    trap, column, every = traps / LOOKUP, step.column, trials.LOOKED_UP_EVERY

    def looked_up(table: pa.Table) -> pa.Table:
        whole = pc.multiply(pc.divide(table[column], every), every)
        if pc.any(pc.equal(table[column], whole)).as_py() and trap.exists():
            raise LookupError("what is looked up is away")
        return _with_column(step, table)

    return looked_up


def _with_column(step: trials.ScaleStep, table: pa.Table) -> pa.Table:
    column = pc.add(pc.multiply(table[step.column], step.factor), step.plus)
    return table.append_column(step.into, column)


def _picked(step: trials.Pick, schema: pa.Schema) -> Callable[[pa.Table], pa.Table]:
    return lambda table: pa.Table.from_arrays([table[name] for name in step.columns], schema=schema)

"""A pipeline on no rows and on the first rows of its sources: which steps fail, each by itself.

The pipeline runs in this process, with the code of executors (`testing`). A step that fails is a
finding; then it is taken out of the way, so that it gives no rows, and the rest runs again. Users'
functions are called here, as in the first epochs of a run.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from rekindle.model.errors import InputError, RekindleError, RunError, SourceAwayError
from rekindle.model.settings import RuntimeSettings
from rekindle_spark import testing
from rekindle_spark.checks.check_findings import CheckFinding, of_error, warning
from rekindle_spark.operators import KeyedStateful, StatefulOperator
from rekindle_spark.pipeline import unbounded_source
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline, Source, Step
from rekindle_spark.pipeline.unbounded_source import RowsAndRejects
from rekindle_spark.user_code import dead_letter_sieve
from rekindle_spark.user_code.watchdog import Watchdog

ROWS = 100


def first_rows(
    pipeline: Pipeline,
    settings: RuntimeSettings,
    progress: Callable[[], None] = lambda: None,
    watchdog: Watchdog | None = None,
) -> list[CheckFinding]:
    """Run a pipeline on nothing, then on its first rows; each step that fails is a finding.

    `progress` is called before each partition, and `watchdog` notes each call of a function.
    """
    watchdog = watchdog or Watchdog()
    found: list[CheckFinding] = []
    inputs = {}
    for step in pipeline.steps.values():
        if step.kind == "source":
            watchdog.begin(0, 0, step.name)
            watchdog.calling(step.name)
            inputs[step.name], findings = _beginning(step)
            found += findings
    watchdog.end()
    without_rows = {name: table.slice(0, 0) for name, table in inputs.items()}
    current = pipeline
    for tables in (without_rows, inputs):
        current, findings = _failures(current, tables, settings, progress, watchdog)
        found += findings
    return list(dict.fromkeys(found))


def _beginning(step: Step) -> tuple[pa.Table, list[CheckFinding]]:
    """The first rows of a source, none where it cannot be read or gives something else."""
    source: Source = step.function
    none = source.schema.empty_table()
    # those of a source that is elsewhere are looked at only where it offers that
    is_unbounded = unbounded_source.is_unbounded(source)
    if is_unbounded and not hasattr(source, "first"):
        return none, []
    read: Callable[[], Any] = lambda: source.read(0, ROWS)  # noqa: E731
    if isinstance(source, Replay) or is_unbounded:
        read = lambda: source.first(ROWS)  # type: ignore[attr-defined]  # noqa: E731
    try:
        result, error = dead_letter_sieve.attempt(read)
    except SourceAwayError as away:
        where = f"step {step.name}: {away.where}"
        return none, [warning(where, away.what, away.remedy)]
    except RekindleError as raised:
        return none, [of_error(raised)]
    where = f"step {step.name}"
    if error is not None:
        what = f"its source cannot be read: {dead_letter_sieve.raised(error)}"
        return none, [of_error(InputError(where=where, what=what, remedy="mend the source"))]
    findings = []
    if isinstance(result, RowsAndRejects):
        findings = _rejected(step, result.rejects)
        result = result.rows
    if not isinstance(result, pa.Table) or not result.schema.equals(source.schema):
        got = result.schema if isinstance(result, pa.Table) else type(result).__name__
        what = f"its source gave {' '.join(str(got).split())[:200]} instead of its schema"
        return none, [of_error(InputError(where=where, what=what, remedy="mend the source"))]
    return result, findings


def _rejected(step: Step, rejects: pa.Table) -> list[CheckFinding]:
    """What a source could not decode is left out where there are dead letters; else it ends it."""
    if not rejects.num_rows:
        return []
    *columns, why = (column[0].as_py() for column in rejects.columns)
    named = zip(rejects.column_names, columns, strict=False)
    shown = ", ".join(f"{name}={str(value)[:80]}" for name, value in named if value is not None)
    where = f"step {step.name}: its source"
    what = f"cannot decode {rejects.num_rows} of its first rows, first {shown}: {why}"
    if step.dead_letters:
        return [warning(where, what, "see that these are meant to be left out")]
    remedy = "mend what writes them, or the schema; or give the source dead_letters=True"
    return [of_error(InputError(where=where, what=what, remedy=remedy))]


def _failures(
    pipeline: Pipeline,
    tables: dict[str, pa.Table],
    settings: RuntimeSettings,
    progress: Callable[[], None],
    watchdog: Watchdog,
) -> tuple[Pipeline, list[CheckFinding]]:
    """The findings of some tables, and the pipeline without the steps that fail on them."""
    found: list[CheckFinding] = []
    for _ in pipeline.steps:
        try:
            result = testing.run(
                pipeline,
                tables,
                epochs=1,
                parallelism=1,
                settings=settings,
                progress=lambda *_: progress(),
                watchdog=watchdog,
            )
        except RunError as error:
            found.append(of_error(error))
            name = _step_named(error, pipeline)
            if name is None:  # what fails is no function: the rest stays unknown
                break
            pipeline = _without(pipeline, name)
        except InputError as error:
            found.append(of_error(error))
            break
        else:
            found += _letters(result.outputs)
            break
    return pipeline, found


def _letters(outputs: dict[str, pa.Table]) -> list[CheckFinding]:
    """Dead letters among the first rows are a sign of a function that is wrong for all."""
    found = []
    for name, table in outputs.items():
        if name.endswith(dead_letter_sieve.ENDING) and table.num_rows:
            error = table[dead_letter_sieve.COLUMNS[2].name][0].as_py()
            found.append(
                warning(
                    f"step {name.removesuffix(dead_letter_sieve.ENDING)}",
                    f"makes dead letters of {table.num_rows} of the first rows ({error})",
                    "see that these rows are meant to be left out",
                )
            )
    return found


def _step_named(error: RunError, pipeline: Pipeline) -> str | None:
    """The step with a function that an error names."""
    kind, _, rest = error.where.partition(" ")
    name = rest.partition(", ")[0]
    step = pipeline.steps.get(name)
    if kind != "step" or step is None or step.kind not in ("map", "filter", "keyed"):
        return None
    is_function = step.kind != "keyed" or isinstance(step.function, KeyedStateful)
    return name if is_function else None


def _without(pipeline: Pipeline, name: str) -> Pipeline:
    """The pipeline with a step that gives no rows, and calls nothing."""
    changed = Pipeline(pipeline.name)
    for step in pipeline.steps.values():
        changed.steps[step.name] = _silent(step) if step.name == name else step
    return changed


def _silent(step: Step) -> Step:
    assert step.schema is not None
    if step.kind == "map":
        return replace(step, function=_NoRows(step.schema), deterministic=True)
    if step.kind == "filter":
        return replace(step, function=_Nothing(), deterministic=True)
    keyed: KeyedStateful = step.function
    operator = _NoOutput()
    operator.value_schema = keyed.operator.value_schema
    silent = KeyedStateful(
        step.name,
        keyed.input_schema,
        keyed.event_time,
        keyed.keys,
        operator,
        keyed.output_schema,
        keyed.output_event_time,
        keyed.arrival_order,
    )
    return replace(step, function=silent, deterministic=True)


@dataclass(frozen=True, slots=True)
class _NoRows:
    """A map that gives no rows."""

    schema: pa.Schema

    def __call__(self, _: pa.Table) -> pa.Table:
        return self.schema.empty_table()


@dataclass(frozen=True, slots=True)
class _Nothing:
    """A filter that keeps no rows."""

    def __call__(self, table: pa.Table) -> pa.Array:
        return pa.array([False] * table.num_rows, pa.bool_())


class _NoOutput(StatefulOperator):
    """A stateful operator that emits nothing."""

    def handle(self, *_: Any) -> tuple[()]:
        """Emit nothing."""
        return ()

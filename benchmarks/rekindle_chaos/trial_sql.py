"""The queries of a trial in SQL for DuckDB, written from what the steps mean.

It shares nothing with the runtime: each step is a table over the tables of its inputs, made of the
sources' files. Event times are int64 microseconds in between, so that windows are plain arithmetic.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from rekindle.verification.batch_check import BatchEngine, literal, quoted
from rekindle_chaos import step_schemas, trial_inputs, trials
from rekindle_chaos.step_schemas import Shape
from rekindle_chaos.trials import ChaosTrial, Step

SECOND = 1_000_000
FUNCTIONS = {
    "sum": "sum({0})::BIGINT",
    "min": "min({0})",
    "max": "max({0})",
    "mean": "sum({0})::DOUBLE / nullif(count({0}), 0)",
}


def letters_of(step: str) -> str:
    """The table of the dead letters of a step, whose columns are those of its input."""
    return f"{step}.dead-letters"


def create(
    engine: BatchEngine, trial: ChaosTrial, directory: Path, lettered: Collection[str] = frozenset()
) -> None:
    """Make a table of each step but sinks, from the sources' files in a folder.

    Of steps that are `lettered` there is a table of dead letters, which they have left out.
    """
    for source in trial.sources:
        path = literal(str(trial_inputs.path(directory, source.name)))
        engine.ask(f"CREATE VIEW {quoted(source.name)} AS FROM read_parquet({path})", "input")
    for name, select in tables(trial.steps, lettered):
        engine.ask(f"CREATE TABLE {quoted(name)} AS {select}", f"step {name}")


def tables(
    steps: tuple[Step, ...], lettered: Collection[str] = frozenset()
) -> Iterator[tuple[str, str]]:
    """Name and SELECT of each step but sources, whose tables are there already, and sinks."""
    found = step_schemas.of_all(steps)
    for step in steps:
        if isinstance(step, trials.TrialSource | trials.Sink):
            continue
        select = _select(step, found)
        if step.name in lettered:
            time = quoted(found[step.name].time)
            left_out = f"SELECT {time} FROM {quoted(letters_of(step.name))}"
            select += f" WHERE {time} NOT IN ({left_out})"
        yield step.name, select


def _select(step: Step, found: Mapping[str, Shape]) -> str:
    match step:
        case trials.Filter():
            return f"SELECT * FROM {quoted(step.input)} WHERE {quoted(step.column)} > {step.above}"
        case trials.ScaleStep():
            value = f"{quoted(step.column)} * ({step.factor}) + ({step.plus})"
            return f"SELECT *, ({value})::BIGINT AS {quoted(step.into)} FROM {quoted(step.input)}"
        case trials.Pick():
            names = ", ".join(f"{quoted(a)} AS {quoted(b)}" for a, b in step.columns.items())
            return f"SELECT {names} FROM {quoted(step.input)}"
        case trials.WindowStep():
            return _window(step, found[step.input])
        case trials.TopStep():
            return _top(step, found[step.input])
        case trials.Rises():
            return _rises(step, found[step.input])
        case trials.Join():
            return _join(step, found[step.left], found[step.right])
        case trials.Union():
            return " UNION ALL ".join(f"SELECT * FROM {quoted(name)}" for name in step.inputs)
    raise AssertionError(step)


def _window(step: trials.WindowStep, shape: Shape) -> str:
    """A row is in each window whose start is a multiple of the slide and which it is not behind."""
    size = step.size_seconds * SECOND
    slide = size if step.slide_seconds is None else step.slide_seconds * SECOND
    time = f"epoch_us({quoted(shape.time)})"
    start = f"({time} - {time} % {slide} - place * {slide})"
    keys = "".join(f"{quoted(key)}, " for key in step.keys)
    results = ", ".join(
        f"{'count(*)' if column is None else FUNCTIONS[function].format(quoted(column))} "
        f"AS {quoted(name)}"
        for name, (function, column) in step.aggregates.items()
    )
    return (
        f"SELECT {keys}make_timestamp({start}) AS window_start, "
        f"make_timestamp({start} + {size}) AS window_end, {results} "
        f"FROM {quoted(step.input)}, (SELECT unnest(range({-(-size // slide)})) AS place) "
        f"WHERE {start} + {size} > {time} GROUP BY {keys}{start}"
    )


def _top(step: trials.TopStep, shape: Shape) -> str:
    groups = ", ".join(quoted(name) for name in (shape.time, *step.keys))
    taken = {shape.time, step.by, *step.keys}
    ties = [f"{quoted(c)} ASC NULLS LAST" for c in shape.columns if c not in taken]
    order = ", ".join([f"{quoted(step.by)} DESC NULLS LAST", *ties])
    rank = f"row_number() OVER (PARTITION BY {groups} ORDER BY {order})"
    return f"SELECT *, {rank} AS rank FROM {quoted(step.input)} QUALIFY rank <= {step.count}"


def _rises(step: trials.Rises, shape: Shape) -> str:
    names = ", ".join(quoted(name) for name in (*step.keys, shape.time))
    keys = ", ".join(quoted(key) for key in step.keys)
    partition = f"PARTITION BY {keys} " if keys else ""
    over = f"OVER ({partition}ORDER BY {quoted(shape.time)})"
    column = quoted(step.column)
    steps = (
        f"SELECT {names}, {column} - lag({column}) {over} AS rise "
        f"FROM {quoted(step.input)} WHERE {column} IS NOT NULL"
    )
    return f"SELECT {names}, rise, row_number() {over} AS number FROM ({steps}) WHERE rise > 0"


def _join(step: trials.Join, left: Shape, right: Shape) -> str:
    one, other = f"l.{quoted(left.time)}", f"r.{quoted(right.time)}"
    same = " AND ".join(f"l.{quoted(key)} = r.{quoted(key)}" for key in step.keys)
    columns = [f"l.{quoted(name)}" for name in left.columns]
    columns += [f"r.{quoted(name)}" for name in right.columns if name not in step.keys]
    near = f"abs(epoch_us({one}) - epoch_us({other})) <= {step.within_seconds * SECOND}"
    return (
        f"SELECT {', '.join(columns)}, greatest({one}, {other}) AS event_time "
        f"FROM {quoted(step.left)} l JOIN {quoted(step.right)} r ON {same} AND {near}"
    )

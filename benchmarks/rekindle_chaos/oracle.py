"""Compares what a trial has released with the answers of its queries, row by row.

Which rows a step has left out as dead letters is taken from these, for it is the step's choice:
answers are asked of the others, and each dead letter has to be a row that may be one, once.

Reads what any reader of a store may: output files that commit records name. And what a consumer has
read of topics, whose rows are compared as well: topics and files each have every row once. The
answers are DuckDB's (`trial_sql`). Nothing of the runtime is imported here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from rekindle.verification import batch_check
from rekindle.verification.batch_check import BatchEngine, literal, quoted, scan
from rekindle_chaos import step_schemas, trial_sql
from rekindle_chaos.trials import LOOKED_UP_EVERY, ChaosTrial, ScaleStep
from rekindle_local import stored_records


@dataclass(slots=True)
class Counts:
    """Rows that were expected, bad rows by kind, and a bad row of each query that has some."""

    expected: int = 0
    bad: dict[str, int] = field(default_factory=lambda: dict.fromkeys(batch_check.KINDS, 0))
    samples: list[str] = field(default_factory=list)


def check(
    trial: ChaosTrial,
    directory: Path,
    store: Path,
    topics: Mapping[str, Sequence[tuple[Path, str]]] = MappingProxyType({}),
) -> Counts:
    """Compare all queries of a run that has come to its end; `topics` are files of what is in the
    topics of some, each with its topic partition."""
    counts = Counts()
    files = _files(store)
    with BatchEngine() as engine:
        for step in trial.lettered:
            letters = files.get(trial_sql.letters_of(step.name), ())
            _take_letters(engine, trial, step, letters)
        lettered = {step.name for step in trial.lettered}
        trial_sql.create(engine, trial, directory / "input", lettered)
        for step in trial.lettered:
            name = trial_sql.letters_of(step.name)
            engine.ask(
                f"CREATE VIEW {quoted(f'{name} expected')} AS {_may_be_left(trial, step)}", name
            )
            _compare(engine, name, f"{name} expected", files.get(name, ()), counts)
        for sink in trial.sinks:
            _compare(engine, sink.name, sink.input, files.get(sink.name, ()), counts)
        for name, found in topics.items():
            there = [(scan(str(path)), partition, 0) for path, partition in found]
            table = next(sink.input for sink in trial.sinks if sink.name == name)
            _compare(engine, f"topic {name}", table, there, counts)
    return counts


def _take_letters(
    engine: BatchEngine, trial: ChaosTrial, step: ScaleStep, files: Sequence[tuple[str, str, int]]
) -> None:
    """Make the table of a step's dead letters, by their event times."""
    name = trial_sql.letters_of(step.name)
    time = quoted(step_schemas.of_all(trial.steps)[step.name].time)
    engine.ask(f"CREATE TABLE {quoted(name)} ({time} TIMESTAMP)", name)
    for source, _, _ in files:
        engine.ask(f"INSERT INTO {quoted(name)} SELECT {time} FROM {source}", name)


def _may_be_left(trial: ChaosTrial, step: ScaleStep) -> str:
    """The rows among a step's dead letters that may be there: each of them once."""
    time = quoted(step_schemas.of_all(trial.steps)[step.name].time)
    letters = quoted(trial_sql.letters_of(step.name))
    return (
        f"SELECT step.* FROM {quoted(step.input)} step SEMI JOIN {letters} USING ({time}) "
        f"WHERE step.{quoted(step.column)} % {LOOKED_UP_EVERY} = 0"
    )


def _compare(
    engine: BatchEngine,
    query: str,
    table: str,
    files: Sequence[tuple[str, str, int]],
    counts: Counts,
) -> None:
    engine.ask(f"CREATE OR REPLACE TEMP VIEW expected AS FROM {quoted(table)}", query)
    columns = engine.columns("expected", query)
    names = ", ".join(quoted(name) for name in columns)
    engine.ask(
        f"CREATE OR REPLACE TEMP TABLE output AS SELECT {names}, "
        f"0 AS {quoted(batch_check.EPOCH)}, "
        f"'' AS {quoted(batch_check.PARTITION)} FROM expected LIMIT 0",
        query,
    )
    for source, partition, epoch in files:
        engine.ask(
            f"INSERT INTO output SELECT {names}, {epoch}, {literal(partition)} FROM {source}",
            f"outputs/{query}: epoch {epoch} of {partition}",
        )
    found = batch_check.compare_rows(engine, query, columns, ())
    counts.expected += found.expected
    for kind, number in found.counts.items():
        counts.bad[kind] += number
        if number:
            counts.samples.append(f"{query}: {number} {kind}, as {found.samples[kind]}")


def _files(store: Path) -> dict[str, list[tuple[str, str, int]]]:
    """By query the output that counts, in SQL, as often as it does, with query partition and
    epoch."""
    found: dict[str, list[tuple[str, str, int]]] = {}
    for output in stored_records.outputs(store):
        source = scan(str(store / output.name), output.first_row, output.rows)
        one = (source, output.query_partition, output.epoch)
        found.setdefault(output.query, []).append(one)
    return found

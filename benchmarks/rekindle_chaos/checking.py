"""Compares what a trial has released with the answers of its queries, row by row.

Reads what any reader of a store may: output files that commit records name. The answers are
DuckDB's (`statements`). Nothing of the runtime is imported here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rekindle.verification import rows
from rekindle.verification.engine import Engine, literal, quoted
from rekindle_chaos import statements
from rekindle_chaos.trials import Trial
from rekindle_local import stored

__all__ = ["Counts", "check"]


@dataclass(slots=True)
class Counts:
    """Rows that were expected, bad rows by kind, and a bad row of each query that has some."""

    expected: int = 0
    bad: dict[str, int] = field(default_factory=lambda: dict.fromkeys(rows.KINDS, 0))
    samples: list[str] = field(default_factory=list)


def check(trial: Trial, directory: Path, store: Path) -> Counts:
    """Compare all queries of a run that has come to its end."""
    counts = Counts()
    files = _files(store)
    with Engine() as engine:
        statements.create(engine, trial, directory / "input")
        for sink in trial.sinks:
            _compare(engine, sink.name, sink.input, files.get(sink.name, ()), counts)
    return counts


def _compare(
    engine: Engine,
    query: str,
    table: str,
    files: Sequence[tuple[Path, str, int]],
    counts: Counts,
) -> None:
    engine.ask(f"CREATE OR REPLACE TEMP VIEW expected AS FROM {quoted(table)}", query)
    columns = engine.columns("expected", query)
    names = ", ".join(quoted(name) for name in columns)
    engine.ask(
        f"CREATE OR REPLACE TEMP TABLE output AS SELECT {names}, 0 AS {quoted(rows.EPOCH)}, "
        f"'' AS {quoted(rows.PARTITION)} FROM expected LIMIT 0",
        query,
    )
    for path, partition, epoch in files:
        engine.ask(
            f"INSERT INTO output SELECT {names}, {epoch}, {literal(partition)} "
            f"FROM read_parquet({literal(str(path))}, hive_partitioning = false)",
            f"outputs/{query}/{path.name}",
        )
    found = rows.compare(engine, query, columns, ())
    counts.expected += found.expected
    for kind, number in found.counts.items():
        counts.bad[kind] += number
        if number:
            counts.samples.append(f"{query}: {number} {kind}, as {found.samples[kind]}")


def _files(store: Path) -> dict[str, list[tuple[Path, str, int]]]:
    """By query the files that count, as often as they do, with query partition and epoch."""
    found: dict[str, list[tuple[Path, str, int]]] = {}
    for record in stored.commits(store):
        for partition, epoch, _, name, _ in record["outputs"]:
            query = partition.rpartition("/")[0]
            path = store / "outputs" / query / name
            found.setdefault(query, []).append((path, partition, epoch))
    return found

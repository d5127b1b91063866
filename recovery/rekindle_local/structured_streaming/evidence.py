"""The report's directory of a run of Structured Streaming: the same files, the same figures.

A batch of a query is an epoch of that query alone. It reflects its input from its commit on, as an
epoch does, though windows that it completes are put out by the batch behind it: the counting is in
Spark's favour. There are no plans, no statistics and no bound. What a scenario or benchmark adds
to the driver's events: `kill`, `returned`, `warm`. Called by whoever runs the application.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle import events as run_events
from rekindle import report
from rekindle.errors import RunError
from rekindle_local.demo import evidence
from rekindle_local.flights import arrivals
from rekindle_local.structured_streaming import batches

__all__ = ["Run", "input_record", "write", "write_outputs"]


@dataclass(frozen=True, slots=True)
class Run:
    """What a finished run left: records by wall clock, the store, and what was asked for.

    `files` is what `data.prepare` told; `priorities` names the queries that ran.
    """

    records: Sequence[Mapping[str, Any]]
    store: Path
    failure_at: float
    files: Mapping[str, Any]
    priorities: Mapping[str, float]
    facts: report.RunFacts


def write(directory: Path, run: Run) -> dict[str, Any]:
    """Write all files; `input/` must lie there already. Returns the report.

    Raises `RunError` where a query has put out nothing.
    """
    write_outputs(directory, run)
    events = run_events.relative(run.records, run.failure_at)
    return evidence.conclude(directory, events, run.facts, input_record(run), {}, {})


def write_outputs(directory: Path, run: Run) -> None:
    """Copy every row that counts, with batch and commit time, one file per query."""
    for query in run.priorities:
        _write_output(directory, run, query)


def _write_output(directory: Path, run: Run, query: str) -> None:
    committed = {batch.number: batch for batch in batches.committed(run.store, query, 0)}
    tables = []
    for number, path in batches.output_files(run.store, query):
        table = _plain(pq.read_table(path))
        at = committed[number].committed_at - run.failure_at
        tables.append(evidence.stamped(table, number, at))
    if not tables:
        raise RunError(
            where=f"query {query}",
            what="has put out no row",
            remedy="let the application run for longer",
        )
    path = directory / "outputs" / query / "0.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.concat_tables(tables), path, compression="zstd")


def _plain(table: pa.Table) -> pa.Table:
    """Times without a time zone, as the batch engine gives them; they are UTC."""
    kinds = [
        (field.name, pa.timestamp("us") if pa.types.is_timestamp(field.type) else field.type)
        for field in table.schema
    ]
    return table.cast(pa.schema(kinds))


def input_record(run: Run) -> dict[str, Any]:
    """The content of `input.json`."""
    return evidence.input_record(
        run.files,
        offsets=arrivals.rows_read(run.store),
        rows_per_second=arrivals.arrivals(run.store).rows_per_second,
        closures={f"{query}/0": [f"{query}/0"] for query in run.priorities},
        priorities=run.priorities,
    )

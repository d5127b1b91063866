"""The rows of a finished run of Flink as a report's directory has them.

A checkpoint is an epoch of all queries. A file belongs to the first commit of its query that was
not before it got its name. Called by whoever runs the application.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle import events as run_events
from rekindle.errors import RunError
from rekindle_local.demo import evidence
from rekindle_local.flink import outputs
from rekindle_local.structured_streaming.evidence import Run, input_record

__all__ = ["Run", "input_record", "write", "write_outputs"]


def write(directory: Path, run: Run) -> dict[str, Any]:
    """Write all files; `input/` must lie there already. Returns the report.

    Raises `RunError` where a query has put out nothing.
    """
    write_outputs(directory, run)
    events = run_events.relative(run.records, run.failure_at)
    return evidence.conclude(directory, events, run.facts, input_record(run), {}, {})


def write_outputs(directory: Path, run: Run) -> None:
    """Copy every row that counts, with checkpoint and commit time, one file per query."""
    for query in run.priorities:
        commits = [
            record
            for record in run.records
            if record["kind"] == "commit" and record["query"] == query
        ]
        tables = _tables(run, query, commits)
        if not tables:
            raise RunError(
                where=f"query {query}",
                what="has put out no row",
                remedy="let the application run for longer",
            )
        path = directory / "outputs" / query / "0.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.concat_tables(tables), path, compression="zstd")


def _tables(run: Run, query: str, commits: Sequence[Mapping[str, Any]]) -> list[pa.Table]:
    moments = [record["at"] for record in commits]
    tables = []
    for path in outputs.committed_files(run.store, query):
        named_at = path.stat().st_ctime
        place = min(bisect_left(moments, named_at), len(commits) - 1)
        at = max(named_at, moments[place]) - run.failure_at
        tables.append(evidence.stamped(outputs.read(query, path), commits[place]["epoch"], at))
    return tables

"""The report's directory of a run of a peer: the same files, the same figures.

What the peer has put out comes as tables, from a function of its own package. There are no plans,
no statistics and no bound. What a scenario or benchmark adds to the driver's events: `kill`,
`returned`, `warm`. Called by whoever runs the application.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle import report
from rekindle.model import run_events
from rekindle.model.errors import RunError
from rekindle_local.demo import demo_evidence
from rekindle_local.flights import flight_queries, row_arrivals


@dataclass(frozen=True, slots=True)
class PeerRun:
    """What a finished run left: records by wall clock, the store, and what was asked for.

    `files` is what `data.prepare` told; `priorities` names the queries that ran.
    """

    records: Sequence[Mapping[str, Any]]
    store: Path
    failure_at: float
    files: Mapping[str, Any]
    priorities: Mapping[str, float]
    facts: report.RunFacts


# A query's rows that count, with the epoch and the moment of each (`demo_evidence.stamped`).
Tables = Callable[[PeerRun, str], Sequence[pa.Table]]


def write(directory: Path, run: PeerRun, tables: Tables) -> dict[str, Any]:
    """Write all files; `input/` must lie there already. Returns the report.

    Raises `RunError` where a query has put out nothing.
    """
    write_outputs(directory, run, tables)
    events = run_events.relative(run.records, run.failure_at)
    return demo_evidence.conclude(directory, events, run.facts, input_record(run), {}, {})


def write_outputs(directory: Path, run: PeerRun, tables: Tables) -> None:
    """Copy every row that counts, one file per query."""
    for query in run.priorities:
        found = tables(run, query)
        if not found:
            raise RunError(
                where=f"query {query}",
                what="has put out no row",
                remedy="let the application run for longer",
            )
        path = directory / "outputs" / query / "0.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.concat_tables(found), path, compression="zstd")


def input_record(run: PeerRun) -> dict[str, Any]:
    """The content of `input.json`."""
    return demo_evidence.input_record(
        run.files,
        offsets=row_arrivals.rows_read(run.store),
        rows_per_second=row_arrivals.arrivals(run.store).rows_per_second,
        closures={f"{query}/0": [f"{query}/0"] for query in run.priorities},
        priorities=run.priorities,
        lag_goals=dict.fromkeys(run.priorities, flight_queries.LAG_GOAL_SECONDS),
    )

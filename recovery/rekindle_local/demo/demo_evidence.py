"""The report's directory: everything that `rekindle verify` needs, written from a finished run.

    report/  report.json report.html events.jsonl history.jsonl input.json queries.sql
             problems/N.json answers/N.json outputs/QUERY/INDEX.parquet input/*.parquet

Reads the checkpoint store and the records of the run; decides nothing. Called by the demo.
"""

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle import history, report, verification
from rekindle.coordination import coordination_state
from rekindle.forecast import steady_state
from rekindle.model import errors, run_events, settings, topology
from rekindle.model.topology import Topology
from rekindle_cli import report_html
from rekindle_local import stored_records
from rekindle_local.flights import flight_pipeline as flights
from rekindle_spark.pipeline.program import Program


@dataclass(frozen=True, slots=True)
class DemoRecords:
    """What a finished run left: records by wall clock, the store, and what was asked for.

    `schemas` gives the columns of each query partition's output, `domains` the failure domain of
    each node, `placement` is the policy's. `rows` are those of each source and `rows_per_second`
    their rate where the driver has not replayed them.
    """

    records: Sequence[Mapping[str, Any]]
    store: Path
    failure_at: float
    files: Mapping[str, Any]
    topology: Topology
    priorities: Mapping[str, float]
    schemas: Mapping[str, pa.Schema]
    facts: report.RunFacts
    domains: Mapping[str, str] = field(default_factory=dict)
    placement: str = settings.EVEN
    rows: Mapping[str, int] | None = None
    rows_per_second: float = 0.0


def write(directory: Path, run: DemoRecords) -> dict[str, Any]:
    """Write all files; returns the report."""
    events = run_events.relative(_without_bulk(run.records), run.failure_at)
    problems, answers = _write_plans(directory, run.records)
    write_outputs(directory, run)
    computed = conclude(directory, events, run.facts, _input_record(run), problems, answers)
    _check_history(directory, run)
    write_situation(directory, run)
    return computed


def write_situation(directory: Path, run: DemoRecords) -> None:
    """How the application ran when it was last measured before the failure, if it ever was."""
    measured = [
        record
        for record in run.records
        if record["kind"] == "statistics" and record["at"] < run.failure_at
    ]
    if not measured:
        return
    newest, facts = measured[-1], run.facts
    nodes = {*run.domains, *newest["placement"].values()}
    record = steady_state.to_record(
        run.topology,
        capacities=dict.fromkeys(nodes, 100 * facts.cpu_quota),
        domains=run.domains,
        costs=newest["costs"],
        overhead_percent=newest.get("overhead_percent", 0.0),
        placement=newest["placement"],
        state_bytes=newest.get("state_bytes", {}),
        policy={
            "strategy": facts.strategy,
            "buffering": facts.buffering,
            "ordering": facts.ordering,
            "placement": run.placement,
            "priorities": dict(run.priorities),
        },
    )
    _write_json(directory / steady_state.FILE, record)


def conclude(
    directory: Path,
    events: Sequence[run_events.Event],
    facts: report.RunFacts,
    record: Mapping[str, Any],
    problems: Mapping[int, Any],
    answers: Mapping[int, Any],
) -> dict[str, Any]:
    """Write events, queries, `input.json` from its `record`, and the report, which it returns.

    Input and outputs lie in the directory already.
    """
    (directory / "events.jsonl").write_text(run_events.serialize(events))
    _write_json(directory / "input.json", record)
    sql = (Path(flights.__file__).parent / "queries.sql").read_text()
    (directory / "queries.sql").write_text(sql)
    inputs = report.Inputs.from_record(record)
    exactly_once = verification.exactly_once(directory, inputs, sql)
    computed = report.compute(
        run_events.parse((directory / "events.jsonl").read_text()),
        facts,
        record,
        problems,
        answers,
        exactly_once,
        time.monotonic,
    )
    _write_json(directory / "report.json", computed)
    (directory / "report.html").write_text(report_html.render(computed, events))
    return computed


def schemas(built: Program) -> dict[str, pa.Schema]:
    """The columns of each query partition's output."""
    return {
        f"{sink.name}/{index}": sink.schema
        for chain in built.chains
        for sink in chain.sinks
        for index in range(chain.parallelism)
    }


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def commit() -> str:
    """The commit of the checkout that this code runs from, or "unknown"."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def _check_history(directory: Path, run: DemoRecords) -> None:
    """Write what was computed and released when, and judge it as `rekindle check-history` does."""
    recorded = history.record(
        run.topology, stored_records.commits(run.store), run.records, zero_at=run.failure_at
    )
    (directory / "history.jsonl").write_text(history.serialize(recorded))
    verdict = history.check(recorded, "history.jsonl")
    if not verdict.holds:
        raise errors.RunError(
            where=str(directory / "history.jsonl"),
            what="" if verdict.witness is None else verdict.witness.sentence,
            remedy=f"see it with `rekindle check-history {directory / 'history.jsonl'}`",
        )


def _without_bulk(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Problems and answers have files of their own."""
    return [
        {key: value for key, value in record.items() if key not in ("problem", "answer")}
        for record in records
    ]


def _write_plans(
    directory: Path, records: Sequence[Mapping[str, Any]]
) -> tuple[dict[int, Any], dict[int, Any]]:
    problems: dict[int, Any] = {}
    answers: dict[int, Any] = {}
    for record in records:
        if record["kind"] == "plan":
            problems[record["n"]] = record["problem"]
            answers[record["n"]] = record["answer"]
    for folder, content in (("problems", problems), ("answers", answers)):
        (directory / folder).mkdir(exist_ok=True)
        for number, item in content.items():
            _write_json(directory / folder / f"{number}.json", item)
    return problems, answers


def write_outputs(directory: Path, run: DemoRecords) -> None:
    """Copy every committed row, with its epoch and commit time, one file per query partition."""
    tables = {
        query_partition: [stamped(schema.empty_table(), 0, 0.0)]
        for query_partition, schema in run.schemas.items()
    }
    for output, table in stored_records.tables(run.store):
        if output.query_partition in tables:  # else dead letters
            at = output.committed_at - run.failure_at
            tables[output.query_partition].append(stamped(table, output.epoch, at))
    for query_partition, parts in tables.items():
        path = directory / "outputs" / f"{query_partition}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.concat_tables(parts), path, compression="zstd")


def stamped(table: pa.Table, epoch: int, committed_at: float) -> pa.Table:
    """Rows with the columns of an output file that say when they were committed."""
    epochs = pa.array([epoch] * table.num_rows, pa.int64())
    times = pa.array([committed_at] * table.num_rows, pa.float64())
    return table.append_column("epoch", epochs).append_column("committed_at", times)


def _input_record(run: DemoRecords) -> dict[str, Any]:
    final = stored_records.newest_cut(run.store)
    assert final is not None, "a finished run has logged its input"
    closures = {
        name: sorted(partitions) for name, partitions in topology.closures(run.topology).items()
    }
    offsets: Mapping[str, int] = {name: pair[1] for name, pair in final["offsets"].items()}
    rate = final["rows_per_second"]
    if run.rows is not None:
        offsets, rate = run.rows, run.rows_per_second
    return input_record(
        run.files,
        offsets=offsets,
        rows_per_second=rate,
        closures=closures,
        priorities=run.priorities,
        lag_goals=coordination_state.lag_goals(run.topology, settings.Policy()),
    )


def input_record(
    files: Mapping[str, Any],
    *,
    offsets: Mapping[str, int],
    rows_per_second: float,
    closures: Mapping[str, Sequence[str]],
    priorities: Mapping[str, float],
    lag_goals: Mapping[str, float],
) -> dict[str, Any]:
    """The content of `input.json`; `files` is what `flight_data.prepare` told."""
    return {
        "version": 1,
        "files": [
            {
                "name": name,
                "path": f"input/{Path(file['path']).name}",
                "sha256": file["sha256"],
                "rows": file["rows"],
                "repeat_every_seconds": files["repeat_every_seconds"],
                "event_time": "event_time",
            }
            for name, file in files["files"].items()
        ],
        "offsets": dict(offsets),
        "rows_per_second": rows_per_second,
        "queries": {name: {"keys": list(flights.keys(name))} for name in priorities},
        "topology": {
            "closures": dict(closures),
            "priorities": dict(priorities),
            "lag_goals": dict(lag_goals),
        },
    }


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")

"""Made-up runs whose figures are known: events, problems, answers, input and output of a demo.

Nothing runs: a query that is planned is back `RESTORE_SECONDS` later, by construction. For
tests of whatever reads a report, and for looking at pictures of one.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle import report, verification
from rekindle.model import run_events
from rekindle.model.run_events import Event

EPOCH_SECONDS = 1.0
LATENCY_SECONDS = 0.25
RESTORE_SECONDS = 1.5
PLAN_SECONDS = 0.5
FILE_ROWS = 40
ROWS_PER_EPOCH = 10
REPEAT_EVERY_SECONDS = 100.0
BEGIN = datetime(2013, 1, 1)
COST_PERCENT = 20.0


@dataclass(frozen=True, slots=True)
class BuiltScenario:
    """What happens: `priorities` per query, placed round robin over the nodes.

    Node 1 holds the source. Nodes above `nodes - killed` are killed at 0 and come back at
    `returns`. The log begins at `begin`, the input ends at `end`.
    """

    priorities: Mapping[str, float]
    nodes: int = 3
    killed: int = 2
    returns: Sequence[float] = (10.0, 16.0)
    begin: float = -80.0
    end: float = 40.0
    cpu_quota: float = 0.5
    strategy: str = "incremental"


@dataclass(frozen=True, slots=True)
class BuiltRun:
    """Everything that `report.compute` takes."""

    events: tuple[Event, ...]
    facts: report.RunFacts
    input_record: Mapping[str, Any]
    problems: Mapping[int, Mapping[str, Any]]
    answers: Mapping[int, Mapping[str, Any]]
    sql: str


def make(scenario: BuiltScenario) -> BuiltRun:
    """Make the records of a scenario; its input file has no content yet (see `write`)."""
    plans = _plans(scenario)
    back = {query: at + RESTORE_SECONDS for at, chosen, _ in plans for query in chosen}
    events = [
        *_cluster_events(scenario),
        *_plan_events(scenario, plans),
        *(event for query in scenario.priorities for event in _commits(scenario, query, back)),
    ]
    priorities = scenario.priorities
    return BuiltRun(
        events=tuple(sorted(events, key=lambda event: event.t)),
        facts=_facts(scenario),
        input_record=_input_record(scenario),
        problems={n: _problem(scenario, plan) for n, plan in enumerate(plans, 1)},
        answers={n: _answer(priorities, plan) for n, plan in enumerate(plans, 1)},
        sql=_sql(scenario),
    )


def write(
    scenario: BuiltScenario, directory: Path, clock: Callable[[], float]
) -> Mapping[str, Any]:
    """Write the whole directory of a run, give its report."""
    run = make(scenario)
    for folder in ("problems", "answers", "outputs"):
        (directory / folder).mkdir(parents=True)
    pq.write_table(_rows(range(FILE_ROWS)).drop_columns(["row_index"]), directory / "in.parquet")
    digest = hashlib.sha256((directory / "in.parquet").read_bytes()).hexdigest()
    record = {**run.input_record, "files": [{**run.input_record["files"][0], "sha256": digest}]}
    _write_outputs(scenario, run, directory)
    (directory / "events.jsonl").write_text(run_events.serialize(run.events))
    (directory / "queries.sql").write_text(run.sql)
    _write_json(directory / "input.json", record)
    for n in run.problems:
        _write_json(directory / "problems" / f"{n}.json", run.problems[n])
        _write_json(directory / "answers" / f"{n}.json", run.answers[n])
    rows = verification.exactly_once(directory, report.Inputs.from_record(record), run.sql)
    figures = report.compute(run.events, run.facts, record, run.problems, run.answers, rows, clock)
    _write_json(directory / "report.json", figures)
    return figures


# A plan: when, the queries that it brings back, and the lost ones that it chose from.
_Plan = tuple[float, list[str], list[str]]


def _plans(scenario: BuiltScenario) -> list[_Plan]:
    """Bring back the most important queries as capacity comes: one cost each, one at a time."""
    lost = sorted(
        (query for query in scenario.priorities if _is_killed(scenario, _node(scenario, query))),
        key=lambda query: (-scenario.priorities[query], query),
    )
    moments = [0.0, *scenario.returns]
    if scenario.strategy == "blocking":
        moments = [scenario.returns[-1]]
    plans: list[_Plan] = []
    for t in moments:
        room = int(_free_percent(scenario, t, len(lost)) / COST_PERCENT)
        if lost and room > 0:
            plans.append((t + PLAN_SECONDS, lost[:room], lost))
            lost = lost[room:]
    return plans


def _free_percent(scenario: BuiltScenario, t: float, lost: int) -> float:
    alive = scenario.nodes - scenario.killed + sum(at <= t for at in scenario.returns)
    running = len(scenario.priorities) - lost + 1
    return alive * _facts(scenario).node_capacity_percent - running * COST_PERCENT


def _facts(scenario: BuiltScenario) -> report.RunFacts:
    return report.RunFacts(
        commit="0000000",
        seed=1,
        machine="made up",
        strategy=scenario.strategy,
        engine="pipeline",
        buffering="always",
        ordering="always",
        nodes=scenario.nodes,
        quota_enforced=True,
        cpu_quota=scenario.cpu_quota,
    )


def _cluster_events(scenario: BuiltScenario) -> list[Event]:
    killed = [f"127.0.0.{n}" for n in range(2, scenario.nodes + 2)][-scenario.killed :]
    placement = {f"{query}/0": _node(scenario, query) for query in scenario.priorities}
    placement["flights/0"] = "127.0.0.2"
    costs = dict.fromkeys(placement, COST_PERCENT)
    extra = {"costs": costs, "placement": placement, "load_percent": 65.0}
    return [
        Event(scenario.begin, "statistics", extra=extra),
        Event(max(scenario.begin, -70.0), "warm"),
        *(
            Event(t, "cut", epoch=epoch, extra={"rows": ROWS_PER_EPOCH})
            for epoch, t in _cuts(scenario)
        ),
        *(Event(0.0, "kill", node=node) for node in killed),
        *(Event(0.1, "confirmed", node=node) for node in killed),
        *(
            Event(t, "returned", node=node)
            for node, t in zip(killed, scenario.returns, strict=False)
        ),
        Event(scenario.end + 2, "finish", epoch=_cuts(scenario)[-1][0]),
    ]


def _plan_events(scenario: BuiltScenario, plans: Sequence[_Plan]) -> list[Event]:
    return [
        event
        for n, (at, chosen, _) in enumerate(plans, 1)
        for event in (
            Event(at, "plan", plan_epoch=n, extra={"queries": chosen, "n": n}),
            Event(at + 0.1, "ack", plan_epoch=n, epoch=_newest(scenario, at) + 1),
        )
    ]


def _commits(scenario: BuiltScenario, query: str, back: Mapping[str, float]) -> list[Event]:
    lost = _is_killed(scenario, _node(scenario, query))
    commits = []
    for epoch, cut in _cuts(scenario):
        at = round(cut + LATENCY_SECONDS, 6)
        if lost and at >= 0:
            at = max(at, back.get(query, scenario.end + 10))
        if at <= scenario.end + 1:
            commits.append((at, epoch))
    name = f"{query}/0"
    return [
        Event(
            at,
            "commit",
            epoch=epoch,
            query=query,
            query_partition=name,
            extra={"from_epoch": epoch},
        )
        for at, epoch in commits
    ]


def _cuts(scenario: BuiltScenario) -> list[tuple[int, float]]:
    count = int((scenario.end - scenario.begin - 0.5) / EPOCH_SECONDS)
    # Never at the failure itself: the last cut before it is 0.5 s old.
    return [(n, scenario.begin - 0.5 + n * EPOCH_SECONDS) for n in range(1, count + 1)]


def _newest(scenario: BuiltScenario, t: float) -> int:
    return max(epoch for epoch, cut in _cuts(scenario) if cut <= t)


def _node(scenario: BuiltScenario, query: str) -> str:
    return f"127.0.0.{2 + list(scenario.priorities).index(query) % scenario.nodes}"


def _is_killed(scenario: BuiltScenario, node: str) -> bool:
    return int(node.rpartition(".")[2]) - 2 >= scenario.nodes - scenario.killed


def _problem(scenario: BuiltScenario, plan: _Plan) -> dict[str, Any]:
    at, _, candidates = plan
    return {
        "version": 1,
        "partitions": {f"{query}/0": {"cpu_percent": COST_PERCENT} for query in candidates},
        "queries": {
            query: {"priority": scenario.priorities[query], "partitions": [f"{query}/0"]}
            for query in candidates
        },
        "capacity_cpu_percent": _free_percent(scenario, at, len(candidates)),
    }


def _answer(priorities: Mapping[str, float], plan: _Plan) -> dict[str, Any]:
    _, chosen, candidates = plan
    value = sum(priorities[query] for query in chosen)
    return {
        "version": 1,
        "status": "optimal",
        "solver": "best-density",
        "seed": 1,
        "queries": chosen,
        "skipped": {query: "no-capacity" for query in candidates if query not in chosen},
        "partitions": [f"{query}/0" for query in chosen],
        "placement": {},
        "priority_sum": value,
        "used_cpu_percent": COST_PERCENT * len(chosen),
        "fragmentation_cpu_percent": 0.0,
        "upper_bound": value,
        "gap": 0.0,
        "seconds": 0.01,
    }


def _input_record(scenario: BuiltScenario) -> dict[str, Any]:
    return {
        "version": 1,
        "files": [
            {
                "name": "flights",
                "path": "in.parquet",
                "sha256": "",
                "rows": FILE_ROWS,
                "repeat_every_seconds": REPEAT_EVERY_SECONDS,
                "event_time": "departed",
            }
        ],
        "offsets": {"flights": ROWS_PER_EPOCH * len(_cuts(scenario))},
        "rows_per_second": ROWS_PER_EPOCH / EPOCH_SECONDS,
        "queries": {query: {"keys": ["row_index"]} for query in scenario.priorities},
        "topology": {
            "closures": {
                f"{query}/0": ["flights/0", f"{query}/0"] for query in scenario.priorities
            },
            "priorities": dict(scenario.priorities),
        },
    }


def _sql(scenario: BuiltScenario) -> str:
    queries = len(scenario.priorities)
    selects = [
        f"-- query: {query}\nSELECT row_index, departed, miles FROM long_flights\n"
        f"WHERE row_index % {queries} = {n};\n"
        for n, query in enumerate(scenario.priorities)
    ]
    prelude = (
        "-- prelude\nCREATE VIEW long_flights AS "
        "SELECT row_index, departed, distance * 0.1 AS miles FROM flights;\n"
    )
    return prelude + "".join(selects)


def _rows(indices: Sequence[int]) -> pa.Table:
    seconds = [index % FILE_ROWS + REPEAT_EVERY_SECONDS * (index // FILE_ROWS) for index in indices]
    return pa.table(
        {
            "row_index": pa.array(indices, pa.int64()),
            "departed": pa.array(
                [BEGIN + timedelta(seconds=second) for second in seconds], pa.timestamp("us")
            ),
            "distance": pa.array([float(index % FILE_ROWS) for index in indices], pa.float64()),
        }
    )


def _write_outputs(scenario: BuiltScenario, run: BuiltRun, directory: Path) -> None:
    for n, query in enumerate(scenario.priorities):
        (directory / "outputs" / query).mkdir()
        tables = [
            _output(scenario, n, event)
            for event in run_events.of_kind(run.events, "commit")
            if event.query == query
        ]
        pq.write_table(pa.concat_tables(tables), directory / "outputs" / query / "0.parquet")


def _output(scenario: BuiltScenario, n: int, commit: Event) -> pa.Table:
    assert commit.epoch is not None
    begin = (commit.epoch - 1) * ROWS_PER_EPOCH
    indices = [
        index
        for index in range(begin, begin + ROWS_PER_EPOCH)
        if index % len(scenario.priorities) == n
    ]
    rows = _rows(indices)
    return pa.table(
        {
            "row_index": rows["row_index"],
            "departed": rows["departed"],
            "miles": [float(row) * 0.1 for row in rows["distance"].to_pylist()],
            "epoch": pa.array([commit.epoch] * len(indices), pa.int64()),
            "committed_at": pa.array([commit.t] * len(indices), pa.float64()),
        },
        schema=_OUTPUT,
    )


_OUTPUT = pa.schema(
    [
        ("row_index", pa.int64()),
        ("departed", pa.timestamp("us")),
        ("miles", pa.float64()),
        ("epoch", pa.int64()),
        ("committed_at", pa.float64()),
    ]
)


def _write_json(path: Path, record: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(record, indent=1) + "\n")

"""The report of a scenario, whoever ran the queries, by the same definitions (docs/report.md).

`scenario_runner` calls `write` when the application has ended.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rekindle.report import RunFacts
from rekindle_local.demo import demo_evidence
from rekindle_local.flights import flight_pipeline
from rekindle_peers import peer_evidence as peers_evidence
from rekindle_peers.structured_streaming.streaming_evidence import tables
from rekindle_spark.pipeline.program import Program
from scenarios.flights_application import CPU_PERCENT
from scenarios.scenario_run import ScenarioRun
from scenarios.structured_streaming_run import OrdinaryFlights

STABILISATION_SECONDS = 10.0  # a RecoveryPolicy's default

Files = Mapping[str, Any]


def write(
    directory: Path, stage: ScenarioRun, files: Files, built: Program, strategy: str
) -> dict[str, Any]:
    """Write a report's directory; `input/` lies there already. Returns the report."""
    flights = stage.flights
    facts = RunFacts(
        commit=demo_evidence.commit(),
        seed=flights.seed,
        machine=demo_evidence.machine(),
        strategy=strategy,
        engine="pipeline",
        buffering="always",
        ordering="always",
        nodes=flights.executors,
        quota_enforced=True,
        cpu_quota=CPU_PERCENT / 100,
        stabilisation_seconds=STABILISATION_SECONDS,
    )
    if isinstance(flights, OrdinaryFlights):
        return peers_evidence.write(
            directory,
            peers_evidence.PeerRun(
                records=stage.witness.records,
                store=flights.store,
                failure_at=stage.failure_at,
                files=files,
                priorities=flight_pipeline.priorities(flights.seed),
                facts=replace(facts, engine=strategy, stabilisation_seconds=0.0),
            ),
            tables,
        )
    return demo_evidence.write(
        directory,
        demo_evidence.DemoRecords(
            records=stage.witness.records,
            store=flights.store,
            failure_at=stage.failure_at,
            files=files,
            topology=built.topology,
            priorities={query.name: query.priority for query in built.topology.queries},
            schemas=demo_evidence.schemas(built),
            facts=facts,
        ),
    )

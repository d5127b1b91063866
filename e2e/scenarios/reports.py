"""The report of a scenario, whoever ran the queries, by the same definitions (docs/report.md).

`performing` calls `write` when the application has ended.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rekindle.report import RunFacts
from rekindle_local.demo import evidence
from rekindle_local.flights import pipeline
from rekindle_peers import evidence as peers_evidence
from rekindle_peers.structured_streaming.evidence import tables
from rekindle_spark.program import Program
from scenarios.flights import CPU_PERCENT
from scenarios.ordinary import OrdinaryFlights
from scenarios.stage import Stage

__all__ = ["write"]

STABILISATION_SECONDS = 10.0  # a RecoveryPolicy's default

Files = Mapping[str, Any]


def write(
    directory: Path, stage: Stage, files: Files, built: Program, strategy: str
) -> dict[str, Any]:
    """Write a report's directory; `input/` lies there already. Returns the report."""
    flights = stage.flights
    facts = RunFacts(
        commit=evidence.commit(),
        seed=flights.seed,
        machine=evidence.machine(),
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
            peers_evidence.Run(
                records=stage.witness.records,
                store=flights.store,
                failure_at=stage.failure_at,
                files=files,
                priorities=pipeline.priorities(flights.seed),
                facts=replace(facts, engine=strategy, stabilisation_seconds=0.0),
            ),
            tables,
        )
    return evidence.write(
        directory,
        evidence.Run(
            records=stage.witness.records,
            store=flights.store,
            failure_at=stage.failure_at,
            files=files,
            topology=built.topology,
            priorities={query.name: query.priority for query in built.topology.queries},
            schemas=evidence.schemas(built),
            facts=facts,
        ),
    )

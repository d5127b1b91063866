"""One scenario from an empty machine to its report: site, application, loss, rows, figures.

`python -m scenarios` calls `perform`.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from rekindle.model import topology
from rekindle.model.errors import RunError
from rekindle_local.flights import flight_pipeline as flights_pipeline
from rekindle_spark.pipeline import program
from scenarios import scenario_reports, strategies
from scenarios.cloud_autoscaler import Autoscaler
from scenarios.deployment import NAMESPACE, Site
from scenarios.flights_application import FlightsApplication
from scenarios.loss_scenarios import Scenario
from scenarios.pod_logs import PodLogs
from scenarios.run_recorder import RunRecorder
from scenarios.scenario_figures import figures
from scenarios.scenario_run import ScenarioRun
from scenarios.structured_streaming_run import OrdinaryFlights

VERSION = 1  # of figures.json

Object = dict[str, Any]


def perform(
    scenario: Scenario, directory: Path, *, strategy: str = strategies.INCREMENTAL
) -> Object:
    """Run a scenario in an empty folder; the report, which is written there too.

    With the strategy `structured-streaming` it is ordinary Spark that runs, without Rekindle.
    Raises `RunError` when something that it asserts is not true.
    """
    logs = directory / "logs"
    logs.mkdir()
    site = Site(
        directory / "site",
        executors=scenario.executors,
        chart=scenario.chart,
        class_spec=scenario.class_spec,
        storage_mib=scenario.storage_mib,
        policy_spec={"strategy": strategy},
        is_protected=strategy != strategies.SPARK_ALONE,
    )
    with site:
        flights = (OrdinaryFlights if strategy == strategies.SPARK_ALONE else FlightsApplication)(
            site.claim,
            site.spark_image,
            example=scenario.example,
            executors=scenario.executors,
            load_percent=scenario.load_percent,
            storage_mib=scenario.storage_mib,
        )
        files = flights.prepare()
        shutil.copytree(flights.input, directory / "input")  # what the report's rows come from
        built = program.build(flights_pipeline.build(flights.input, flights.seed))
        witness = RunRecorder(PodLogs(site.core, logs), flights.events, NAMESPACE)
        scaler = Autoscaler(site.core, site.cluster, NAMESPACE)
        stage = ScenarioRun(
            site=site,
            flights=flights,
            witness=witness,
            closures=topology.closures(built.topology),
            scaler=scaler,
        )
        scenario.arrange(site)
        try:
            stage.begin()
            scenario.act(stage)
            stage.finish()
        finally:
            stage.keep(directory)
        computed = scenario_reports.write(directory, stage, files, built, strategy)
    if strategy == strategies.INCREMENTAL:  # the bars are its own: the others wait on purpose
        measured = figures(stage.witness.records, computed, stage.failure_at)
        record = {"version": VERSION, "figures": measured}
        (directory / "figures.json").write_text(json.dumps(record, indent=1) + "\n")
    _check_rows(computed)
    return computed


def _check_rows(computed: Object) -> None:
    counts = computed["exactly_once"]
    wrong = {name: counts[name] for name in ("missing", "duplicated", "wrong") if counts[name]}
    if wrong or not counts["expected_rows"]:
        raise RunError(
            where="the output",
            what=f"has {counts['expected_rows']} rows that are due, and {wrong or 'none'}",
            remedy="see report.html, and `rekindle verify` of its folder",
        )

"""One performance of the demo: prepares it, runs the scenario, writes the report.

Called by the commands `demo` and `bench recovery`.
"""

import json
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from rekindle import report
from rekindle.model import topology
from rekindle.model.errors import RunError
from rekindle.model.sentences import counted
from rekindle.protocol.store_paths import Place
from rekindle_cli.report_html import report_text
from rekindle_local import failure_schedule
from rekindle_local.demo import demo_evidence, run_inputs, topic_witness
from rekindle_local.demo.demo_display import Display
from rekindle_local.demo.demo_scenario import DemoOptions, DemoScenario, failure_domains
from rekindle_local.demo.demo_streams import KAFKA, KafkaStreams, ReplayedInput
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.flights import flight_data, flight_topics
from rekindle_local.flights import flight_pipeline as flights
from rekindle_local.local_control_plane import LocalControlPlane
from rekindle_local.local_provisioning import Provisioning
from rekindle_local.spark_cluster import LocalCluster
from rekindle_spark.connectors import kafka_options
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.spark import jvm_build

PLACE = Place("demo", "flights")
EXECUTOR_MEGABYTES = 512


def perform(options: DemoOptions, directory: Path) -> dict[str, Any]:
    """Run the demo in an empty directory; returns the report. Nothing is left running."""
    run_directory = directory / "run"
    run_directory.mkdir()
    files = flight_data.prepare(directory / "input")
    built = program.build(flights.build(directory / "input", options.seed))
    closures = {name: tuple(part) for name, part in topology.closures(built.topology).items()}
    priorities = {query.name: query.priority for query in built.topology.queries}
    display = Display(priorities, _partitions(closures))
    schemas = demo_evidence.schemas(built)
    with ExitStack() as stack:
        streams = _streams(options, directory, built, display)
        if streams is not None:
            stack.enter_context(streams)
        scenario, enforced = _run(options, directory, built, display, streams)
        display.say("writing the report and checking every row against a batch computation")
        if streams is not None:
            topic_witness.write(directory, streams.servers, schemas)
    run = demo_evidence.DemoRecords(
        records=scenario.records,
        store=scenario.driver.store,
        failure_at=scenario.failure_at,
        files=files,
        topology=built.topology,
        priorities=priorities,
        schemas=schemas,
        facts=_facts(options, enforced),
        domains=scenario.domains,
        placement=options.placement,
        rows=None if streams is None else streams.written,
        rows_per_second=options.begins_with_rows_per_second,
    )
    result = demo_evidence.write(directory, run)
    shutil.rmtree(run_directory / "cluster", ignore_errors=True)
    return result


def _streams(
    options: DemoOptions, directory: Path, built: Program, display: Display
) -> KafkaStreams | None:
    """The topics that the demo reads and writes, if any. Raises InputError without a broker."""
    if options.source != KAFKA:
        return None
    kafka_options.library()
    display.say("starting a broker of Kafka")
    topics, rate = flight_topics.topics(built), options.begins_with_rows_per_second
    return KafkaStreams(directory / "run" / "kafka", directory / "input", topics, rate)


def _run(
    options: DemoOptions,
    directory: Path,
    built: Program,
    display: Display,
    streams: KafkaStreams | None,
) -> tuple[DemoScenario, bool]:
    """The scenario, once it is over, and whether the quota of nodes was enforced."""
    run_directory = directory / "run"
    servers = "" if streams is None else streams.servers
    pipeline, settings = _write_inputs(directory, run_directory, options, servers)
    driver = DriverProcess(run_directory)
    cluster, provisioning = _machines(options, run_directory, driver)
    display.say(
        f"starting a Spark cluster of {counted(options.nodes, 'node')}, ZooKeeper and a coordinator"
    )
    with cluster, _control_plane(run_directory, cluster) as control:
        try:
            display.start()
            provisioning.start()
            driver.start(
                pipeline,
                cluster.master_url,
                settings,
                _conf(cluster),
                sidecar=(control.socket, control.place),
            )
            assert driver.process is not None
            provisioning.publish_driver(control.place, driver.process.pid)
            scenario = DemoScenario(
                options,
                cluster,
                driver,
                control,
                provisioning,
                built.topology,
                display.show,
                ReplayedInput() if streams is None else streams,
            )
            scenario.run()
        finally:
            # a driver that has ended in order is asked for again, and must not come back
            provisioning.close()
            driver.end()
            display.stop()
        return scenario, cluster.quota_enforced


def _machines(
    options: DemoOptions, run_directory: Path, driver: DriverProcess
) -> tuple[LocalCluster, Provisioning]:
    """The cluster, and who brings back its nodes in an order that the seed gives."""
    cluster = LocalCluster(
        nodes=options.nodes,
        cpu_quota=options.cpu_quota,
        directory=run_directory / "cluster",
        class_path=[Path(jvm_build.path())],
        on_change=lambda: provisioning.publish(cluster.leaders()),
    )

    def restart_driver() -> None:
        driver.start_again()
        assert driver.process is not None
        provisioning.publish_driver(PLACE, driver.process.pid)

    order = failure_schedule.return_order([node.name for node in cluster.nodes], options.seed)
    provisioning = Provisioning(
        directory=run_directory / "provisioning",
        down=lambda: [name for name in order if cluster.leaders()[name] is None],
        start_worker=cluster.start_worker,
        restart_driver=restart_driver,
        first_seconds=failure_schedule.FIRST_SECONDS,
        every_seconds=options.return_every_seconds,
        domains=failure_domains([node.name for node in cluster.nodes], options.domains),
    )
    return cluster, provisioning


def _control_plane(run_directory: Path, cluster: LocalCluster) -> LocalControlPlane:
    return LocalControlPlane(
        directory=run_directory / "control",
        cluster=run_directory / "provisioning",
        socket=cluster.temporary / "sidecar.sock",
        place=PLACE,
    )


def rate(directory: Path) -> float:
    """The rate of rows that a run in `directory` settled on."""
    rows_per_second: float = json.loads((directory / "input.json").read_text())["rows_per_second"]
    return rows_per_second


def summarise(result: dict[str, Any], directory: Path | None) -> None:
    """The figures that matter, and where the rest is."""
    counts = result["exactly_once"]
    console = Console(highlight=False, soft_wrap=True)
    console.print(report_text.headline(result))
    said = f"weighted unavailability {result['weighted_unavailable_seconds']:.1f} s"
    if result["plans"]:
        said += (
            f", bound {result['weighted_unavailable_seconds_bound']:.1f} s; "
            f"first plan after {counted(result['first_plan_epochs'], 'epoch')}; "
            f"{counted(len(result['plans']), 'plan')}"
        )
    console.print(said)
    if (beyond := result.get("weighted_beyond_goal_seconds")) is not None:
        console.print(f"beyond lag goals, weighted: {beyond:.1f} s")
    if sentence := report_text.machine_limit(result):
        console.print(sentence)
    console.print(
        f"{counts['expected_rows']} rows expected; missing: {counts['missing']}, "
        f"duplicated: {counts['duplicated']}, wrong: {counts['wrong']}"
    )
    if directory is not None:
        console.print(f"report: {directory / 'report.html'}; check it: rekindle verify {directory}")


def check_topics(options: DemoOptions, directory: Path) -> None:
    """Show how the rows of all topics compare with those that are expected, if there are topics;
    raise `RunError` where one is missing, duplicated or wrong."""
    if options.source != KAFKA:
        return
    counts = topic_witness.compare(directory)
    Console(highlight=False, soft_wrap=True).print(
        f"in topics of Kafka: {counts['expected_rows']} rows expected; missing: "
        f"{counts['missing']}, duplicated: {counts['duplicated']}, wrong: {counts['wrong']}"
    )
    _check_counts("rows in topics", counts)


def check_rows(result: dict[str, Any]) -> None:
    """Raise `RunError` where a row is missing, duplicated or wrong."""
    _check_counts("output rows", result["exactly_once"])


def _check_counts(where: str, counts: Mapping[str, int]) -> None:
    bad = {name: counts[name] for name in ("missing", "duplicated", "wrong") if counts[name]}
    if bad:
        raise RunError(
            where=where,
            what=", ".join(f"{name}: {count}" for name, count in bad.items()),
            remedy="keep the report and file a bug",
        )


def _write_inputs(
    directory: Path, run_directory: Path, options: DemoOptions, servers: str
) -> tuple[Path, Path]:
    rate = options.rows_per_second
    return run_inputs.write(
        run_directory,
        directory / "input",
        options.seed,
        policy={
            "strategy": options.strategy,
            "buffering": options.buffering,
            "ordering": options.ordering,
            "placement": options.placement,
        },
        runtime={
            "nodes_expected": options.nodes,
            "node_cpu_percent": 100 * options.cpu_quota,
            "rows_per_second": options.begins_with_rows_per_second,
            "load_target_percent": options.load_target_percent if rate is None else None,
        },
        servers=servers,
    )


def _conf(cluster: LocalCluster) -> dict[str, str]:
    return {**cluster.spark_options(EXECUTOR_MEGABYTES), "spark.driver.memory": "1g"}


def _facts(options: DemoOptions, enforced: bool) -> report.RunFacts:
    return report.RunFacts(
        commit=demo_evidence.commit(),
        seed=options.seed,
        machine=demo_evidence.machine(),
        strategy=options.strategy,
        engine="pipeline",
        buffering=options.buffering,
        ordering=options.ordering,
        nodes=options.nodes,
        quota_enforced=enforced,
        cpu_quota=options.cpu_quota,
    )


def _partitions(closures: dict[str, tuple[str, ...]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in closures:
        query = name.rpartition("/")[0]
        counts[query] = counts.get(query, 0) + 1
    return counts

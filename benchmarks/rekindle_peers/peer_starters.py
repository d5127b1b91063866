"""The systems that are measured beside each other: each starts the same queries on the same nodes.

    rekindle               as the demo has it: always buffering, ordered, checkpoints
    structured-streaming   ordinary Spark as people write it: a streaming query for each, state in
                           RocksDB with changelogs (`rekindle_peers.structured_streaming`)
    structured-streaming-shared
                           the same with what queries have in common put into one stream by hand
    flink                  one job with all queries, a checkpoint a second (`rekindle_peers.flink`)
    flink-adaptive         the same under Flink's adaptive scheduler

All write events of the same kinds. Without a rate they get more input than they can take, in
portions that they can: epochs, batches of at most so many rows, or what passes between checkpoints.
Each has nodes of its own, as many, with the same quota and slots. The benchmarks `steady` and
`recovery`, their commands and `peer_run` call them.
"""

import json
import os
import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rekindle.protocol.store_paths import Place
from rekindle_local import spark_distribution
from rekindle_local.demo import run_inputs
from rekindle_local.demo.driver_process import DriverProcess
from rekindle_local.local_nodes import LocalNodes
from rekindle_local.spark_cluster import LocalCluster
from rekindle_peers.flink import flink_installation
from rekindle_peers.flink.flink_cluster import FlinkCluster, Scheduler
from rekindle_peers.structured_streaming import replay_jar
from rekindle_spark.spark import jvm_build

SEED = 1
SHARED = "structured-streaming-shared"
EPOCH_SECONDS = 1.0
CHECKPOINT_SECONDS = 10
ROWS_PER_EPOCH, ROWS_PER_BATCH = 100_000, 400_000
# More than any of them takes with all queries; Rekindle with one takes all of it.
INPUT_ROWS_PER_SECOND = 1e6
STRUCTURED_STREAMING_MEGABYTES = 1024


@dataclass(frozen=True, slots=True)
class WorkProtection:
    """By whom streaming queries are protected: the socket of the sidecar of `place`, and the
    priorities that they have."""

    sidecar: Path
    place: Place
    priorities: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class PeerWork:
    """What is to be run: queries over the `flights` of a folder, on nodes that are up. Batches of
    Structured Streaming begin every `trigger_seconds`, at 0 as soon as they can; there may be a
    `protection` of its queries."""

    flights: Path
    names: Collection[str]
    nodes: LocalNodes
    trigger_seconds: float = 0.0
    protection: WorkProtection | None = None


@dataclass(frozen=True, slots=True)
class NodeSize:
    """So many nodes, each with a quota of so many cores and so many slots."""

    nodes: int
    cpu_quota: float
    slots: int


def check(contender: str) -> None:
    """Raise InputError where something that it needs is not installed."""
    if contender in FLINK_SCHEDULERS:
        flink_installation.find()


def machines(contender: str, size: NodeSize, directory: Path) -> LocalNodes:
    """What it runs on, with logs in `directory`; nothing is started yet."""
    scheduler = FLINK_SCHEDULERS.get(contender)
    if scheduler is not None:
        return FlinkCluster(
            directory=directory,
            nodes=size.nodes,
            cpu_quota=size.cpu_quota,
            slots=size.slots,
            scheduler=scheduler,
        )
    return LocalCluster(
        directory=directory,
        nodes=size.nodes,
        cpu_quota=size.cpu_quota,
        slots=size.slots,
        class_path=[Path(jvm_build.path()), Path(replay_jar.path())],
    )


def start(
    contender: str, work: PeerWork, directory: Path, rows_per_second: float | None
) -> DriverProcess:
    """Start the driver of a contender in a new `directory`."""
    directory.mkdir(parents=True)
    driver = DriverProcess(directory)
    CONTENDERS[contender](driver, work, rows_per_second)
    return driver


def spark_variables(
    cluster: LocalCluster, jars: Sequence[Path], conf: Mapping[str, str]
) -> Mapping[str, str]:
    """The variables with which a program has a Spark session on a cluster: with these jars in the
    driver, and more options of Spark. Executors have the jars of the cluster's own class path."""
    options = {
        **cluster.spark_options(STRUCTURED_STREAMING_MEGABYTES),
        "spark.driver.extraClassPath": ":".join(map(str, jars)),
        "spark.ui.enabled": "false",
        **conf,
    }
    submit = ["--master", cluster.master_url]
    submit += [part for key, value in options.items() for part in ("--conf", f"{key}={value}")]
    return {
        "PYSPARK_SUBMIT_ARGS": shlex.join([*submit, "pyspark-shell"]),
        "SPARK_HOME": str(spark_distribution.find_distribution().spark_home),
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }


def _rekindle(driver: DriverProcess, work: PeerWork, rows_per_second: float | None) -> None:
    pipeline, settings = run_inputs.write(
        driver.directory,
        work.flights,
        SEED,
        policy={"buffering": "always", "ordering": "always"},
        runtime={
            "nodes_expected": len(work.nodes.nodes),
            "epoch_seconds": EPOCH_SECONDS,
            "checkpoint_seconds": CHECKPOINT_SECONDS,
            "rows_per_second": rows_per_second or INPUT_ROWS_PER_SECOND,
            "rows_per_epoch_max": ROWS_PER_EPOCH,
        },
        names=work.names,
    )
    cluster = _spark(work)
    driver.start(pipeline, cluster.master_url, settings, cluster.spark_options())


def _structured_streaming(
    driver: DriverProcess, work: PeerWork, rows_per_second: float | None, shared: bool = False
) -> None:
    # with pools for protected queries
    conf = {"spark.scheduler.mode": "FIFO" if work.protection is None else "FAIR"}
    variables = spark_variables(_spark(work), [Path(replay_jar.path())], conf)
    arguments = [sys.executable, "-m", "rekindle_peers.structured_streaming"]
    arguments += [str(work.flights), "--store", str(driver.store)]
    arguments += ["--events", str(driver.events), "--queries", ",".join(sorted(work.names))]
    arguments += ["--rows-per-second", str(rows_per_second or INPUT_ROWS_PER_SECOND)]
    if rows_per_second is None:
        arguments += ["--rows-per-trigger-max", str(ROWS_PER_BATCH)]
    arguments += ["--shared"] if shared else []
    arguments += ["--trigger-seconds", str(work.trigger_seconds)]
    arguments += _protection_arguments(work, driver.directory)
    driver.launch(arguments, variables)


def _protection_arguments(work: PeerWork, directory: Path) -> list[str]:
    if work.protection is None:
        return []
    settings = directory / "settings.yaml"
    settings.write_text(json.dumps({"runtime": {"nodes_expected": len(work.nodes.nodes)}}))
    priorities = ",".join(f"{key}={value}" for key, value in work.protection.priorities.items())
    arguments = ["--sidecar", str(work.protection.sidecar), "--name", str(work.protection.place)]
    return [*arguments, "--settings", str(settings), "--priorities", priorities]


def _flink(driver: DriverProcess, work: PeerWork, rows_per_second: float | None) -> None:
    cluster = work.nodes
    assert isinstance(cluster, FlinkCluster), "Flink on other machines"
    arguments = [sys.executable, "-m", "rekindle_peers.flink", str(work.flights)]
    arguments += ["--store", str(driver.store), "--events", str(driver.events)]
    arguments += ["--queries", ",".join(sorted(work.names)), "--jobmanager", cluster.address]
    # One task of a kind on each node: with one for each slot there is more to hand on and to write.
    arguments += ["--parallelism", str(len(cluster.nodes))]
    arguments += ["--checkpoint-seconds", str(EPOCH_SECONDS)]
    arguments += ["--rows-per-second", str(rows_per_second or INPUT_ROWS_PER_SECOND)]
    driver.launch(arguments, {"PYTHONPATH": os.environ.get("PYTHONPATH", "")})


def _spark(work: PeerWork) -> LocalCluster:
    """Both run on Spark's own cluster."""
    assert isinstance(work.nodes, LocalCluster), "a contender of Spark on other machines"
    return work.nodes


FLINK_SCHEDULERS: Mapping[str, Scheduler] = {"flink": "default", "flink-adaptive": "adaptive"}
CONTENDERS: Mapping[str, Callable[[DriverProcess, PeerWork, float | None], None]] = {
    "rekindle": _rekindle,
    "structured-streaming": _structured_streaming,
    SHARED: partial(_structured_streaming, shared=True),
    "flink": _flink,
    "flink-adaptive": _flink,
}

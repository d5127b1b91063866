"""The flights' pipeline on Kubernetes: its files, and the SparkApplication that runs it.

The SparkApplications are those of examples/kubernetes, of either group, with other sizes. Input,
store and events lie on the claim that the example shares; here, in a folder of this machine.
"""

import copy
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rekindle_local.demo import run_inputs
from rekindle_local.flights import flight_data
from rekindle_local.spark_distribution import SMALL_NODE_OPTIONS
from scenarios.run_recorder import RunRecorder

EXAMPLES = Path(__file__).parents[2] / "examples" / "kubernetes"
NAME = "flights"
# Where the claim is in the pods, as in the examples.
SHARED = Path("/shared")
ROLE = "example.com/role"
CPU_PERCENT = 15
# On such nodes a second is too short: half of it would be the costs of an epoch itself.
EPOCH_SECONDS = 2.0
# For each executor. The driver finds out how much they can do.
FIRST_ROWS_PER_SECOND = 1_000.0
CPU = f"{CPU_PERCENT * 10}m"
EXAMPLE_NAME, EXAMPLE_IMAGE = "machines", "registry.example.com/rekindle-spark:0.1.0"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FlightsApplication:
    """`directory` is the shared claim's on this machine, `image` Spark's.

    `example` names a file of examples/kubernetes. The driver moves the rate until the load (percent
    of what executors may use) is `load_percent`, if that is given. Nodes have the role of their
    pods as their label `ROLE`. Half of `storage_mib`, the disk of an executor, may be kept for
    those who are behind.
    """

    directory: Path
    image: str
    example: str = "kubeflow"
    executors: int = 10
    seed: int = 1
    load_percent: float | None = run_inputs.LOAD_TARGET_PERCENT
    storage_mib: int | None = None

    @property
    def warm_seconds(self) -> float:
        """How long it runs, warm, before anything is lost."""
        return 20.0

    @property
    def store(self) -> Path:
        """The checkpoint store."""
        return self.directory / "store"

    @property
    def events(self) -> Path:
        """What the driver says happens."""
        return self.directory / "driver-events.jsonl"

    @property
    def input(self) -> Path:
        """The replayed files."""
        return self.directory / "input"

    def is_live(self, witness: RunRecorder) -> bool:
        """All queries have been brought up."""
        return bool(witness.of_kind("recovered"))

    def is_calibrated_by(self, witness: RunRecorder) -> bool:
        """The driver has found its rate."""
        return bool(witness.of_kind("calibrated"))

    def is_back(self, witness: RunRecorder, failure_at: float) -> bool:
        """All queries have been brought back."""
        return bool(witness.of_kind("recovered", failure_at))

    def prepare(self) -> Mapping[str, Any]:
        """Write the input; what `data.prepare` tells of it."""
        return flight_data.prepare(self.input)

    def config_map(self) -> Object:
        """The pipeline and its settings, as the example takes them."""
        files = run_inputs.contents(
            SHARED / "input",
            self.seed,
            policy={},
            runtime={
                "nodes_expected": self.executors,
                "node_cpu_percent": CPU_PERCENT,
                "epoch_seconds": EPOCH_SECONDS,
                "rows_per_second": FIRST_ROWS_PER_SECOND * self.executors,
                **dict(self._limits()),
            },
        )
        named = {f"{NAME}.py": files.pipeline, "settings.yaml": files.settings}
        return {"metadata": {"name": NAME}, "data": named}

    def _limits(self) -> Iterator[tuple[str, float]]:
        """Settings that not every scenario has."""
        if self.load_percent is not None:
            yield "load_target_percent", self.load_percent
        if self.storage_mib is not None:
            yield "retained_mib_max", self.storage_mib // 2

    def application(self) -> Object:
        """The SparkApplication."""
        text = (EXAMPLES / f"{self.example}.yaml").read_text(encoding="utf-8")
        text = text.replace(EXAMPLE_NAME, NAME).replace(EXAMPLE_IMAGE, self.image)
        body: Object = copy.deepcopy(yaml.safe_load(text))  # anchors are one object otherwise
        adapt = _adapt_kubeflow if self.example == "kubeflow" else _adapt_apache
        adapt(body["spec"], self)
        return body


def _adapt_kubeflow(spec: Object, flights: FlightsApplication) -> None:
    spec["imagePullPolicy"] = "Never"
    spec["arguments"] += ["--events", str(SHARED / flights.events.name)]
    spec["driver"] |= {"coreRequest": "200m", "nodeSelector": {ROLE: "driver"}}
    spec["executor"] |= {
        "instances": flights.executors,
        "coreRequest": CPU,
        "coreLimit": CPU,
        "memory": "512m",
        "memoryOverhead": "512m",
        "javaOptions": shlex.join(SMALL_NODE_OPTIONS),
        "nodeSelector": {ROLE: "executor"},
    }


def _adapt_apache(spec: Object, flights: FlightsApplication) -> None:
    count = flights.executors
    spec["driverArgs"] += ["--events", str(SHARED / flights.events.name)]
    instances = {"initExecutors": count, "minExecutors": 1, "maxExecutors": count}
    spec["applicationTolerations"]["instanceConfig"] = instances
    spec["sparkConf"] |= {
        "spark.kubernetes.container.image.pullPolicy": "Never",
        "spark.kubernetes.driver.request.cores": "200m",
        "spark.kubernetes.driver.node.selector.example.com/role": "driver",
        "spark.kubernetes.executor.node.selector.example.com/role": "executor",
        "spark.executor.instances": str(count),
        "spark.kubernetes.executor.request.cores": CPU,
        "spark.kubernetes.executor.limit.cores": CPU,
        "spark.executor.memory": "512m",
        "spark.executor.memoryOverhead": "512m",
        "spark.executor.extraJavaOptions": shlex.join(SMALL_NODE_OPTIONS),
    }

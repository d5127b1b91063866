"""The flights on ordinary Spark: the same queries in Structured Streaming, without Rekindle.

Same image, same executors, same quotas, under kubeflow's Spark operator (docs/structured-
streaming.md). Nobody plans, and nobody deletes what stands on lost nodes but Kubernetes and Spark
themselves. `scenario_runner` takes it in the place of `FlightsApplication`.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rekindle_peers
from rekindle_local.flights import flight_pipeline
from rekindle_peers.structured_streaming import replay_jar
from scenarios.flights_application import SHARED, FlightsApplication, Object
from scenarios.run_recorder import Record, RunRecorder

# What one of these nodes sustains, with room to catch up: at 300 a batch of the join of two streams
# took longer than its rows had come in, and it never came back. More would favour Rekindle.
ROWS_PER_SECOND = 200.0
# The image knows nothing of this program: it lies on the claim that all pods share.
PROGRAM = SHARED / "program"
SUBMITTED = "structured_streaming/submitted.py"
JAR = "rekindle-replay.jar"
# Batches that tell what a query's lag is when all is well, and that it is so again.
BATCHES_WARM, BATCHES_BACK = 3, 2
LAG_FACTOR = 1.2


@dataclass(frozen=True, slots=True)
class OrdinaryFlights(FlightsApplication):
    """Lags are those of batches: from when the newest row of one came in until its commit."""

    @property
    def warm_seconds(self) -> float:
        """Normal lag is measured over a minute, of batches that take a quarter of one."""
        return 90.0

    def prepare(self) -> Mapping[str, Any]:
        """Write the input, and the program beside it."""
        program = self.directory / PROGRAM.name
        package = Path(rekindle_peers.__file__).parent
        shutil.copytree(
            package,
            program / package.name,
            ignore=shutil.ignore_patterns("jvm", "__pycache__"),
        )
        shutil.copy2(replay_jar.path(), program / JAR)
        return FlightsApplication.prepare(self)

    def application(self) -> Object:
        """The SparkApplication: another program, and no sidecar."""
        body = FlightsApplication.application(self)
        spec = body["spec"]
        spec["mainApplicationFile"] = f"local://{PROGRAM / 'rekindle_peers' / SUBMITTED}"
        spec["sparkConf"] |= {
            "spark.driver.extraClassPath": str(PROGRAM / JAR),
            "spark.kubernetes.driverEnv.PYTHONPATH": str(PROGRAM),
            "spark.executorEnv.PYTHONPATH": str(PROGRAM),
            # At the end of the class path, so that the image's archive of classes still holds.
            "spark.executorEnv.SPARK_EXTRA_CLASSPATH": str(PROGRAM / JAR),
        }
        spec["arguments"] = [
            *(str(SHARED / self.input.name), "--store", str(SHARED / self.store.name)),
            *("--rows-per-second", str(ROWS_PER_SECOND * self.executors)),
            *("--events", str(SHARED / self.events.name)),
        ]
        body["metadata"].pop("labels", None)
        del spec["driver"]["labels"]
        spec["driver"]["memoryOverhead"] = "768m"
        return body

    def is_live(self, witness: RunRecorder) -> bool:
        """Each query has committed some batches."""
        lags = _lags(witness, 0.0)
        return all(len(lags.get(query, ())) >= BATCHES_WARM for query in flight_pipeline.QUERY_KEYS)

    def is_calibrated_by(self, witness: RunRecorder) -> bool:
        """Its rate is fixed from its start on."""
        return bool(witness.of_kind("started"))

    def is_back(self, witness: RunRecorder, failure_at: float) -> bool:
        """Since the last executor has come, each query has had batches with no more lag than
        before the failure."""
        before = _lags(witness, 0.0, failure_at)
        normal = {query: max(lags[-BATCHES_WARM:]) for query, lags in before.items()}
        came_at = max(
            (one["at"] for one in witness.of_kind("joined", failure_at)), default=failure_at
        )
        newest = _lags(witness, came_at)
        return all(
            len(newest.get(query, ())) >= BATCHES_BACK
            and max(newest[query][-BATCHES_BACK:]) <= LAG_FACTOR * normal[query]
            for query in flight_pipeline.QUERY_KEYS
        )


def _lags(
    witness: RunRecorder, since: float, until: float = float("inf")
) -> dict[str, list[float]]:
    """By query, the lags of the batches that were committed in a stretch of time."""
    cuts: dict[tuple[str, int], Record] = {
        (one["query"], one["epoch"]): one for one in witness.of_kind("cut")
    }
    lags: dict[str, list[float]] = {}
    for one in witness.of_kind("commit", since):
        cut = cuts.get((one["query"], one["epoch"]))
        if cut is not None and one["at"] < until:
            lags.setdefault(one["query"], []).append(one["at"] - cut["cut_at"])
    return lags

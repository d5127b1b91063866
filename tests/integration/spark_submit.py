"""A driver that spark-submit starts, as in the pods of Kubernetes' cluster mode."""

import sys
from collections.abc import Mapping
from pathlib import Path

from application import PIPELINE, SOURCES, Application

from rekindle_local import spark_distribution
from rekindle_spark.spark import jvm_build

PROGRAM = Path(__file__).parents[2] / "spark-images" / "run.py"


def submit(application: Application, conf: Mapping[str, str], *arguments: str) -> None:
    """Start the driver as the image's entry point does, with the jar on Spark's class path."""
    found = spark_distribution.find_distribution()
    told = {
        **application.cluster.spark_options(),
        "spark.driver.extraClassPath": jvm_build.path(),
        "spark.executorEnv.PYTHONPATH": SOURCES,
        **conf,
    }
    line = [str(found.spark_home / "bin" / "spark-submit"), "--master"]
    line += [application.cluster.master_url, "--deploy-mode", "client", "--name", "submitted"]
    line += [part for key, value in told.items() for part in ("--conf", f"{key}={value}")]
    line += [str(PROGRAM), str(PIPELINE), "--store", str(application.store)]
    line += ["--settings", str(application.directory / "settings.yaml")]
    line += ["--events", str(application.driver.events), *arguments]
    environment = {
        **found.environment(application.directory, {"PYTHONPATH": SOURCES}),
        "REKINDLE_CLUSTER_HAS_JAR": "true",
        "REKINDLE_TEST_INPUT": str(application.inputs),
        "REKINDLE_TEST_TRAPS": str(application.traps),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    application.driver.launch(line, environment)

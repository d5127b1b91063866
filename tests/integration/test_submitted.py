"""A driver that spark-submit has started, as in the pods of Kubernetes' cluster mode."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from application import PIPELINE, SOURCES, Application
from block_files import blocks_are_read_as_they_were_written_and_their_files_go_with_their_epochs

from rekindle_local import distribution
from rekindle_spark import jar

PROGRAM = Path(__file__).parents[2] / "spark-images" / "run.py"
Start = Callable[..., Application]


def submit(application: Application, conf: Mapping[str, str], *arguments: str) -> None:
    """Start the driver as the image's entry point does, with the jar on Spark's class path."""
    found = distribution.find_distribution()
    told = {
        **application.cluster.spark_options(),
        "spark.driver.extraClassPath": jar.path(),
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
    application.driver.process = subprocess.Popen(
        line,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=application.driver.log.open("ab"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def test_it_takes_master_and_options_from_spark_submit_and_commits_what_is_right(
    prepare: Start,
) -> None:
    application = prepare()
    submit(application, {"spark.task.maxFailures": "1", "spark.shuffle.compress": "true"})
    application.await_event("recovered")
    application.await_event("checkpoint")
    blocks_are_read_as_they_were_written_and_their_files_go_with_their_epochs(application)
    application.finish()


def test_it_says_in_one_line_what_is_wrong_and_spark_ends_with_its_exit_code(
    prepare: Start,
) -> None:
    application = prepare()
    submit(application, {}, "--master", "spark://127.0.0.1:1")
    assert application.await_end() != 0
    said = application.driver.log.read_text()
    assert "--master: was said to spark-submit already; leave it out here" in said
    assert not application.store.exists()

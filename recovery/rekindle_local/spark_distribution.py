"""The Java and the Spark on this machine, and the command line of Spark's daemons out of the wheel.

It starts nothing but the launcher, once, to learn the command line that `bin/spark-class` would
build each time, and `java -version`. spark_cluster.py and local_zookeeper.py call it.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rekindle.model.errors import InputError, RunError
from rekindle_spark.spark import spark_installation

DAEMON_HEAP_MEGABYTES = 128
LAUNCHER_SECONDS_MAX = 60.0
# Measured on two cores: a worker registers after 2.6 s of CPU instead of 4.9 s.
SMALL_NODE_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:-UsePerfData",
)
_WORKER = "org.apache.spark.deploy.worker.Worker"
_DAEMON_OPTIONS = (
    "-Dspark.master.rest.enabled=false",
    # The count is of executors that ended by themselves; killed nodes shall never end the
    # application.
    "-Dspark.deploy.maxExecutorRetries=-1",
)


@dataclass(frozen=True, slots=True)
class Distribution:
    """A Java and a Spark that fit: `java_version` is what `java -version` printed."""

    java: Path
    java_version: str
    spark_home: Path
    scala_version: str

    def environment(self, configuration: Path, additions: Mapping[str, str]) -> dict[str, str]:
        """Variables for daemons and launcher: ours, without Spark settings from outside."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("SPARK_")}
        return {
            **inherited,
            "SPARK_HOME": str(self.spark_home),
            "SPARK_SCALA_VERSION": self.scala_version,
            "SPARK_CONF_DIR": str(configuration),
            "PYSPARK_PYTHON": sys.executable,
            **additions,
        }


def find_distribution() -> Distribution:
    """Look for java (JAVA_HOME, then PATH) and the pyspark wheel.

    Raises `InputError` where one is missing or java is too old.
    """
    found, version = find_java()
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise InputError(where="pyspark", what="is not installed", remedy="install rekindle[spark]")
    home = Path(spec.origin).parent
    core = next((home / "jars").glob("spark-core_*.jar"), None)
    if core is None:
        raise InputError(
            where=str(home / "jars"), what="holds no spark-core jar", remedy="reinstall pyspark"
        )
    return Distribution(found, version, home, core.name.split("_")[1].split("-")[0])


def build_command(
    distribution: Distribution, environment: Mapping[str, str], options: Sequence[str]
) -> list[str]:
    """The command line of a daemon, but for its class and arguments.

    It comes from Spark's own launcher: `bin/spark-class` would start that for every daemon.
    """
    settings = {
        "SPARK_DAEMON_MEMORY": f"{DAEMON_HEAP_MEGABYTES}m",
        "SPARK_DAEMON_JAVA_OPTS": shlex.join((*SMALL_NODE_OPTIONS, *_DAEMON_OPTIONS, *options)),
    }
    class_path = str(distribution.spark_home / "jars" / "*")
    launcher = [str(distribution.java), "-Xmx128m", "-cp", class_path]
    done = subprocess.run(
        [*launcher, "org.apache.spark.launcher.Main", _WORKER],
        env={**environment, **settings},
        capture_output=True,
        text=True,
        timeout=LAUNCHER_SECONDS_MAX,
        check=False,
    )
    command = [part.strip() for part in done.stdout.split("\0") if part.strip()]
    if done.returncode != 0 or command[-1:] != [_WORKER]:
        raise RunError(
            where="Spark's launcher",
            what=f"ended with code {done.returncode}: {done.stderr.strip()[:500]}",
            remedy="mend the options that it names, or install pyspark and the JDK anew",
        )
    return command[:-1]


def find_java() -> tuple[Path, str]:
    """Look for java (JAVA_HOME, then PATH); with what `java -version` prints.

    Raises `InputError` where it is missing or too old.
    """
    found = spark_installation.find_java()
    return found, spark_installation.read_java_version(found)

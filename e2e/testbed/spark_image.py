"""Spark's image without an image: what its entry point would run, with the Spark of this machine.

`executor` becomes the Java process of an executor on Kubernetes, from the pod's environment;
Rekindle's jar is on its class path, as in an image of ours. Anything else is run as it stands. The
variables are those that Spark writes into executor pods (Spark on Kubernetes,
BasicExecutorFeatureStep). container_commands.py tells what an image is; tests name it to
pod_processes.py.
"""

import os
import re
from pathlib import Path

from rekindle.model.errors import InputError
from rekindle_local import spark_distribution
from rekindle_local.spark_distribution import SMALL_NODE_OPTIONS
from rekindle_spark.spark import jvm_build
from testbed.container_commands import ContainerCommand, Image, Launch

NAME = "rekindle.test/spark:local"
BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
EXECUTOR = "executor"
_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
_OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def spark_image() -> Image:
    """The image. Raises `InputError` where Java or pyspark is missing."""
    found = spark_distribution.find_distribution()
    class_path = [f"{found.spark_home}/jars/*", jvm_build.path()]

    def launch(container: ContainerCommand, folder: Path) -> Launch:
        # Spark's own settings stay out: those of a pod are in its environment.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "KUBE"))}
        environment = {
            **inherited,
            "SPARK_HOME": str(found.spark_home),
            "TMPDIR": str(folder),
            **container.environment,
            # The volume that the pod would have for it is not there.
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_LOCAL_IP": container.environment.get("SPARK_EXECUTOR_POD_IP", "127.0.0.1"),
        }
        if container.arguments[:1] != (EXECUTOR,):
            return Launch((*container.command, *container.arguments), environment)
        return Launch(_executor(str(found.java), class_path, container, folder), environment)

    return launch


def _executor(
    java: str, class_path: list[str], container: ContainerCommand, folder: Path
) -> list[str]:
    given = container.environment
    missing = [name for name in (*_OPTIONS.values(), "SPARK_EXECUTOR_MEMORY") if name not in given]
    if missing:
        raise InputError(
            where=f"container {container.name}",
            what=f"lacks the variables {', '.join(missing)}",
            remedy="let Spark make the pod, or see what this version of Spark calls them",
        )
    numbered = {int(at[1]): v for k, v in given.items() if (at := _JAVA_OPTION.fullmatch(k))}
    own = [given["SPARK_CLASSPATH"]] if given.get("SPARK_CLASSPATH") else []
    memory = given["SPARK_EXECUTOR_MEMORY"]
    return [
        java,
        *SMALL_NODE_OPTIONS,
        # Sockets of hosts lie there, and a Unix socket's path has to be short.
        f"-Djava.io.tmpdir={folder}",
        *(numbered[number] for number in sorted(numbered)),
        f"-Xmx{memory}",
        "-cp",
        ":".join((*own, *class_path)),
        BACKEND,
        *(part for option, name in _OPTIONS.items() for part in (option, given[name])),
    ]

"""One submission in cluster mode: Spark's own client makes the driver's pod, and ends.

Pod templates are handed over as files. The client finds the cluster by the kubeconfig; nothing else
of this machine's environment that is for Spark or Kubernetes reaches it.
"""

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rekindle.model.errors import InputError, RunError
from rekindle_local import spark_distribution

SUBMIT_SECONDS_MAX = 180
SMALL_OPTIONS = shlex.join(spark_distribution.SMALL_NODE_OPTIONS)
DRIVER, EXECUTOR = "spark-kubernetes-driver", "spark-kubernetes-executor"
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Submission:
    """What spark-submit is told. `driver` and `executor` are templates of pods."""

    namespace: str
    name: str
    file: str
    arguments: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    driver: Body = field(default_factory=dict)
    executor: Body = field(default_factory=dict)


def command(submission: Submission, *, program: str, master: str, folder: Path) -> list[str]:
    """The command line; templates are in `folder`."""
    conf = {
        "spark.kubernetes.namespace": submission.namespace,
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.kubernetes.driver.podTemplateFile": str(folder / "driver.json"),
        "spark.kubernetes.driver.podTemplateContainerName": DRIVER,
        "spark.kubernetes.executor.podTemplateFile": str(folder / "executor.json"),
        "spark.kubernetes.executor.podTemplateContainerName": EXECUTOR,
        **submission.conf,
    }
    said = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    options = ["--master", master, "--deploy-mode", "cluster", "--name", submission.name]
    return [program, *options, *said, submission.file, *submission.arguments]


def submit(submission: Submission, *, kubeconfig: Path, folder: Path) -> None:
    """Submit, and return when the driver's pod has been made.

    Raises `RunError` with what Spark says when it has not been, or not within a while.
    """
    found = spark_distribution.find_distribution()
    configuration = folder / "conf"
    configuration.mkdir(parents=True, exist_ok=True)
    _write(folder / "driver.json", submission.driver, DRIVER)
    _write(folder / "executor.json", submission.executor, EXECUTOR)
    line = command(
        submission,
        program=str(found.spark_home / "bin" / "spark-submit"),
        master=f"k8s://{_server(kubeconfig)}",
        folder=folder,
    )
    # Nor the Python of this machine, which would be looked for in the pods.
    inherited = {
        name: value
        for name, value in found.environment(configuration, {}).items()
        if not name.startswith(("PYSPARK_", "KUBE"))
    }
    environment = {
        **inherited,
        "KUBECONFIG": str(kubeconfig),
        # The client is one of many on a small machine, and does little.
        "SPARK_LAUNCHER_OPTS": SMALL_OPTIONS,
        "SPARK_SUBMIT_OPTS": SMALL_OPTIONS,
    }
    what = _run(line, environment, folder / "log")
    if what:
        raise RunError(
            where=f"spark-submit of {submission.namespace}/{submission.name}",
            what=what,
            remedy=f"see {folder / 'log'}",
        )


def _run(line: Sequence[str], environment: Mapping[str, str], log: Path) -> str:
    """Run a program that prints to a log; why it has not succeeded, "" where it has."""
    with log.open("wb") as said:
        try:
            done = subprocess.run(
                line,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                timeout=SUBMIT_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"has not ended after {SUBMIT_SECONDS_MAX} s"
    if done.returncode == 0:
        return ""
    cause = _cause(log.read_text(encoding="utf-8", errors="replace"))
    return cause or f"ended with code {done.returncode}"


def _write(file: Path, template: Body, container: str) -> None:
    """A template as Spark takes it: a pod with the container that it will fill in."""
    spec = dict(template.get("spec") or {})
    spec["containers"] = spec.get("containers") or [{"name": container}]
    body = {"apiVersion": "v1", "kind": "Pod", **template, "spec": spec}
    file.write_text(json.dumps(body), encoding="utf-8")


def _server(kubeconfig: Path) -> str:
    """The API server of the current context."""
    said = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    contexts = {item["name"]: item["context"] for item in said.get("contexts") or ()}
    clusters = {item["name"]: item["cluster"] for item in said.get("clusters") or ()}
    context = contexts.get(said.get("current-context"), {})
    server = clusters.get(context.get("cluster"), {}).get("server")
    if not server:
        raise InputError(
            where=f"kubeconfig {kubeconfig}",
            what="names no API server",
            remedy="give one with a current context",
        )
    return str(server)


def _cause(said: str) -> str:
    """The line that tells most: an exception's, else the last one."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told: Sequence[str] = [line for line in lines if "Exception" in line or "Error" in line]
    caused = [line for line in told if line.startswith("Caused by:")]
    return ([*caused, *told][:1] or lines[-1:] or [""])[0][:300]

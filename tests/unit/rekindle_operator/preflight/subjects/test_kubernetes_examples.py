"""The examples for Kubernetes: preflight finds nothing in them, and all three say the same."""

import re
import runpy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from rekindle.model import settings
from rekindle_operator.preflight import preflight_checks
from rekindle_operator.preflight.preflight_findings import PreflightFinding
from rekindle_operator.preflight.subjects import apache_operator, kubeflow_operator, manifest_schema
from rekindle_operator.preflight.subjects.environment import PreflightEnvironment
from rekindle_operator.preflight.subjects.workloads import Workload
from rekindle_spark.pipeline.replay import Replay
from rekindle_testing.operator_builders import make_class, make_policy

FOLDER = Path(__file__).parents[5] / "examples" / "kubernetes"
SCRIPT = (FOLDER / "spark-submit.sh").read_text()
READERS = {"kubeflow": kubeflow_operator.workload, "apache": apache_operator.workload}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Body = dict[str, Any]


def manifest(name: str) -> Body:
    found: Body = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return found


def submitted() -> dict[str, str]:
    """The settings of the command line."""
    return dict(re.findall(r"--conf (\S+?)=(\S+) \\", SCRIPT))


def findings(subject: Workload) -> list[PreflightFinding]:
    policy = make_policy("everything", namespace="factory")
    around = PreflightEnvironment(
        policies=(policy,),
        classes={"default": make_class("default", fencing={"mode": "DeleteNode"})},
        claims={"shared": ("ReadWriteMany",)},
        quotas=(),
        limit_ranges=(),
        nodes=(),
    )
    return [*preflight_checks.application(subject, around)]


@pytest.mark.parametrize("name", READERS)
def test_preflight_finds_nothing_in_a_manifest(name: str) -> None:
    body = manifest(name)
    manifest_schema.check(body)
    assert findings(READERS[name](body)) == []


def test_all_three_run_the_same_with_the_same_sizes() -> None:
    from_kubeflow, from_apache = (READERS[name](manifest(name)) for name in READERS)
    line = submitted()
    assert from_kubeflow.executors == from_apache.executors == int(line["spark.executor.instances"])
    assert from_kubeflow.executor == from_apache.executor
    assert from_kubeflow.driver == from_apache.driver
    arguments = SCRIPT.split("local:///opt/rekindle/run.py", 1)[1].replace("\\", " ").split()
    assert manifest("kubeflow")["spec"]["arguments"] == arguments
    assert manifest("apache")["spec"]["driverArgs"] == arguments
    for key in ("spark.executor.maxNumFailures", "spark.executor.failuresValidityInterval"):
        assert (from_kubeflow.conf or {})[key] == (from_apache.conf or {})[key] == line[key]


def test_executors_of_all_three_keep_apart_from_those_with_the_same_labels() -> None:
    line = submitted()
    labels = {
        "executor": {"spark-role": "executor", "rekindle.dev/application": "machines"},
        "kubeflow": {"spark-role": "executor", "sparkoperator.k8s.io/app-name": "machines"},
        "apache": {"spark-role": "executor", "spark.operator/spark-app-name": "machines"},
    }
    assert line["spark.kubernetes.executor.label.rekindle.dev/application"] == "machines"
    for name, wanted in labels.items():
        spec = manifest(name)["spec"]
        if name == "kubeflow":
            spec = spec["executor"]
        elif name == "apache":
            spec = spec["executorSpec"]["podTemplateSpec"]["spec"]
        (term,) = spec["affinity"]["podAntiAffinity"][REQUIRED]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        assert term["labelSelector"]["matchLabels"] == wanted


def test_the_settings_fit_the_number_of_executors() -> None:
    found = settings.load(FOLDER / "settings.yaml")
    assert found.runtime.nodes_expected == int(submitted()["spark.executor.instances"])


def test_the_pipeline_is_one(tmp_path: Path) -> None:
    source = (FOLDER / "machines.py").read_text()
    (tmp_path / "machines.py").write_text(source.replace("/shared/input", str(tmp_path)))
    rows = {
        "event_time": pa.array([1, 2], pa.timestamp("us")),
        "machine": ["a", "b"],
        "celsius": [1.0, 2.0],
    }
    pq.write_table(pa.table(rows), tmp_path / "readings.parquet")
    built = runpy.run_path(str(tmp_path / "machines.py"))["pipeline"]()
    assert {step.name for step in built.steps.values() if step.kind == "sink"} == {
        "minutes",
        "hottest-machines",
    }


def test_the_readings_are_what_the_pipeline_reads(tmp_path: Path) -> None:
    (container,) = manifest("readings")["spec"]["template"]["spec"]["containers"]
    (program,) = container["args"]
    shorter = program.replace("HOURS, MACHINES = 24, 50", "HOURS, MACHINES = 1, 50")
    (tmp_path / "program.py").write_text(shorter.replace("/shared", str(tmp_path)))
    runpy.run_path(str(tmp_path / "program.py"))
    source = (FOLDER / "machines.py").read_text().replace("/shared", str(tmp_path))
    (tmp_path / "machines.py").write_text(source)
    built = runpy.run_path(str(tmp_path / "machines.py"))["pipeline"]()
    readings = Replay(str(tmp_path / "input" / "readings.parquet"), event_time="event_time")
    readings.check("readings")
    assert readings.file_rows == 3600 * 50
    assert built.steps["readings"].schema == readings.schema

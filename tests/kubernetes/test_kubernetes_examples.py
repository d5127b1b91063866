"""The examples for Kubernetes on a real API server: each object is taken as it stands.

Kubeflow's SparkApplication is checked against its own definition. That of apache's cannot be had
here; its fields are checked against a list of those that its definition has.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))

import foreign_crds

from testbed.control_plane import ControlPlane
from testbed.foreign_crds import install

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "kubernetes"
KUBECTL_SECONDS_MAX = 60
# Of apache's definition, version v1, what an example may have.
APACHE = {
    "spec": {
        *("applicationTolerations", "driverArgs", "driverSpec", "executorSpec", "mainClass"),
        *("pyFiles", "runtimeVersions", "sparkConf"),
    },
    "applicationTolerations": {
        *("applicationTimeoutConfig", "instanceConfig", "resourceRetainPolicy", "restartConfig"),
    },
    "restartConfig": {
        *("maxRestartAttempts", "restartBackoffMillis", "restartCounterResetMillis"),
        "restartPolicy",
    },
    "instanceConfig": {"initExecutors", "maxExecutors", "minExecutors"},
    "runtimeVersions": {"jdkVersion", "scalaVersion", "sparkVersion"},
    "driverSpec": {"podTemplateSpec"},
    "executorSpec": {"podTemplateSpec"},
}
Object = dict[str, Any]


def objects(name: str) -> list[Object]:
    return [*yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text())]


@pytest.fixture(scope="module")
def kinds(control_plane: ControlPlane) -> None:
    """Ours, and both kinds of SparkApplication."""
    control_plane.restore()
    definitions = [yaml.safe_load(file.read_text()) for file in (ROOT / "crds").glob("*.yaml")]
    with control_plane.api_client() as api_client:
        install(api_client, [*definitions, *foreign_crds.spark_applications()])


class Taken:
    """Asks the API server whether it would take an object, and makes nothing."""

    def __init__(self, kubectl: Path, plane: ControlPlane, namespace: str) -> None:
        options = ["--kubeconfig", str(plane.kubeconfig), "--namespace", namespace]
        how = ["--server-side", "--dry-run=server", "--validate=strict", "--output=yaml"]
        self._command = [str(kubectl), "apply", *options, *how, "--filename=-"]
        self._namespace = namespace

    def __call__(self, record: Object) -> Object:
        """What would be there then."""
        record["metadata"] = {**record.get("metadata", {}), "namespace": self._namespace}
        done = subprocess.run(
            self._command,
            input=yaml.safe_dump(record),
            capture_output=True,
            text=True,
            timeout=KUBECTL_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: Object = yaml.safe_load(done.stdout)
        return found


@pytest.fixture
def taken(kubectl: Path, control_plane: ControlPlane, namespace: str, kinds: None) -> Taken:
    assert kinds is None
    return Taken(kubectl, control_plane, namespace)


def test_what_a_namespace_needs_is_taken(taken: Taken) -> None:
    first, *others = objects("namespace")
    assert first["kind"] == "Namespace"
    for record in others:
        assert record["metadata"]["namespace"] == first["metadata"]["name"]
        taken(record)


@pytest.mark.parametrize("name", ["kubeflow", "apache"])
def test_an_application_is_taken_by_its_definition(taken: Taken, name: str) -> None:
    (record,) = objects(name)
    assert taken(record)["spec"].items() >= record["spec"].items(), "no field was pruned"


def test_fields_for_apaches_operator_are_those_of_its_definition() -> None:
    def check(name: str, part: Any) -> None:
        if name in APACHE:
            assert part.keys() <= APACHE[name], name
            for inner, value in part.items():
                check(inner, value)

    (record,) = objects("apache")
    check("spec", record["spec"])


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("driver", ()),
        ("executor", ()),
        ("apache", ("spec", "driverSpec", "podTemplateSpec")),
        ("apache", ("spec", "executorSpec", "podTemplateSpec")),
    ],
)
def test_a_template_is_that_of_a_pod(taken: Taken, name: str, path: tuple[str, ...]) -> None:
    (part,) = objects(name)
    for step in path:
        part = part[step]
    for container in part["spec"]["containers"]:
        container["image"] = "spark"
    metadata = {"name": "template", "labels": part.get("metadata", {}).get("labels", {})}
    taken({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": part["spec"]})

"""SparkApplications of both groups, submitted for real: pods, owners, statuses, another start."""

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

sys.path.insert(0, str(Path(__file__).parents[1]))

import foreign_crds

from rekindle_local import process_sets
from submission.submission_loop import SparkOperators
from testbed.control_plane import ControlPlane
from testbed.foreign_crds import install
from testbed.node_objects import NodeShape
from testbed.simulated_kubelets import SimulatedKubelets

EXAMPLES = Path(__file__).parents[3] / "examples" / "kubernetes"
OPERATORS = "spark-operators"
WAIT_SECONDS_MAX = 150.0
Body = dict[str, Any]


class Namespace:
    """A namespace with nodes, and both Spark operators at work."""

    def __init__(self, plane: ControlPlane, name: str, operators: SparkOperators) -> None:
        self.name, self.operators = name, operators
        self._client = plane.api_client()
        self.core: Any = client.CoreV1Api(self._client)
        self.custom: Any = client.CustomObjectsApi(self._client)

    def close(self) -> None:
        close: Any = self._client.close
        close()

    def start(self, name: str) -> tuple[str, str]:
        """Create the application of an example; its group and version."""
        body = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
        body["metadata"]["namespace"] = self.name
        group, _, version = body["apiVersion"].partition("/")
        self.custom.create_namespaced_custom_object(
            group, version, self.name, "sparkapplications", body
        )
        return group, version

    def application(self, group: str, version: str) -> Body:
        found: Body = self.custom.get_namespaced_custom_object(
            group, version, self.name, "sparkapplications", "machines"
        )
        return found

    def driver(self) -> Body | None:
        """The only driver's pod."""
        answer = self.core.list_namespaced_pod(
            self.name, label_selector="spark-role=driver", _preload_content=False
        )
        found: list[Body] = json.loads(answer.data)["items"]
        assert len(found) < 2
        return found[0] if found else None

    def await_driver(self, phase: str, *, other_than: str = "") -> Body:
        """The driver's pod once it is in a phase."""

        def is_there() -> bool:
            found = self.driver()
            return (
                found is not None
                and found["metadata"]["uid"] != other_than
                and found["status"]["phase"] == phase
            )

        there = process_sets.await_condition(is_there, limit_seconds=WAIT_SECONDS_MAX)
        assert there, f"{self.driver()} {self.operators.failures}"
        found = self.driver()
        assert found is not None
        return found

    def await_state(self, group: str, version: str, *states: str) -> Body:
        def state() -> str:
            status = self.application(group, version).get("status", {})
            found = status.get("applicationState", {}).get("state")
            return str(found or status.get("currentState", {}).get("currentStateSummary"))

        there = process_sets.await_condition(
            lambda: state() in states, limit_seconds=WAIT_SECONDS_MAX, interval_seconds=0.2
        )
        assert there, f"is {state()} {self.operators.failures}"
        return self.application(group, version)


@pytest.fixture
def place(
    control_plane: ControlPlane,
    api_client: client.ApiClient,
    namespace: str,
    nodes: SimulatedKubelets,
    tmp_path: Path,
) -> Iterator[Namespace]:
    install(api_client, foreign_crds.spark_applications())
    nodes.add(1, NodeShape(cpu="8"))
    core: Any = client.CoreV1Api(api_client)
    core.create_namespaced_service_account(namespace, {"metadata": {"name": "spark"}})
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    claim |= {"storageClassName": "", "volumeName": namespace}
    volume = {"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/shared"}}
    volume |= {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    core.create_persistent_volume({"metadata": {"name": namespace}, "spec": volume})
    metadata = {"name": "shared"}
    core.create_namespaced_persistent_volume_claim(namespace, {"metadata": metadata, "spec": claim})
    core.create_namespaced_service_account(namespace, {"metadata": {"name": OPERATORS}})
    rbac: Any = client.RbacAuthorizationV1Api(api_client)
    group, subject = "rbac.authorization.k8s.io", {"kind": "ServiceAccount", "name": OPERATORS}
    rbac.create_cluster_role_binding(
        {
            "metadata": {"name": namespace},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{**subject, "namespace": namespace}],
        }
    )
    kubeconfig = control_plane.service_account_kubeconfig(namespace, OPERATORS)
    with SparkOperators(kubeconfig, tmp_path / "submissions") as operators:
        found = Namespace(control_plane, namespace, operators)
        try:
            yield found
        finally:
            found.close()
            core.delete_persistent_volume(namespace)
            rbac.delete_cluster_role_binding(namespace)


def test_kubeflows_driver_is_its_own_and_is_made_again_when_the_old_one_has_gone(
    place: Namespace,
) -> None:
    kind = place.start("kubeflow")
    driver = place.await_driver("Running")
    metadata, (container,) = driver["metadata"], driver["spec"]["containers"]
    application = place.await_state(*kind, "RUNNING")
    assert metadata["name"] == "machines-driver"
    assert (
        metadata["labels"].items()
        >= {
            "rekindle.dev/inject": "true",
            "spark-role": "driver",
            "sparkoperator.k8s.io/app-name": "machines",
            "sparkoperator.k8s.io/launched-by-spark-operator": "true",
            "sparkoperator.k8s.io/submission-id": application["status"]["submissionID"],
        }.items()
    )
    (owner,) = metadata["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (application["metadata"]["uid"], True)
    assert application["status"]["sparkApplicationId"] == metadata["labels"]["spark-app-selector"]
    assert container["name"] == "spark-kubernetes-driver"
    assert container["args"][0] == "driver"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert driver["spec"]["securityContext"]["runAsUser"] == 185
    assert {"/tmp", "/shared", "/pipeline"} <= {m["mountPath"] for m in container["volumeMounts"]}

    place.core.delete_namespaced_pod("machines-driver", place.name, grace_period_seconds=0)
    place.await_state(*kind, "FAILING", "PENDING_RERUN", "SUBMITTED")
    again = place.await_driver("Running", other_than=metadata["uid"])
    assert again["metadata"]["name"] == "machines-driver"
    assert place.await_state(*kind, "RUNNING")["status"]["executionAttempts"] == 2
    assert place.operators.failures == []


def test_apaches_driver_has_the_number_of_its_attempt_in_its_name(place: Namespace) -> None:
    kind = place.start("apache")
    driver = place.await_driver("Running")
    metadata = driver["metadata"]
    assert metadata["name"] == "machines-0-driver"
    assert (
        metadata["labels"].items()
        >= {
            "rekindle.dev/inject": "true",
            "spark-role": "driver",
            "spark.operator/name": "spark-kubernetes-operator",
            "spark.operator/spark-app-name": "machines",
        }.items()
    )
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner.get("controller")) == ("SparkApplication", None)
    place.await_state(*kind, "DriverReady", "DriverStarted")

    failed = {"status": {"phase": "Failed"}}
    place.core.patch_namespaced_pod_status("machines-0-driver", place.name, failed)
    place.await_state(*kind, "ScheduledToRestart", "DriverRequested")
    again = place.await_driver("Running", other_than=metadata["uid"])
    assert again["metadata"]["name"] == "machines-1-driver"
    status = place.await_state(*kind, "DriverReady", "DriverStarted")["status"]
    history = sorted(status["stateTransitionHistory"].items(), key=lambda item: int(item[0]))
    moved = {
        item["currentStateSummary"]: datetime.fromisoformat(item["lastTransitionTime"])
        for _, item in history
    }
    waited = moved["DriverRequested"] - moved["ScheduledToRestart"]
    assert waited.total_seconds() > 4, "it waits before it tries again"
    assert status["currentAttemptSummary"]["attemptInfo"]["id"] == 1
    assert place.operators.failures == []

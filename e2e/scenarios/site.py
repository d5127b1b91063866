"""A cluster with Rekindle on it: nodes in three zones, images, the chart, a namespace for Spark.

    zone-a, zone-b, zone-c     a node each for ZooKeeper, operator and drivers
                               nodes for executors, as many as a scenario asks for

Everything that it makes goes with it. Scenarios begin with one.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from kubernetes import client, utils

from images import building
from scenarios import helm
from submission import spark_submit
from submission.spark_submit import Submission
from testbed import binaries
from testbed.binaries import CONTROL_PLANE, HELM, NODE
from testbed.cluster.cluster import Cluster
from testbed.cluster.configuration import NodeSpec

__all__ = ["EXECUTOR", "GROUP", "ROLE", "SERVICE", "VERSION", "ZONES", "Site"]

ZONES = ("zone-a", "zone-b", "zone-c")
ROLE = "example.com/role"
SERVICE = NodeSpec(cores=1.0, memory_mib=3_072, labels={ROLE: "service"})
EXECUTOR = NodeSpec(cores=0.3, memory_mib=1_536, labels={ROLE: "executor"})
GROUP, VERSION = "rekindle.dev", "v1alpha1"

Object = Mapping[str, Any]


@dataclass(slots=True)
class Site:
    """A context manager; inside, operator and ZooKeeper are ready and nothing is submitted yet.

    `directory` takes logs and the shared folder, `class_spec` is the class's, beside the defaults.
    """

    directory: Path
    class_spec: Object = field(default_factory=dict)
    executors: int = 10
    namespace: str = "flights"
    cluster: Cluster = field(init=False)
    spark_image: str = field(init=False)
    core: Any = field(init=False)
    custom: Any = field(init=False)
    _held: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held.close()

    @property
    def shared(self) -> Path:
        """The folder that all nodes and this machine have."""
        return self.cluster.shared

    def submit(self, submission: Submission) -> None:
        """Start an application; returns when its driver's pod has been made."""
        # Spark's client does not read the administrator's key, but it does read a token.
        kubeconfig = self.cluster.plane.service_account_kubeconfig(self.namespace, "spark")
        spark_submit.submit(
            submission, kubeconfig=kubeconfig, folder=self.directory / submission.name
        )

    def _start(self) -> None:
        built = {name: building.build(name) for name in building.IMAGES}
        self.spark_image = built["spark"].reference
        programs = binaries.find((*CONTROL_PLANE, *NODE, HELM))
        images = [image.archive for image in built.values()]
        cluster = Cluster(directory=self.directory / "cluster", images=images, programs=programs)
        self.cluster = self._held.enter_context(cluster)
        cluster.add(len(ZONES), SERVICE, zones=ZONES)
        api_client = self._held.enter_context(cluster.plane.api_client())
        self.core = client.CoreV1Api(api_client)
        self.custom = client.CustomObjectsApi(api_client)
        self._make_volumes()
        binaries.say("installing the chart")
        references = {name: image.reference for name, image in built.items()}
        values = _values(references, self.class_spec)
        helm.install(programs[HELM], cluster.plane.kubeconfig, values, self.directory / "helm")
        cluster.add(self.executors, EXECUTOR, zones=ZONES)
        self._make_namespace(api_client)

    def _make_volumes(self) -> None:
        """Folders of this machine for the claims of ZooKeeper, as no storage class makes them."""
        for number in range(len(ZONES)):
            folder = self.shared / f"zookeeper-{number}"
            folder.mkdir()
            folder.chmod(0o777)
            self.core.create_persistent_volume(
                {
                    "metadata": {"name": folder.name},
                    "spec": {
                        "capacity": {"storage": "4Gi"},
                        "accessModes": ["ReadWriteOnce"],
                        "hostPath": {"path": str(folder)},
                    },
                }
            )

    def _make_namespace(self, api_client: client.ApiClient) -> None:
        """An account for drivers with its rights, and a policy for them."""
        text = (Path(__file__).parent / "namespace.yaml").read_text(encoding="utf-8")
        for body in yaml.safe_load_all(text.replace("NAMESPACE", self.namespace)):
            if body["kind"] == "RecoveryPolicy":
                self.custom.create_namespaced_custom_object(
                    GROUP, VERSION, self.namespace, "recoverypolicies", body
                )
            else:
                create: Any = utils.create_from_dict
                create(api_client, body)


def _values(references: Mapping[str, str], class_spec: Object) -> Object:
    """Values of the chart: images of this machine, and service nodes for all that it brings."""
    operator, spark = (_image(references[name]) for name in ("operator", "spark"))
    service = {ROLE: "service"}
    return {
        "image": operator,
        "operator": {"nodeSelector": service},
        "zookeeper": {"image": spark, "nodeSelector": service},
        "recoveryClass": {"spec": dict(class_spec)},
    }


def _image(reference: str) -> Object:
    repository, _, tag = reference.rpartition(":")
    return {"repository": repository, "tag": tag, "pullPolicy": "Never"}

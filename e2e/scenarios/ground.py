"""A cluster that has what Rekindle comes upon: images, volumes, Spark operators, and no node yet.

No storage class makes volumes here, so there is one for each server of ZooKeeper, and one that all
nodes share. Both Spark operators are at work. Everything that it makes goes with it. `site` puts
Rekindle there, and so does whoever follows docs/quickstart.md.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kubernetes import client

from images import building
from submission.tending import SparkOperators
from testbed import binaries, definitions
from testbed.binaries import CONTROL_PLANE, HELM, KUBECTL, NODE
from testbed.cluster.cluster import Cluster

__all__ = ["Ground"]

ZOOKEEPERS = 3
CLAIM = "claim"
OPERATORS = "spark-operators"


@dataclass(slots=True)
class Ground:
    """A context manager; inside, nodes can be added. `directory` takes logs and the shared folder.

    `images` are names of the images that its nodes have, by our names for them.
    """

    directory: Path
    cluster: Cluster = field(init=False)
    operators: SparkOperators = field(init=False)
    images: Mapping[str, str] = field(init=False)
    programs: Mapping[str, Path] = field(init=False)
    core: Any = field(init=False)
    custom: Any = field(init=False)
    api_client: client.ApiClient = field(init=False)
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
    def claim(self) -> Path:
        """The folder of the volume that all nodes share."""
        return self.cluster.shared / CLAIM

    def _start(self) -> None:
        built = {name: building.build(name) for name in building.IMAGES}
        self.images = {name: image.reference for name, image in built.items()}
        self.programs = binaries.find((*CONTROL_PLANE, *NODE, HELM, KUBECTL))
        kinds = definitions.spark_applications()
        cluster = Cluster(
            directory=self.directory / "cluster",
            images=[image.archive for image in built.values()],
            programs=self.programs,
        )
        self.cluster = self._held.enter_context(cluster)
        self.api_client = self._held.enter_context(cluster.plane.api_client())
        self.core = client.CoreV1Api(self.api_client)
        self.custom = client.CustomObjectsApi(self.api_client)
        for number in range(ZOOKEEPERS):
            self._make_volume(f"zookeeper-{number}", "4Gi", "ReadWriteOnce")
        self._make_volume(CLAIM, "20Gi", "ReadWriteMany")
        definitions.install(self.api_client, kinds)
        self._start_operators()

    def _make_volume(self, name: str, storage: str, mode: str) -> None:
        """A folder of this machine for a claim, as no storage class makes one."""
        folder = self.cluster.shared / name
        folder.mkdir()
        folder.chmod(0o777)  # containers write there as whoever they are
        spec = {"capacity": {"storage": storage}, "accessModes": [mode]}
        spec |= {"hostPath": {"path": str(folder)}}
        self.core.create_persistent_volume({"metadata": {"name": name}, "spec": spec})

    def _start_operators(self) -> None:
        """Spark's client does not read the administrator's key, but it does read a token."""
        subject = {"kind": "ServiceAccount", "name": OPERATORS, "namespace": "kube-system"}
        role = {"kind": "ClusterRole", "name": "cluster-admin"}
        self.core.create_namespaced_service_account(
            subject["namespace"], {"metadata": {"name": OPERATORS}}
        )
        rbac: Any = client.RbacAuthorizationV1Api(self.api_client)
        rbac.create_cluster_role_binding(
            {
                "metadata": {"name": OPERATORS},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", **role},
                "subjects": [subject],
            }
        )
        plane = self.cluster.plane
        kubeconfig = plane.service_account_kubeconfig(subject["namespace"], OPERATORS)
        operators = SparkOperators(kubeconfig, self.directory / "submissions")
        self.operators = self._held.enter_context(operators)

"""A cluster that has what Rekindle comes upon: images, volumes, Spark operators, and no node yet.

No storage class makes volumes here, so there is one for each server of ZooKeeper, and one that all
nodes share. Both Spark operators are at work. Everything that it makes goes with it; of a cluster
that was given, definitions stay. `site` puts Rekindle there, and so does whoever follows
docs/quickstart.md.
"""

import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from images import building
from rekindle_local import processes
from scenarios.clusters import CONTEXT, Cluster, GivenCluster
from submission.tending import SparkOperators
from testbed import access, binaries, definitions
from testbed.binaries import CONTROL_PLANE, HELM, KUBECTL, NODE
from testbed.cluster import cluster as own

__all__ = ["Ground"]

VOLUMES = tuple(f"zookeeper-{number}" for number in range(3))
CLAIM = "claim"
NAMESPACES = ("factory", "rekindle")  # the examples', and the chart's
OPERATORS, SYSTEM = "spark-operators", "kube-system"
TOKEN_SECONDS = 86_400
REMOVED_SECONDS_MAX = 300.0


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
    held: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.held.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.held.close()

    @property
    def claim(self) -> Path:
        """The folder of the volume that all nodes share."""
        return self.cluster.shared / CLAIM

    def start(self) -> None:
        """What is held from the entry on."""
        built = {name: building.build(name) for name in building.IMAGES}
        self.images = {name: image.reference for name, image in built.items()}
        context = os.environ.get(CONTEXT)
        nodes = () if context else (*CONTROL_PLANE, *NODE)
        self.programs = binaries.find((*nodes, HELM, KUBECTL))
        kinds = definitions.spark_applications()
        archives = [image.archive for image in built.values()]
        self.cluster = self.held.enter_context(self._make_cluster(context, archives))
        self.api_client = self.held.enter_context(access.make_client(self.cluster.kubeconfig))
        self.core = client.CoreV1Api(self.api_client)
        self.custom = client.CustomObjectsApi(self.api_client)
        if context:
            self.held.callback(self._give_back)
        for name in VOLUMES:
            self._make_volume(name, "4Gi", "ReadWriteOnce")
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
        subject = {"kind": "ServiceAccount", "name": OPERATORS, "namespace": SYSTEM}
        role = {"kind": "ClusterRole", "name": "cluster-admin"}
        self.core.create_namespaced_service_account(SYSTEM, {"metadata": {"name": OPERATORS}})
        rbac: Any = client.RbacAuthorizationV1Api(self.api_client)
        rbac.create_cluster_role_binding(
            {
                "metadata": {"name": OPERATORS},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", **role},
                "subjects": [subject],
            }
        )
        operators = SparkOperators(self._token_kubeconfig(), self.directory / "submissions")
        self.operators = self.held.enter_context(operators)

    def _token_kubeconfig(self) -> Path:
        answer = self.core.create_namespaced_service_account_token(
            OPERATORS, SYSTEM, {"spec": {"audiences": [], "expirationSeconds": TOKEN_SECONDS}}
        )
        reached: Any = self.api_client.configuration
        path = self.directory / "operators.yaml"
        self.held.callback(path.unlink, missing_ok=True)  # reports are shown to others
        return access.write_kubeconfig(
            path,
            server=reached.host,
            authority=Path(reached.ssl_ca_cert),
            user=OPERATORS,
            credential=access.token_credential(answer.status.token),
        )

    def _give_back(self) -> None:
        """Remove what was made on a cluster that stays. It is called after a failure too, so what
        is not there is no matter."""
        rbac: Any = client.RbacAuthorizationV1Api(self.api_client)
        removals = [
            *(partial(self.core.delete_namespace, name) for name in NAMESPACES),
            *(partial(self.core.delete_persistent_volume, name) for name in (*VOLUMES, CLAIM)),
            partial(self.core.delete_namespaced_service_account, OPERATORS, SYSTEM),
            partial(rbac.delete_cluster_role_binding, OPERATORS),
        ]
        for remove in removals:
            with suppress(ApiException):
                remove()
        processes.await_condition(self._is_given_back, limit_seconds=REMOVED_SECONDS_MAX)

    def _is_given_back(self) -> bool:
        there = {item.metadata.name for item in self.core.list_namespace().items}
        return not there & set(NAMESPACES)

    def _make_cluster(self, context: str | None, images: list[Path]) -> Cluster:
        folder = self.directory / "cluster"
        if context:
            return GivenCluster(context, folder, os.environ, self.programs[KUBECTL])
        return own.Cluster(directory=folder, images=images, programs=self.programs)

"""A cluster that has what Rekindle comes upon: images, volumes, Spark operators, and no node yet.

No storage class makes volumes here, so there is one for each server of ZooKeeper, and one that all
nodes share. Both Spark operators are at work. Everything that it makes goes with it; of a cluster
that was given definitions stay, and one that has anything of it already is refused. `deployment`
puts Rekindle there, and so does whoever follows docs/quickstart.md.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from kubernetes import client

from images import image_builder
from images.image_builder import Built
from scenarios import cleanup_stack, helm_chart
from scenarios.footprint import CLAIM, NAMESPACES, OPERATORS, SYSTEM, VOLUMES, Footprint
from scenarios.kube_contexts import CONTEXT
from scenarios.scenario_clusters import GivenCluster, ScenarioCluster
from submission.submission_loop import SparkOperators
from testbed import foreign_crds, kubeconfigs, test_programs
from testbed.cluster import node_cluster as own
from testbed.test_programs import CONTROL_PLANE, HELM, KUBECTL, NODE

TOKEN_SECONDS = 86_400


@dataclass(slots=True)
class Ground:
    """A context manager; inside, nodes can be added. `directory` takes logs and the shared folder.

    `images` are names of the images that its nodes have, by our names for them.
    """

    directory: Path
    cluster: ScenarioCluster = field(init=False)
    operators: SparkOperators = field(init=False)
    images: Mapping[str, str] = field(init=False)
    programs: Mapping[str, Path] = field(init=False)
    core: Any = field(init=False)
    custom: Any = field(init=False)
    rights: Any = field(init=False)
    api_client: client.ApiClient = field(init=False)
    held: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.held.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.held.close()

    @property
    def claim(self) -> Path:
        """The folder of the volume that all nodes share."""
        return self.cluster.shared / CLAIM

    def start(self) -> None:
        """What is held from the entry on."""
        built = {name: image_builder.build(name) for name in image_builder.IMAGES}
        self.images = {name: image.reference for name, image in built.items()}
        context = os.environ.get(CONTEXT)
        nodes = () if context else (*CONTROL_PLANE, *NODE)
        self.programs = test_programs.find((*nodes, HELM, KUBECTL))
        kinds = foreign_crds.spark_applications()
        self.cluster = self.held.enter_context(self._make_cluster(context, [*built.values()]))
        self.api_client = self.held.enter_context(kubeconfigs.make_client(self.cluster.kubeconfig))
        self.core = client.CoreV1Api(self.api_client)
        self.custom = client.CustomObjectsApi(self.api_client)
        self.rights = client.RbacAuthorizationV1Api(self.api_client)
        self._furnish(kinds)

    @property
    def is_given(self) -> bool:
        """Whether the cluster stays; one of our own is on this machine, and goes."""
        return isinstance(self.cluster, GivenCluster)

    def _furnish(self, kinds: Sequence[Mapping[str, Any]]) -> None:
        """Make what Rekindle comes upon."""
        self._check_absent()
        for name in VOLUMES:
            self._make_volume(name, "4Gi", "ReadWriteOnce")
        self._make_volume(CLAIM, "20Gi", "ReadWriteMany")
        self._clear_at_end()
        foreign_crds.install(self.api_client, kinds)
        self._start_operators()

    def _check_absent(self) -> None:
        """Nothing is removed at the end that was there before."""
        if self.is_given:
            footprint = Footprint(self.core, self.rights, self.custom)
            footprint.check_absent()
            self._at_end("see that all has gone", footprint.await_absent)

    def _clear_at_end(self) -> None:
        """What a chart or a page makes from here on. Nobody else has made it: who comes second to a
        cluster fails at the volumes."""
        for name in NAMESPACES:
            self._at_end(f"remove Namespace {name}", self.core.delete_namespace, name)
        if isinstance(self.cluster, GivenCluster):
            chart = (self.programs[HELM], self.cluster.kubeconfig, self.directory / "helm")
            self._at_end("uninstall the chart", helm_chart.uninstall, *chart)
            # First of all: pods on nodes that are off do not go, nor do their namespaces.
            self._at_end("bring nodes back", self.cluster.revive)

    def _at_end(self, what: str, action: Callable[..., object], *given: object) -> None:
        """On a cluster that stays; with one of our own all goes by itself. The last comes first."""
        if self.is_given:
            self.held.callback(cleanup_stack.attempt, what, partial(action, *given))

    def _make_volume(self, name: str, storage: str, mode: str) -> None:
        """A folder of this machine for a claim, as no storage class makes one."""
        folder = self.cluster.shared / name
        folder.mkdir()
        folder.chmod(0o777)  # containers write there as whoever they are
        spec = {"capacity": {"storage": storage}, "accessModes": [mode]}
        spec |= {"hostPath": {"path": str(folder)}}
        self.core.create_persistent_volume({"metadata": {"name": name}, "spec": spec})
        remove = self.core.delete_persistent_volume
        self._at_end(f"remove PersistentVolume {name}", remove, name)

    def _start_operators(self) -> None:
        """Spark's client does not read the administrator's key, but it does read a token."""
        metadata = {"name": OPERATORS}
        self.core.create_namespaced_service_account(SYSTEM, {"metadata": metadata})
        remove = self.core.delete_namespaced_service_account
        self._at_end(f"remove ServiceAccount {OPERATORS}", remove, OPERATORS, SYSTEM)
        subject = {"kind": "ServiceAccount", "name": OPERATORS, "namespace": SYSTEM}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
        role |= {"name": "cluster-admin"}
        self.rights.create_cluster_role_binding(
            {"metadata": metadata, "roleRef": role, "subjects": [subject]}
        )
        remove = self.rights.delete_cluster_role_binding
        self._at_end(f"remove ClusterRoleBinding {OPERATORS}", remove, OPERATORS)
        operators = SparkOperators(self._token_kubeconfig(), self.directory / "submissions")
        self.operators = self.held.enter_context(operators)

    def _token_kubeconfig(self) -> Path:
        answer = self.core.create_namespaced_service_account_token(
            OPERATORS, SYSTEM, {"spec": {"audiences": [], "expirationSeconds": TOKEN_SECONDS}}
        )
        reached: Any = self.api_client.configuration
        path = self.directory / "operators.yaml"
        self.held.callback(path.unlink, missing_ok=True)  # reports are shown to others
        return kubeconfigs.write_kubeconfig(
            path,
            server=reached.host,
            authority=Path(reached.ssl_ca_cert),
            user=OPERATORS,
            credential=kubeconfigs.token_credential(answer.status.token),
        )

    def _make_cluster(self, context: str | None, built: Sequence[Built]) -> ScenarioCluster:
        folder = self.directory / "cluster"
        if context:
            return GivenCluster(
                context,
                folder,
                os.environ,
                kubectl=self.programs[KUBECTL],
                images={image.reference: _mark(image) for image in built},
            )
        archives = [image.archive for image in built]
        return own.NodeCluster(directory=folder, images=archives, programs=self.programs)


def _mark(image: Built) -> str:
    """A name that no other content has: its tag is the digest in the name of the archive."""
    repository = image.reference.rpartition(":")[0]
    return f"{repository}:{image.archive.stem.rpartition('-')[2]}"

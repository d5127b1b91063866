"""What scenarios make on a cluster, by names that are always the same: so none of it may be there.

The chart's names are fixed too, and the quickstart removes the definitions with all that is of
them: whoever has Rekindle there would lose it. `cluster_setup` asks before it makes anything on a
cluster that stays, and when it has removed it.
"""

from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

from kubernetes.client.exceptions import ApiException

from rekindle.model.errors import InputError, RunError
from rekindle_local import process_sets
from scenarios import helm_chart
from testbed import test_programs

VOLUMES = tuple(f"zookeeper-{number}" for number in range(3))
CLAIM = "claim"
NAMESPACES = ("factory", helm_chart.NAMESPACE)  # the examples', and the chart's
OPERATORS, SYSTEM = "spark-operators", "kube-system"
ROLE = "rekindle-operator"  # the chart's, whatever the release is called
GROUP, VERSION = "rekindle.dev", "v1alpha1"
RESOURCES = ("recoveryclasses", "recoverypolicies", "recoveries")
REMOVED_SECONDS_MAX = 300.0
LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Footprint:
    """Looks for it by these clients."""

    core: Any
    rights: Any
    custom: Any

    def check_absent(self) -> None:
        """Raises `InputError` where anything of it is there."""
        found = self.found()
        if found:
            raise InputError(
                where="the cluster",
                what=f"has {', '.join(found)}, which scenarios make, and remove",
                remedy="if a killed run has left it, remove it as docs/e2e.md shows; or name a "
                "cluster without Rekindle",
            )

    def await_absent(self) -> None:
        """Wait until it has gone. Raises `RunError` where it has not after a while."""
        test_programs.say("waiting until what was made has gone")
        process_sets.await_condition(
            lambda: not self.found(),
            limit_seconds=REMOVED_SECONDS_MAX,
            interval_seconds=LOOK_SECONDS,
        )
        found = self.found()
        if found:
            raise RunError(
                where="the cluster",
                what=f"still has {', '.join(found)}",
                remedy="see what keeps them, and remove them",
            )

    def found(self) -> list[str]:
        """What of it is there, by kinds and names; of our resources how many."""
        accounts = partial(self.core.list_namespaced_service_account, SYSTEM)
        looks = (
            ("Namespace", self.core.list_namespace, NAMESPACES),
            ("PersistentVolume", self.core.list_persistent_volume, (*VOLUMES, CLAIM)),
            ("ServiceAccount", accounts, (OPERATORS,)),
            ("ClusterRoleBinding", self.rights.list_cluster_role_binding, (OPERATORS,)),
            ("ClusterRole", self.rights.list_cluster_role, (ROLE,)),
        )
        named = [
            f"{kind} {item.metadata.name}"
            for kind, look, names in looks
            for item in look().items
            if item.metadata.name in names
        ]
        counts = {plural: self._count(plural) for plural in RESOURCES}
        return [*named, *(f"{count} {plural}.{GROUP}" for plural, count in counts.items() if count)]

    def _count(self, plural: str) -> int:
        try:
            found = self.custom.list_cluster_custom_object(GROUP, VERSION, plural)
        except ApiException as error:
            if error.status != HTTPStatus.NOT_FOUND:  # it is not defined
                raise
            return 0
        return len(found["items"])

"""A registry that has been told of objects, and the applications in it, for tests."""

from collections.abc import Iterable
from typing import Any

import spark_objects as objects
from spark_objects import Body

from rekindle.protocol.store_paths import Place
from rekindle_operator.api import recovery_policy
from rekindle_operator.api.recovery_policy import RecoveryPolicy
from rekindle_operator.cluster.application_matching import MatchedApplication
from rekindle_operator.cluster.cluster_cache import ClusterCache
from rekindle_operator.cluster.nodes import node_seen
from rekindle_operator.cluster.pods import pod_seen
from rekindle_operator.cluster.spark_applications import application_seen

FLIGHTS = Place("flights", "flights")
DRIVERS: dict[str, Any] = {"drivers": {"labelSelector": {"matchLabels": {"spark-role": "driver"}}}}
RESOURCES: dict[str, Any] = {"sparkApplications": {"labelSelector": {}}}


def policy(
    name: str = "all", *, namespace: str = "flights", second: int = 0, **selector: Any
) -> RecoveryPolicy:
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": objects.at(second)}
    return recovery_policy.from_object(
        {"metadata": metadata, "spec": {"selector": selector or DRIVERS | RESOURCES}}
    )


def tell(registry: ClusterCache, item: Body | RecoveryPolicy) -> None:
    """What a shell does with an object of a list or a watch."""
    if isinstance(item, RecoveryPolicy):
        registry.see_policy(item)
    elif item["kind"] == "Node":
        registry.see_node(node_seen(item))
    elif item["kind"] == "SparkApplication":
        registry.see_resource(application_seen(item))
    else:
        seen = pod_seen(item)
        if seen is None:
            registry.forget_pod(item["metadata"]["uid"])
        else:
            registry.see_pod(seen)


def told(*everything: Body | RecoveryPolicy) -> ClusterCache:
    registry = ClusterCache()
    for item in everything:
        tell(registry, item)
    return registry


def application(registry: ClusterCache, place: Place = FLIGHTS) -> MatchedApplication:
    found = registry.application(place)
    assert found is not None
    return found


def numbers(pods: Iterable[Any]) -> list[str]:
    return [pod.executor_id or pod.name for pod in pods]


def untell(registry: ClusterCache, gone: Body | RecoveryPolicy) -> None:
    """What a shell does when an object is gone."""
    if isinstance(gone, RecoveryPolicy):
        registry.forget_policy(gone.metadata.namespace, gone.metadata.name)
    elif gone["kind"] == "SparkApplication":
        seen = application_seen(gone)
        registry.forget_resource(seen.group, seen.namespace, seen.name)
    else:
        registry.forget_pod(gone["metadata"]["uid"])


KUBEFLOW = (
    objects.kubeflow_application(),
    objects.kubeflow_driver(**objects.protected()),
    objects.kubeflow_executor(1),
    objects.kubeflow_executor(10),
    objects.kubeflow_executor(2),
)
APACHE = (
    objects.apache_application(),
    objects.apache_driver(**objects.protected()),
    objects.apache_executor(1),
    objects.apache_executor(2),
)

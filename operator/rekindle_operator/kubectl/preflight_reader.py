"""Objects that preflight looks at, read from the API server.

What the caller may not read is None, and preflight says so; only a server that does not answer ends
it. Pods are asked for by label, so that a cluster of a hundred thousand costs little.
"""

from collections.abc import Iterable

from rekindle_operator.cluster.pods import APPLICATION_LABEL
from rekindle_operator.kubectl.api_connection import (
    CLAIMS,
    CLASSES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    LIMIT_RANGES,
    NODES,
    PODS,
    POLICIES,
    QUOTAS,
    SPARK_APPLICATIONS,
    ApiConnection,
    ApiRefusal,
    Object,
    ResourceKind,
)
from rekindle_operator.kubectl.application_reader import ObjectLists
from rekindle_operator.preflight.subjects import spark_pods
from rekindle_operator.webhook.injection_spec import INJECT_LABEL

# A driver in client mode has none of Spark's labels, but one of ours, if it is to be protected.
SELECTORS = ("spark-role in (driver,executor)", APPLICATION_LABEL, INJECT_LABEL)
FORBIDDEN = 403
PROPERTIES = "spark.properties"
# The chart's Deployment, whatever its namespace. Whoever looks after one namespace may not list it.
WEBHOOK = "app.kubernetes.io/name=rekindle,app.kubernetes.io/component=webhook"


def read(cluster: ApiConnection) -> ObjectLists:
    """Applications with all that is around them."""
    return read_around(cluster, read_pods(cluster), read_applications(cluster))


def read_around(
    cluster: ApiConnection, pods: tuple[Object, ...] = (), applications: tuple[Object, ...] = ()
) -> ObjectLists:
    """What is around applications."""
    return ObjectLists(
        pods=pods,
        applications=applications,
        policies=_list(cluster, POLICIES),
        classes=_list(cluster, CLASSES),
        claims=_list(cluster, CLAIMS),
        quotas=_list(cluster, QUOTAS),
        limit_ranges=_list(cluster, LIMIT_RANGES),
        nodes=_list(cluster, NODES),
        webhooks=_webhooks(cluster),
        properties=_properties(cluster, pods),
    )


def read_pods(cluster: ApiConnection) -> tuple[Object, ...]:
    """Drivers and executors."""
    found: dict[str, Object] = {}
    for selector in SELECTORS:
        for item in cluster.list(PODS, cluster.namespace, labelSelector=selector):
            found[item["metadata"]["uid"]] = item
    return tuple(found.values())


def read_applications(cluster: ApiConnection) -> tuple[Object, ...]:
    """SparkApplications of both operators."""
    return tuple(
        item for versions in SPARK_APPLICATIONS for item in _applications(cluster, versions)
    )


def _applications(cluster: ApiConnection, versions: Iterable[ResourceKind]) -> list[Object]:
    """Of one operator; none where it is not installed."""
    for kind in versions:
        try:
            return cluster.list(kind, cluster.namespace)
        except ApiRefusal as refusal:
            if not refusal.missing_kind:
                raise
    return []


def _list(cluster: ApiConnection, kind: ResourceKind) -> tuple[Object, ...] | None:
    """None where the caller may not, or where the server does not know the kind."""
    try:
        return tuple(cluster.list(kind, cluster.namespace if kind.namespaced else None))
    except ApiRefusal as refusal:
        if refusal.status != FORBIDDEN and not refusal.missing_kind:
            raise
        return None


def _webhooks(cluster: ApiConnection) -> tuple[Object, ...] | None:
    """None where the caller may not list those of all namespaces."""
    try:
        return tuple(cluster.list(DEPLOYMENTS, None, labelSelector=WEBHOOK))
    except ApiRefusal as refusal:
        if refusal.status != FORBIDDEN and not refusal.missing_kind:
            raise
        return None


def _properties(cluster: ApiConnection, pods: Iterable[Object]) -> dict[tuple[str, str], str]:
    """Settings of drivers that have no SparkApplication."""
    found = {}
    for driver in pods:
        labels = driver["metadata"].get("labels") or {}
        name = spark_pods.conf_map_name(driver)
        if name and labels.get("spark-role") == "driver":
            namespace = driver["metadata"]["namespace"]
            try:
                record = cluster.get(CONFIG_MAPS, name, namespace)
            except ApiRefusal:
                continue
            text = (record.get("data") or {}).get(PROPERTIES)
            if text is not None:
                found[namespace, name] = text
    return found

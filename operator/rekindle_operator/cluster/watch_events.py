"""How objects of the API become news: parsed where they arrive, carried out by who decides.

`object_watcher` uses those of pods and nodes, `kopf_watchers` those of what kopf watches. Nothing
is decided.
"""

from collections.abc import Collection

from rekindle_operator.api import recovery_class, recovery_policy, recovery_resource
from rekindle_operator.cluster.api_client import Body
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.nodes import node_seen
from rekindle_operator.cluster.object_watcher import News as NewsOf
from rekindle_operator.cluster.object_watcher import WatchHandler as HandlerOf
from rekindle_operator.cluster.pods import SPARK_APPLICATION_GROUPS, pod_seen
from rekindle_operator.cluster.spark_applications import application_seen

News = NewsOf[ClusterView]
WatchHandler = HandlerOf[ClusterView]


def _pod_seen(body: Body) -> News:
    seen = pod_seen(body)
    if seen is None:
        return _pod_gone(body)
    return lambda known: known.registry.see_pod(seen)


def _pod_gone(body: Body) -> News:
    uid = body["metadata"]["uid"]
    return lambda known: known.registry.forget_pod(uid)


def _pods_only(uids: Collection[str]) -> News:
    return lambda known: known.registry.forget_pods_but(uids)


def _node_seen(body: Body) -> News:
    seen = node_seen(body)
    return lambda known: known.registry.see_node(seen)


def _node_gone(body: Body) -> News:
    name = body["metadata"]["name"]
    return lambda known: known.registry.forget_node(name)


def _nodes_only(uids: Collection[str]) -> News:
    def news(known: ClusterView) -> None:
        for name, node in list(known.registry.nodes.items()):
            if node.judged.uid not in uids:
                known.registry.forget_node(name)

    return news


def _application_seen(body: Body) -> News:
    seen = application_seen(body)
    return lambda known: known.registry.see_resource(seen)


def _application_gone(body: Body) -> News:
    metadata, group = body["metadata"], body["apiVersion"].partition("/")[0]
    namespace, name = metadata["namespace"], metadata["name"]
    return lambda known: known.registry.forget_resource(group, namespace, name)


def _policy_seen(body: Body) -> News:
    policy = recovery_policy.from_object(body)
    return lambda known: known.see_policy(policy)


def _policy_gone(body: Body) -> News:
    metadata = body["metadata"]
    return lambda known: known.forget_policy(metadata["namespace"], metadata["name"])


def _policies_only(uids: Collection[str]) -> News:
    def news(known: ClusterView) -> None:
        for policy in list(known.policies.values()):
            if policy.metadata.uid not in uids:
                known.forget_policy(policy.metadata.namespace, policy.metadata.name)

    return news


def _class_seen(body: Body) -> News:
    class_ = recovery_class.from_object(body)
    return lambda known: known.see_class(class_)


def _class_gone(body: Body) -> News:
    name = body["metadata"]["name"]
    return lambda known: known.forget_class(name)


def _classes_only(uids: Collection[str]) -> News:
    def news(known: ClusterView) -> None:
        for class_ in list(known.classes.values()):
            if class_.metadata.uid not in uids:
                known.forget_class(class_.metadata.name)

    return news


def _recovery_seen(body: Body) -> News:
    recovery = recovery_resource.from_object(body)
    return lambda known: known.see_recovery(recovery)


def _recovery_gone(body: Body) -> News:
    metadata = body["metadata"]
    return lambda known: known.forget_recovery(metadata["namespace"], metadata["name"])


def _recoveries_only(uids: Collection[str]) -> News:
    def news(known: ClusterView) -> None:
        for those in list(known.recoveries.values()):
            for recovery in list(those.values()):
                if recovery.metadata.uid not in uids:
                    known.forget_recovery(recovery.metadata.namespace, recovery.metadata.name)

    return news


def _applications(group: str) -> WatchHandler:
    """Of one of the two groups."""

    def only(uids: Collection[str]) -> News:
        def news(known: ClusterView) -> None:
            for resource in known.registry.resources():
                if resource.group == group and resource.uid not in uids:
                    known.registry.forget_resource(group, resource.namespace, resource.name)

        return news

    return WatchHandler(_application_seen, _application_gone, only)


PODS = WatchHandler(_pod_seen, _pod_gone, _pods_only)
NODES = WatchHandler(_node_seen, _node_gone, _nodes_only)
APPLICATIONS = {group: _applications(group) for group in SPARK_APPLICATION_GROUPS}
POLICIES = WatchHandler(_policy_seen, _policy_gone, _policies_only)
CLASSES = WatchHandler(_class_seen, _class_gone, _classes_only)
RECOVERIES = WatchHandler(_recovery_seen, _recovery_gone, _recoveries_only)

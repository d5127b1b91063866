"""The kinds of objects that the shell reads and writes. Names only; every module here uses them."""

from rekindle_operator.pods import APACHE, KUBEFLOW
from rekindle_operator.provisioning.bodies import Kind
from rekindle_operator.resources import API_VERSION

__all__ = [
    "CLASSES",
    "EVENTS",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "NODE_LEASES",
    "PODS",
    "POLICIES",
    "RECOVERIES",
    "SECRETS",
    "SPARK_APPLICATIONS",
    "SPARK_VERSIONS",
]

PODS = Kind("v1", "Pod", "pods")
NODES = Kind("v1", "Node", "nodes", namespaced=False)
LEASES = Kind("coordination.k8s.io/v1", "Lease", "leases")
NAMESPACES = Kind("v1", "Namespace", "namespaces", namespaced=False)
SECRETS = Kind("v1", "Secret", "secrets")
EVENTS = Kind("events.k8s.io/v1", "Event", "events")
POLICIES = Kind(API_VERSION, "RecoveryPolicy", "recoverypolicies")
CLASSES = Kind(API_VERSION, "RecoveryClass", "recoveryclasses", namespaced=False)
RECOVERIES = Kind(API_VERSION, "Recovery", "recoveries")
NODE_LEASES = "kube-node-lease"
# The versions that the two operators serve.
SPARK_VERSIONS = {KUBEFLOW: "v1beta2", APACHE: "v1"}
SPARK_APPLICATIONS = {
    group: Kind(f"{group}/{version}", "SparkApplication", "sparkapplications")
    for group, version in SPARK_VERSIONS.items()
}

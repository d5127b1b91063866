"""The kinds of objects that the shell reads and writes. Names only; every module here uses them."""

from rekindle_operator.api.custom_resources import API_VERSION
from rekindle_operator.cluster.json_access import ObjectKind
from rekindle_operator.cluster.pods import APACHE, KUBEFLOW

PODS = ObjectKind("v1", "Pod", "pods")
NODES = ObjectKind("v1", "Node", "nodes", namespaced=False)
LEASES = ObjectKind("coordination.k8s.io/v1", "Lease", "leases")
NAMESPACES = ObjectKind("v1", "Namespace", "namespaces", namespaced=False)
SECRETS = ObjectKind("v1", "Secret", "secrets")
CONFIG_MAPS = ObjectKind("v1", "ConfigMap", "configmaps")
DEPLOYMENTS = ObjectKind("apps/v1", "Deployment", "deployments")
EVENTS = ObjectKind("events.k8s.io/v1", "Event", "events")
POLICIES = ObjectKind(API_VERSION, "RecoveryPolicy", "recoverypolicies")
CLASSES = ObjectKind(API_VERSION, "RecoveryClass", "recoveryclasses", namespaced=False)
RECOVERIES = ObjectKind(API_VERSION, "Recovery", "recoveries")
NODE_LEASES = "kube-node-lease"
# The versions that the two operators serve.
SPARK_VERSIONS = {KUBEFLOW: "v1beta2", APACHE: "v1"}
SPARK_APPLICATIONS = {
    group: ObjectKind(f"{group}/{version}", "SparkApplication", "sparkapplications")
    for group, version in SPARK_VERSIONS.items()
}

"""Kinds of objects that the plugin reads or changes, and where the API server has them."""

from dataclasses import dataclass
from urllib.parse import quote

from rekindle_operator.api.custom_resources import GROUP, VERSION


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind of object: what people call one, its API (group/version, or v1), its plural there."""

    name: str
    api: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group; "" for Kubernetes' core."""
        return self.api.partition("/")[0] if "/" in self.api else ""

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Where the objects of a namespace are, or of all; or one object."""
        root = f"/apis/{self.api}" if self.group else f"/api/{self.api}"
        inside = f"/namespaces/{quote(namespace, '')}" if namespace and self.namespaced else ""
        return f"{root}{inside}/{self.plural}" + (f"/{quote(name, '')}" if name else "")

    def place(self, namespace: str | None = None, name: str | None = None) -> str:
        """The same in words, for messages."""
        shown = f"{namespace}/{name}" if namespace and name and self.namespaced else name
        if shown:
            return f"{self.name} {shown}"
        within = f" of namespace {namespace}" if namespace and self.namespaced else ""
        return f"{self.plural}{within}"


OURS = f"{GROUP}/{VERSION}"
POLICIES = ResourceKind("RecoveryPolicy", OURS, "recoverypolicies")
RECOVERIES = ResourceKind("Recovery", OURS, "recoveries")
CLASSES = ResourceKind("RecoveryClass", OURS, "recoveryclasses", namespaced=False)
PODS = ResourceKind("Pod", "v1", "pods")
CLAIMS = ResourceKind("PersistentVolumeClaim", "v1", "persistentvolumeclaims")
QUOTAS = ResourceKind("ResourceQuota", "v1", "resourcequotas")
LIMIT_RANGES = ResourceKind("LimitRange", "v1", "limitranges")
CONFIG_MAPS = ResourceKind("ConfigMap", "v1", "configmaps")
DEPLOYMENTS = ResourceKind("Deployment", "apps/v1", "deployments")
NODES = ResourceKind("Node", "v1", "nodes", namespaced=False)
# The newest version of each operator's first; the first that is served is read.
SPARK_APPLICATIONS = (
    (ResourceKind("SparkApplication", "sparkoperator.k8s.io/v1beta2", "sparkapplications"),),
    (
        ResourceKind("SparkApplication", "spark.apache.org/v1", "sparkapplications"),
        ResourceKind("SparkApplication", "spark.apache.org/v1beta1", "sparkapplications"),
    ),
)

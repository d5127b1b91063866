"""Kinds of objects that the plugin reads or changes, and where the API server has them."""

from dataclasses import dataclass
from urllib.parse import quote

from rekindle_operator.resources import GROUP, VERSION

__all__ = [
    "CLAIMS",
    "CLASSES",
    "CONFIG_MAPS",
    "NODES",
    "PODS",
    "POLICIES",
    "QUOTAS",
    "RECOVERIES",
    "SPARK_APPLICATIONS",
    "Kind",
]


@dataclass(frozen=True, slots=True)
class Kind:
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
POLICIES = Kind("RecoveryPolicy", OURS, "recoverypolicies")
RECOVERIES = Kind("Recovery", OURS, "recoveries")
CLASSES = Kind("RecoveryClass", OURS, "recoveryclasses", namespaced=False)
PODS = Kind("Pod", "v1", "pods")
CLAIMS = Kind("PersistentVolumeClaim", "v1", "persistentvolumeclaims")
QUOTAS = Kind("ResourceQuota", "v1", "resourcequotas")
LIMIT_RANGES = Kind("LimitRange", "v1", "limitranges")
CONFIG_MAPS = Kind("ConfigMap", "v1", "configmaps")
NODES = Kind("Node", "v1", "nodes", namespaced=False)
# The newest version of each operator's first; the first that is served is read.
SPARK_APPLICATIONS = (
    (Kind("SparkApplication", "sparkoperator.k8s.io/v1beta2", "sparkapplications"),),
    (
        Kind("SparkApplication", "spark.apache.org/v1", "sparkapplications"),
        Kind("SparkApplication", "spark.apache.org/v1beta1", "sparkapplications"),
    ),
)

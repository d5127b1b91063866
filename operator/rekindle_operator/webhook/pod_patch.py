"""Terms into JSON patch operations (RFC 6902) for a pod that is about to be made.

Whatever is there already stays as it is, so a pod that comes a second time gets nothing more. What
would make the API server refuse the pod is not added: the answer is a Refusal. Pure;
`admission_review` calls `patch`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rekindle_operator.api.custom_resources import written
from rekindle_operator.api.recovery_class import AuthorityReference, SecretReference
from rekindle_operator.cluster import pods
from rekindle_operator.cluster.json_access import items, mapping, text
from rekindle_operator.cluster.pods import AWAITED, GATE, KEPT_OFF_ANNOTATION, SIDECAR, has_gate
from rekindle_operator.detection import failure_domains
from rekindle_operator.detection.failure_domains import away_from
from rekindle_operator.webhook.injection_spec import (
    Body,
    ExecutorTerms,
    InjectionRefusal,
    SidecarTerms,
    Terms,
)

# The sidecar's container, its volumes, and the settings with which Spark's container finds it.
#
# A native sidecar: an init container that goes on (`restartPolicy: Always`), so it is there
# before Spark starts and never keeps the pod alive. Spark starts once its socket answers. It runs
# as the user that Spark runs as, for only that user may open the socket; everything else is as
# the Pod Security Standard `restricted` wants it.

COMMAND = "rekindle-sidecar"
SOCKET_VOLUME, SECRET_VOLUME = "rekindle", "rekindle-secret"
MOUNT_PATH, SECRET_PATH = "/run/rekindle", "/run/rekindle-secret"
# A volume of its own, for it may be of another Secret.
AUTHORITY_VOLUME, AUTHORITY_PATH = "rekindle-ca", "/run/rekindle-ca"
AUTHORITY_FILE = "ca.crt"
SOCKET = f"{MOUNT_PATH}/sidecar.sock"
# Where the API server mounts the token of the driver's account into every container that has
# nothing there. The sidecar asks nothing of the API server.
TOKEN_VOLUME, TOKEN_PATH = "rekindle-no-token", "/var/run/secrets/kubernetes.io/serviceaccount"
SECRET_FILE = "secret"
# Readable by whatever user Spark runs as; mounted into the sidecar alone.
SECRET_MODE = 0o444
METRICS_PORT = 9465
# OpenShift's security context constraints that a pod has been admitted by.
SCC_ANNOTATION, SCC_OF_RANGES = "openshift.io/scc", "restricted"
# The user of Spark's own images.
SPARK_USER = 185

Json = dict[str, Any]


def spark_container(pod: Body) -> int:
    """Which of a pod's containers runs Spark, as `pods` takes it too."""
    return pods.spark_container(mapping(pod, "spec"), mapping(pod, "metadata"))


def driver_environment(terms: SidecarTerms) -> list[Json]:
    """What the Spark container is told: the socket, and the application's name."""
    return [
        _variable("SIDECAR_SOCKET", SOCKET),
        _variable("NAMESPACE", terms.place.namespace),
        _variable("APPLICATION", terms.place.application),
    ]


def mounts_of_driver() -> list[Json]:
    """Where the Spark container finds the socket."""
    return [{"name": SOCKET_VOLUME, "mountPath": MOUNT_PATH}]


def volumes(terms: SidecarTerms) -> list[Json]:
    """The folder of the socket, an empty one, and the store's secret and authorities if any."""
    found: list[Json] = [
        {"name": SOCKET_VOLUME, "emptyDir": {"sizeLimit": "1Mi"}},
        {"name": TOKEN_VOLUME, "emptyDir": {"sizeLimit": "1Mi"}},
    ]
    secret, authority = terms.store.secret_ref, terms.store.ca_secret_ref
    if secret is not None:
        found.append(_of_secret(SECRET_VOLUME, secret, SECRET_FILE))
    if authority is not None:
        found.append(_of_secret(AUTHORITY_VOLUME, authority, AUTHORITY_FILE))
    return found


def _of_secret(name: str, reference: SecretReference | AuthorityReference, file: str) -> Json:
    source = {
        "secretName": reference.name,
        "defaultMode": SECRET_MODE,
        "items": [{"key": reference.key, "path": file}],
    }
    return {"name": name, "secret": source}


def sidecar(pod: Body, terms: SidecarTerms) -> Json:
    """The container."""
    mounts = mounts_of_driver()
    mounts.append({"name": TOKEN_VOLUME, "mountPath": TOKEN_PATH, "readOnly": True})
    if terms.store.secret_ref is not None:
        mounts.append({"name": SECRET_VOLUME, "mountPath": SECRET_PATH, "readOnly": True})
    if terms.store.ca_secret_ref is not None:
        mounts.append({"name": AUTHORITY_VOLUME, "mountPath": AUTHORITY_PATH, "readOnly": True})
    has_metrics = _may_listen(pod)
    found: Json = {
        "name": SIDECAR,
        "image": terms.image,
        "imagePullPolicy": terms.image_pull_policy,
        "command": [COMMAND],
        "restartPolicy": "Always",
        "env": [*_environment(terms, has_metrics=has_metrics)],
        "startupProbe": {
            "exec": {"command": [COMMAND, "--probe"]},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            "failureThreshold": 120,
        },
        "resources": written(terms.resources),
        "securityContext": _security(_user(pod)),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    if has_metrics:
        found["ports"] = [{"name": "rekindle", "containerPort": METRICS_PORT}]
    return found


def _environment(terms: SidecarTerms, *, has_metrics: bool) -> Iterator[Json]:
    yield _variable("ZOOKEEPER", ",".join(terms.store.addresses))
    yield from driver_environment(terms)
    yield _variable("SESSION_SECONDS", str(terms.session_seconds))
    if terms.store.secret_ref is not None:
        yield _variable("SECRET_FILE", f"{SECRET_PATH}/{SECRET_FILE}")
    if terms.store.ca_secret_ref is not None:
        yield _variable("CA_FILE", f"{AUTHORITY_PATH}/{AUTHORITY_FILE}")
    if has_metrics:
        # The pod's own address: the same option serves IPv4 and IPv6.
        source = {"fieldRef": {"fieldPath": "status.podIP"}}
        yield {"name": "REKINDLE_METRICS_HOST", "valueFrom": source}
        yield _variable("METRICS_PORT", str(METRICS_PORT))


def _variable(name: str, value: str) -> Json:
    return {"name": f"REKINDLE_{name}", "value": value}


def _may_listen(pod: Body) -> bool:
    """Whether the port of the metrics is free: not on the node's own network, where the sidecar of
    another driver may have it, nor where a container of the pod has it."""
    if mapping(pod, "spec").get("hostNetwork"):
        return False
    containers = (*items(pod, "spec", "containers"), *items(pod, "spec", "initContainers"))
    return not any(
        port.get("containerPort") == METRICS_PORT or port.get("name") == "rekindle"
        for container in containers
        for port in items(container, "ports")
    )


def _user(pod: Body) -> int | None:
    """The user that Spark runs as; None where OpenShift gives all containers of the pod one of its
    namespace's range, and refuses any other. By then it has mostly written that into them."""
    container = items(pod, "spec", "containers")[spark_container(pod)]
    for holder in (container, mapping(pod, "spec")):
        user = mapping(holder, "securityContext").get("runAsUser")
        if isinstance(user, int):
            return user
    constraints = text(pod, "metadata", "annotations", SCC_ANNOTATION)
    return None if constraints.startswith(SCC_OF_RANGES) else SPARK_USER


def _security(user: int | None) -> Json:
    found = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
        # A kubelet does not start a root user's container that must not be root's.
        "runAsNonRoot": user != 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return found if user is None else {**found, "runAsUser": user}


NODE_VARIABLE = "REKINDLE_NODE"
Operation = Mapping[str, Any]


def patch(pod: Body, terms: Terms) -> tuple[Operation, ...] | InjectionRefusal:
    """What is to be added to a pod; nothing where all of it is there."""
    if not items(pod, "spec", "containers"):
        return InjectionRefusal("the pod has no container; give it the one that runs Spark")
    if isinstance(terms, ExecutorTerms):
        return tuple(_executor(pod, terms))
    if _has_sidecar(pod):
        return ()
    return _obstacle(pod, terms) or tuple(_driver(pod, terms))


def gate(pod: Body) -> tuple[Operation, ...]:
    """The gate at which a pod waits for its turn, and the label that says so; nothing where it is
    there. Gates of others stay."""
    there = items(pod, "spec", "schedulingGates")
    if has_gate(there):
        return ()
    labels = {**mapping(pod, "metadata", "labels"), GATE: AWAITED}
    return (
        _add("/spec/schedulingGates", [*there, {"name": GATE}]),
        _add("/metadata/labels", labels),
    )


def _has_sidecar(pod: Body) -> bool:
    """Whether the sidecar is there, as we add it or as somebody has written it."""
    places = (*items(pod, "spec", "initContainers"), *items(pod, "spec", "containers"))
    return any(text(container, "name") == SIDECAR for container in places)


def _obstacle(pod: Body, terms: SidecarTerms) -> InjectionRefusal | None:
    """What the pod has under a name or a path of ours."""
    ours = {volume["name"] for volume in volumes(terms)}
    taken = ours & {text(volume, "name") for volume in items(pod, "spec", "volumes")}
    if taken:
        name = min(taken)
        return InjectionRefusal(
            f"the driver has a volume {name} of its own; give that another name"
        )
    _, spark = _spark(pod)
    paths = (text(mount, "mountPath") for mount in items(spark, "volumeMounts"))
    if any(path.rstrip("/") == MOUNT_PATH for path in paths):
        return InjectionRefusal(f"the driver mounts a volume at {MOUNT_PATH}; mount that elsewhere")
    return None


def _driver(pod: Body, terms: SidecarTerms) -> Iterator[Operation]:
    """The sidecar before all other init containers, so that they and Spark start after it."""
    path, spark = _spark(pod)
    ours = driver_environment(terms)
    names = {variable["name"] for variable in ours}
    others = [item for item in items(spark, "env") if item.get("name") not in names]
    yield _add("/spec/volumes", [*items(pod, "spec", "volumes"), *volumes(terms)])
    mounts = [*items(spark, "volumeMounts"), *mounts_of_driver()]
    yield _add(f"{path}/volumeMounts", mounts)
    # First, so that Spark's own variables may refer to them.
    yield _add(f"{path}/env", [*ours, *others])
    first = sidecar(pod, terms)
    yield _add("/spec/initContainers", [first, *items(pod, "spec", "initContainers")])


def _executor(pod: Body, terms: ExecutorTerms) -> Iterator[Operation]:
    path, spark = _spark(pod)
    variables = items(spark, "env")
    if all(variable.get("name") != NODE_VARIABLE for variable in variables):
        source = {"fieldRef": {"fieldPath": "spec.nodeName"}}
        yield _add(f"{path}/env", [*variables, {"name": NODE_VARIABLE, "valueFrom": source}])
    affinity = mapping(pod, "spec", "affinity")
    wanted = away_from(affinity, terms.avoided)
    if wanted != affinity:
        yield _add("/spec/affinity", wanted)
        # by which it is known later what was ours, and may be wrong by then
        ours = {KEPT_OFF_ANNOTATION: failure_domains.listed(terms.avoided)}
        yield _add("/metadata/annotations", {**mapping(pod, "metadata", "annotations"), **ours})


def _spark(pod: Body) -> tuple[str, Body]:
    """The container that runs Spark, and the path to it."""
    number = spark_container(pod)
    return f"/spec/containers/{number}", items(pod, "spec", "containers")[number]


def _add(path: str, value: object) -> Operation:
    """Sets a member of an object, whether it is there or not."""
    return {"op": "add", "path": path, "value": value}

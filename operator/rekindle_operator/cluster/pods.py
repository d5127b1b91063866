"""The kept fields of a pod: identity, application, node and state.

Never the body: 100,000 of these have to fit, so strings that repeat are shared. Of a pod that has
to do with Spark `PodSeen` is kept, of any other that lies on a node only what it takes there, for
no node may be planned on as if it were empty. To which application a pod belongs is for
`application_matching` to say. Pure; the shell calls it with each object of a list or a watch.

What counts as a driver: the label `spark-role: driver`, which Spark sets in cluster mode; and in
client mode, where Spark does not make the driver's pod and labels nothing, that same label or
`rekindle.dev/application` in the pod's own template, or our sidecar in it.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

import msgspec

from rekindle_operator.api import quantities

# Finds the container of a pod that runs Spark: by its command first, then by name and place.
#
# Spark takes one container of a pod template, under whatever name it has there, and puts it
# behind the others; log shippers and meshes come before it and after it. What Spark adds to its
# own tells it: the word `driver` or `executor` that its images' entry point takes, and variables.
# In client mode nobody makes the container for Spark: there its command line tells, and last what
# the pod's author calls its main one.

SIDECAR = "rekindle-sidecar"
NAMES = ("spark-kubernetes-driver", "spark-kubernetes-executor", "executor")
ROLES = ("driver", "executor")
VARIABLES = (
    "SPARK_DRIVER_BIND_ADDRESS",
    "SPARK_APPLICATION_ID",
    "SPARK_DRIVER_URL",
    "SPARK_EXECUTOR_ID",
)
UI_PORT_NAME = "spark-ui"
PORTS = ("driver-rpc-port", "blockmanager", UI_PORT_NAME)
PROGRAMS = ("spark-submit", "org.apache.spark.", "spark-class", "rekindle run", "pyspark")
MAIN_ANNOTATION = "kubectl.kubernetes.io/default-container"

Record = Mapping[str, Any]
Evidence = tuple[bool, bool, bool, bool, bool, bool]


def spark_container(spec: Record, metadata: Record) -> int:
    """The place of the container that runs Spark, of several alike the first; 0 for none."""
    containers: Sequence[Record] = spec.get("containers") or ()
    if len(containers) < 2:
        return 0
    main = (metadata.get("annotations") or {}).get(MAIN_ANNOTATION)
    found = [_evidence(container, main) for container in containers]
    return found.index(max(found))


def _evidence(container: Record, main: object) -> Evidence:
    """What tells that Spark runs there, the strongest first."""
    return (
        _has_role(container),
        _is_furnished(container),
        container.get("name") in NAMES,
        _runs_program(container),
        container.get("name") == main,
        container.get("name") != SIDECAR,
    )


def _has_role(container: Record) -> bool:
    """Whether the entry point is told to be a driver or an executor."""
    command, args = container.get("command") or (), container.get("args") or ()
    return any(word in ROLES for word in (*command[-1:], *args[:1]))


def _is_furnished(container: Record) -> bool:
    """Whether it has what Spark puts into its own. A variable alone may be a log shipper's, which
    tells whose logs it ships."""
    own = {variable.get("name") for variable in container.get("env") or ()}
    ports = {port.get("name") for port in container.get("ports") or ()}
    return len(own.intersection(VARIABLES)) + len(ports.intersection(PORTS)) > 1


def _runs_program(container: Record) -> bool:
    words = (*(container.get("command") or ()), *(container.get("args") or ()))
    line = " ".join(map(str, words))
    return any(program in line for program in PROGRAMS)


APPLICATION_LABEL = "rekindle.dev/application"
KEPT_OFF_ANNOTATION = "rekindle.dev/kept-off"
# Of pods that wait for their turn, by our webhook; the label is the same and says `awaited`.
GATE, AWAITED = "rekindle.dev/turn", "awaited"
KUBEFLOW, APACHE = SPARK_APPLICATION_GROUPS = ("sparkoperator.k8s.io", "spark.apache.org")

Role = Literal["driver", "executor"]
Sidecar = Literal["absent", "starting", "ready"]
Labels = tuple[tuple[str, str], ...]

ROLE_LABEL, RUN_LABEL, EXECUTOR_LABEL = "spark-role", "spark-app-selector", "spark-exec-id"
SUBMISSION_LABEL = f"{KUBEFLOW}/submission-id"
RESOURCE_LABELS = ((KUBEFLOW, f"{KUBEFLOW}/app-name"), (APACHE, "spark.operator/spark-app-name"))
# Executors of a StatefulSet or Deployment have this until Spark has given them an id.
EXECUTOR_ID_UNKNOWN = "EXECID"
ENDED_PHASES = ("Succeeded", "Failed")


class PodSeen(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A driver or an executor. Moments are whole seconds since 1970.

    `run` is Spark's application id, another for each start of a driver but not unique in the
    cluster (apache's operator counts from NAME-0 again when its resource is made anew);
    `submission` is kubeflow's id of a start. `group` and `resource` name the SparkApplication,
    `application` is what our own label says. `driver_uid` is the pod that owns an executor;
    executors of a StatefulSet or Deployment have none. `cpu_millis` is what the pod as a whole
    requests, `cpu_limit_millis` the limit of its Spark container, 0 without one. `ended`: Spark has
    ended in it for certain, by the word of its kubelet. `evicted`: it is being deleted because of
    something else than itself, by the Eviction API for example (DisruptionTarget). `labels` are
    kept of drivers only, and so are `controlled`, whether a controller such as a Job owns the pod
    and may make another one, `ended_at`, 0 while it has not ended, and `ui_port`, the port of
    Spark's UI, 0 where the pod names none; `kept_off` are the domains that our webhook has kept an
    executor off (`failure_domains.listed`), as long as it has no node.
    `gated`: it waits for its turn; `gated_by_others`: for something else as well, such as a quota.
    Of a pod without a node it is known too which taints it `tolerates` ("*" for all), and which
    labels its node must have (`node_labels`).
    """

    namespace: str
    name: str
    uid: str
    role: Role
    created_at: int = 0
    node: str = ""
    phase: str = ""
    ip: str = ""
    executor_id: str = ""
    run: str = ""
    submission: str = ""
    group: str = ""
    resource: str = ""
    application: str = ""
    driver_uid: str = ""
    cpu_millis: int = 0
    cpu_limit_millis: int = 0
    memory_bytes: int = 0
    sidecar: Sidecar = "absent"
    deleting_at: int = 0
    ended: bool = False
    ended_at: int = 0
    evicted: bool = False
    controlled: bool = False
    ui_port: int = 0
    labels: Labels = ()
    kept_off: str = ""
    gated: bool = False
    gated_by_others: bool = False
    tolerates: tuple[str, ...] = ()
    node_labels: Labels = ()

    @property
    def held_millis(self) -> int:
        """What it takes from its node: until it is gone, also while it is being deleted."""
        return 0 if self.phase in ENDED_PHASES else self.cpu_millis


class Occupant(msgspec.Struct, frozen=True, gc=False):
    """Any other pod on a node: all that matters is what it takes there, and whether it belongs to
    the node itself, so that it keeps nobody from giving the node back."""

    uid: str
    node: str
    held_millis: int
    resident: bool = False


def pod_seen(body: Record) -> PodSeen | Occupant | None:
    """What is kept of a pod; None for one that matters to nobody (any more): whatever is known of
    its uid is then to be forgotten.

    `body` is the object as the API server has it. Raises InputError for a quantity that is none.
    """
    metadata, status = body["metadata"], body.get("status") or {}
    labels: Mapping[str, str] = metadata.get("labels") or {}
    role = _role(labels, body.get("spec") or {})
    if status.get("phase") in ENDED_PHASES and role != "driver":
        return None
    if role is not None:
        return _spark_pod(body, labels, role)
    node = (body.get("spec") or {}).get("nodeName")
    if not node:
        return None
    held = quantities.requested(body, "cpu", quantities.cpu_millis)
    return Occupant(metadata["uid"], interned(node), held, _is_resident(metadata))


def has_gate(gates: Iterable[Record] | None) -> bool:
    """Whether our gate is among a pod's `spec.schedulingGates`."""
    return any(gate.get("name") == GATE for gate in gates or ())


def _has_other_gate(gates: Iterable[Record] | None) -> bool:
    return any(gate.get("name") != GATE for gate in gates or ())


def without_gate(uid: str) -> dict[str, Any]:
    """A strategic merge patch that takes our gate off the pod of a UID, and leaves those of others.
    The API server refuses it of another pod of the same name."""
    return {
        "metadata": {"uid": uid, "labels": {GATE: None}},
        "spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]},
    }


def interned(text: str | None) -> str:
    """The one copy of a string that many objects have."""
    return sys.intern(str(text)) if text else ""


# the same few are asked about again and again, those of a cluster's nodes
@lru_cache(10_000)
def moment(text: str | None) -> int:
    """A timestamp of the API server in whole seconds since 1970; 0 without one."""
    return int(datetime.fromisoformat(text).timestamp()) if text else 0


def shared(labels: Mapping[str, str] | None) -> Labels:
    """Labels in order, their strings shared."""
    return tuple((interned(key), interned(value)) for key, value in sorted((labels or {}).items()))


def _role(labels: Mapping[str, str], spec: Record) -> Role | None:
    said = labels.get(ROLE_LABEL)
    if said == "executor":
        return "executor"
    if said == "driver" or APPLICATION_LABEL in labels or _sidecar(spec) is not None:
        return "driver"
    return None


def _spark_pod(body: Record, labels: Mapping[str, str], role: Role) -> PodSeen:
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    group, resource = _resource(metadata, labels)
    container = _spark_container(spec, metadata)
    executor_id = labels.get(EXECUTOR_LABEL, "")
    is_driver = role == "driver"
    is_placed = bool(spec.get("nodeName"))
    uid, ended = metadata["uid"], _has_ended(spec, status, container)
    return PodSeen(
        namespace=interned(metadata.get("namespace")),
        name=metadata["name"],
        uid=interned(uid) if is_driver else uid,
        role=role,
        created_at=moment(metadata.get("creationTimestamp")),
        node=interned(spec.get("nodeName")),
        phase=interned(status.get("phase")),
        ip=status.get("podIP") or "",
        executor_id="" if executor_id == EXECUTOR_ID_UNKNOWN else interned(executor_id),
        run=interned(labels.get(RUN_LABEL)),
        submission=interned(labels.get(SUBMISSION_LABEL)),
        group=group,
        resource=resource,
        application=interned(labels.get(APPLICATION_LABEL)),
        driver_uid="" if is_driver else _owning_pod(metadata),
        cpu_millis=quantities.requested(body, "cpu", quantities.cpu_millis),
        cpu_limit_millis=quantities.limited(container, "cpu", quantities.cpu_millis),
        memory_bytes=quantities.requested(body, "memory", quantities.memory_bytes),
        sidecar=_sidecar_state(spec, status),
        deleting_at=moment(metadata.get("deletionTimestamp")),
        ended=ended,
        ended_at=_ended_at(status, container) if is_driver and ended else 0,
        evicted=_is_evicted(status.get("conditions") or ()),
        controlled=is_driver and _has_controller(metadata),
        ui_port=_ui_port(container) if is_driver else 0,
        labels=shared(labels) if is_driver else (),
        kept_off="" if is_placed else _kept_off(metadata),
        gated=has_gate(spec.get("schedulingGates")),
        gated_by_others=_has_other_gate(spec.get("schedulingGates")),
        tolerates=() if is_placed else _tolerated(spec),
        node_labels=() if is_placed else shared(spec.get("nodeSelector")),
    )


def _tolerated(spec: Record) -> tuple[str, ...]:
    found = spec.get("tolerations") or ()
    return tuple(sorted({interned(item.get("key") or "*") for item in found}))


def _resource(metadata: Record, labels: Mapping[str, str]) -> tuple[str, str]:
    """Group and name of the SparkApplication: by the label that its operator goes by itself, which
    is there from the start; else by owner."""
    for group, label in RESOURCE_LABELS:
        if labels.get(label):
            return interned(group), interned(labels[label])
    for owner in metadata.get("ownerReferences") or ():
        group = owner.get("apiVersion", "").partition("/")[0]
        if owner.get("kind") == "SparkApplication" and group in SPARK_APPLICATION_GROUPS:
            return interned(group), interned(owner["name"])
    return "", ""


def _owning_pod(metadata: Record) -> str:
    """UID of the driver's pod. Kubeflow's operator adds the SparkApplication as a second owner."""
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("kind") == "Pod":
            return interned(owner["uid"])
    return ""


def _has_controller(metadata: Record) -> bool:
    return any(owner.get("controller") for owner in metadata.get("ownerReferences") or ())


def _ui_port(container: Record) -> int:
    ports = container.get("ports") or ()
    found = (port.get("containerPort") for port in ports if port.get("name") == UI_PORT_NAME)
    return int(next(found, 0) or 0)


def _kept_off(metadata: Record) -> str:
    return interned((metadata.get("annotations") or {}).get(KEPT_OFF_ANNOTATION))


def _is_resident(metadata: Record) -> bool:
    """Whether it is a DaemonSet's pod, or a static one of the node's own."""
    owners = metadata.get("ownerReferences") or ()
    return any(owner.get("kind") in ("DaemonSet", "Node") for owner in owners)


def _spark_container(spec: Record, metadata: Record) -> Record:
    containers: Sequence[Record] = spec.get("containers") or ({},)
    return containers[spark_container(spec, metadata)]


def _sidecar(spec: Record) -> Record | None:
    """Our sidecar among the init containers, where a native one belongs, or beside Spark."""
    for place in ("initContainers", "containers"):
        for container in spec.get(place) or ():
            if container.get("name") == SIDECAR:
                found: Record = container
                return found
    return None


def _sidecar_state(spec: Record, status: Record) -> Sidecar:
    container = _sidecar(spec)
    if container is None:
        return "absent"
    return "ready" if _status_of(status, container).get("ready") else "starting"


def _status_of(status: Record, container: Record) -> Record:
    for place in ("initContainerStatuses", "containerStatuses"):
        for found in status.get(place) or ():
            if found.get("name") == container.get("name"):
                known: Record = found
                return known
    return {}


def _has_ended(spec: Record, status: Record, container: Record) -> bool:
    """Whether Spark has ended for certain. Failed is not, where it was the garbage collector that
    wrote it after the Node object had gone: the machine may run on, cut off."""
    if status.get("phase") in ENDED_PHASES:
        return not _was_collected(status.get("conditions") or ())
    stopped = "terminated" in (_status_of(status, container).get("state") or {})
    return stopped and spec.get("restartPolicy") == "Never"


def _ended_at(status: Record, container: Record) -> int:
    """When Spark ended. A pod that its node has evicted may say it by its conditions alone."""
    state = _status_of(status, container).get("state") or {}
    finished = moment((state.get("terminated") or {}).get("finishedAt"))
    conditions = status.get("conditions") or ()
    changed = (moment(condition.get("lastTransitionTime")) for condition in conditions)
    return finished or max(changed, default=0)


def _is_evicted(conditions: Iterable[Record]) -> bool:
    return any(
        condition.get("type") == "DisruptionTarget" and condition.get("status") == "True"
        for condition in conditions
    )


def _was_collected(conditions: Iterable[Record]) -> bool:
    return any(
        condition.get("type") == "DisruptionTarget" and condition.get("reason") == "DeletionByPodGC"
        for condition in conditions
    )

"""Applications and the objects around each of them, read from objects of the API.

`preflight_reader` fills `ObjectLists` from the API server, `read_file` from a file or standard
input. The command `preflight` asks for its subjects. Only `read_file` reads anything.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from rekindle.model.errors import InputError
from rekindle_operator.api import custom_resources, recovery_class, recovery_policy
from rekindle_operator.cluster import json_access
from rekindle_operator.cluster.application_matching import MatchedApplication
from rekindle_operator.cluster.cluster_cache import ClusterCache
from rekindle_operator.cluster.pods import KUBEFLOW, SPARK_APPLICATION_GROUPS, PodSeen, pod_seen
from rekindle_operator.cluster.spark_applications import application_seen
from rekindle_operator.preflight.subjects import (
    apache_operator,
    kubeflow_operator,
    manifest_schema,
    spark_pods,
)
from rekindle_operator.preflight.subjects.environment import PreflightEnvironment, Quota, quota
from rekindle_operator.preflight.subjects.workloads import Workload

Object = dict[str, Any]
Key = tuple[str, str, str]
Seen = TypeVar("Seen")
LISTS = (
    *("pods", "applications", "policies", "classes"),
    *("claims", "quotas", "limit_ranges", "nodes", "webhooks"),
)
# What reading raises where a text stands for a list, or a number for an object.
MALFORMED = (AttributeError, KeyError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class ObjectLists:
    """Lists of objects; None for a kind that nobody could read. `properties` are the settings of
    drivers by namespace and name of their ConfigMap. `asked`: whether a cluster was asked."""

    pods: tuple[Object, ...] = ()
    applications: tuple[Object, ...] = ()
    policies: tuple[Object, ...] | None = None
    classes: tuple[Object, ...] | None = None
    claims: tuple[Object, ...] | None = None
    quotas: tuple[Object, ...] | None = None
    limit_ranges: tuple[Object, ...] | None = None
    nodes: tuple[Object, ...] | None = None
    webhooks: tuple[Object, ...] | None = None
    properties: Mapping[tuple[str, str], str] = field(default_factory=dict)
    asked: bool = True


@dataclass(frozen=True, slots=True)
class Subject:
    """An application to be looked at; `workload` is None where `trouble` keeps it from being
    read."""

    namespace: str
    name: str
    kind: str
    around: PreflightEnvironment
    workload: Workload | None = None
    trouble: str = ""


def merged(first: ObjectLists, second: ObjectLists) -> ObjectLists:
    """All objects of both; of those that are in both, `first`'s."""
    parts: dict[str, Any] = {"properties": {**second.properties, **first.properties}}
    parts["asked"] = first.asked or second.asked
    for name in LISTS:
        ours, theirs = getattr(first, name), getattr(second, name)
        if ours is None or theirs is None:
            parts[name] = theirs if ours is None else ours
            continue
        known = {_identity(item) for item in ours}
        parts[name] = (*ours, *(item for item in theirs if _identity(item) not in known))
    return ObjectLists(**parts)


def policies_read(objects: ObjectLists) -> tuple[recovery_policy.RecoveryPolicy, ...]:
    """The policies; InputError for one that means nothing."""
    return tuple(recovery_policy.from_object(item) for item in objects.policies or ())


def subjects(objects: ObjectLists, wanted: str | None = None) -> Iterator[Subject]:
    """Applications by namespace and name, those that have ended only when they are wanted; first
    those that are written so that nothing of them can be read."""
    objects, broken = _sound(objects)
    yield from (item for item in broken if wanted in (None, item.name))
    known = told(objects)
    bodies = {item["metadata"].get("uid"): item for item in objects.pods}
    resources = {_key(item): item for item in objects.applications}
    for place in sorted(known.places()):
        if wanted is not None and place.application != wanted:
            continue
        found = known.application(place)
        if found is not None and (wanted is not None or not _has_ended(found)):
            yield _subject(objects, found, bodies, resources)
    for namespace in sorted({str(item["metadata"].get("namespace")) for item in objects.pods}):
        for driver in known.nameless(namespace):
            if wanted in (None, driver.name):
                yield _nameless(objects, driver, bodies)


def surroundings(objects: ObjectLists, namespace: str) -> PreflightEnvironment:
    """What is around applications of a namespace; InputError for an object that means nothing."""
    return PreflightEnvironment(
        claims=_claims(objects.claims, namespace),
        quotas=_quotas(objects.quotas, namespace),
        limit_ranges=_limit_ranges(objects.limit_ranges, namespace),
        nodes=_nodes(objects.nodes),
        policies=None if objects.policies is None else policies_read(objects),
        classes=_classes(objects.classes),
        webhooks=_webhooks(objects.webhooks),
        asked=objects.asked,
    )


def _webhooks(deployments: tuple[Object, ...] | None) -> Mapping[str, int] | None:
    """Replicas that answer, by namespace and name."""
    if deployments is None:
        return None
    return {
        f"{item['metadata']['namespace']}/{item['metadata']['name']}": json_access.count(
            item, "status", "availableReplicas"
        )
        for item in deployments
    }


def _sound(objects: ObjectLists) -> tuple[ObjectLists, list[Subject]]:
    """The objects without those of another form than their kinds have, and what is wrong there."""
    sound: dict[str, list[Object]] = {"applications": [], "pods": []}
    broken = []
    for name, items in sound.items():
        for item in getattr(objects, name):
            try:
                manifest_schema.check(item)
                items.append(item)
            except InputError as error:
                metadata = item["metadata"]
                place = str(metadata.get("namespace")), str(metadata["name"])
                trouble = f"{error}."
                broken.append(
                    Subject(*place, str(item["kind"]), PreflightEnvironment(), trouble=trouble)
                )
    kept = {name: tuple(items) for name, items in sound.items()}
    return replace(objects, applications=kept["applications"], pods=kept["pods"]), broken


def told(objects: ObjectLists) -> ClusterCache:
    """Pods, SparkApplications and policies, joined as the operator joins them; InputError for an
    object that means nothing."""
    known = ClusterCache()
    for policy in policies_read(objects):
        known.see_policy(policy)
    for item in objects.applications:
        known.see_resource(_understood(application_seen, item))
    for item in objects.pods:
        seen = _understood(pod_seen, item)
        if seen is not None:
            known.see_pod(seen)
    return known


def _understood(read: Callable[[Object], Seen], item: Object) -> Seen:
    """What is kept of an object; InputError for one of a form that no API server would give."""
    try:
        return read(item)
    except MALFORMED as error:
        metadata = item["metadata"]
        raise InputError(
            where=f"{item.get('kind')} {metadata.get('namespace')}/{metadata['name']}",
            what=f"has another form than its kind has ({type(error).__name__}: {error})",
            remedy="see it with `kubectl apply --dry-run=server`",
        ) from None


def _has_ended(found: MatchedApplication) -> bool:
    if found.resource is not None:
        return found.resource.ended
    return found.driver is None or found.driver.ended


def _subject(
    objects: ObjectLists,
    found: MatchedApplication,
    bodies: Mapping[str, Object],
    resources: Mapping[Key, Object],
) -> Subject:
    namespace, name = found.place.namespace, found.place.application
    driver = bodies.get(found.driver.uid) if found.driver is not None else None
    executors = [bodies[pod.uid] for pod in found.executors if pod.uid in bodies]
    subject = Subject(namespace, name, found.kind, surroundings(objects, namespace))
    body = resources.get((found.group, namespace, name))
    try:
        if body is not None:
            read = (
                kubeflow_operator.workload if found.group == KUBEFLOW else apache_operator.workload
            )
            workload = spark_pods.with_pods(read(body), driver, executors)
        elif driver is not None:
            workload = spark_pods.workload(name, driver, executors, _settings(objects, driver))
        else:
            return replace(subject, trouble="Nothing of it is there but executors.")
    except InputError as error:
        return replace(subject, trouble=f"{error}.")
    except MALFORMED as error:
        text = f"Its manifest is not as its operator wants it ({type(error).__name__}: {error})."
        return replace(subject, trouble=text)
    return replace(subject, workload=workload)


def _nameless(objects: ObjectLists, driver: PodSeen, bodies: Mapping[str, Object]) -> Subject:
    subject = Subject(
        driver.namespace, driver.name, "Driver", surroundings(objects, driver.namespace)
    )
    body = bodies[driver.uid]
    try:
        workload = spark_pods.workload(driver.name, body, (), _settings(objects, body))
    except InputError as error:
        return replace(subject, trouble=f"{error}.")
    return replace(subject, workload=replace(workload, named=False))


def _settings(objects: ObjectLists, driver: Object) -> dict[str, str] | None:
    key = (str(driver["metadata"].get("namespace")), spark_pods.conf_map_name(driver))
    text = objects.properties.get(key)
    return None if text is None else spark_pods.properties(text)


def _claims(items: Sequence[Object] | None, namespace: str) -> Mapping[str, tuple[str, ...]] | None:
    if items is None:
        return None
    return {
        item["metadata"]["name"]: tuple((item.get("spec") or {}).get("accessModes") or ())
        for item in _inside(items, namespace)
    }


def _quotas(items: Sequence[Object] | None, namespace: str) -> tuple[Quota, ...] | None:
    return None if items is None else tuple(map(quota, _inside(items, namespace)))


def _limit_ranges(items: Sequence[Object] | None, namespace: str) -> tuple[Object, ...] | None:
    return None if items is None else tuple(_inside(items, namespace))


def _nodes(items: Sequence[Object] | None) -> tuple[Mapping[str, str], ...] | None:
    """Labels of the nodes that take pods."""
    if items is None:
        return None
    return tuple(
        item["metadata"].get("labels") or {}
        for item in items
        if not (item.get("spec") or {}).get("unschedulable")
    )


def _classes(items: Iterable[Object] | None) -> Mapping[str, recovery_class.RecoveryClass] | None:
    if items is None:
        return None
    found = (recovery_class.from_object(item) for item in items)
    return {item.metadata.name: item for item in found}


def _inside(items: Iterable[Object], namespace: str) -> Iterator[Object]:
    return (item for item in items if item["metadata"].get("namespace") == namespace)


def _key(item: Object) -> Key:
    metadata = item["metadata"]
    group = str(item.get("apiVersion", "")).partition("/")[0]
    return group, str(metadata.get("namespace")), metadata["name"]


def _identity(item: Object) -> tuple[str, ...]:
    return (str(item.get("kind")), *_key(item))


# Objects that preflight looks at, read from a file, or from standard input.
#
# Kinds that it does not look at are passed over, so that a team's whole manifest can be given.

STANDARD_INPUT = "-"
SHOWN_MAX = 200
# By (kind, API group) the list that an object goes to.
LIST_KINDS = {
    **{("SparkApplication", group): "applications" for group in SPARK_APPLICATION_GROUPS},
    ("Pod", ""): "pods",
    ("RecoveryPolicy", custom_resources.GROUP): "policies",
    ("RecoveryClass", custom_resources.GROUP): "classes",
    ("PersistentVolumeClaim", ""): "claims",
    ("ResourceQuota", ""): "quotas",
    ("LimitRange", ""): "limit_ranges",
    ("Node", ""): "nodes",
}
OF_CLUSTER = ("classes", "nodes")


def read_file(path: str, namespace: str) -> ObjectLists:
    """The objects of a file; those without a namespace are of `namespace`.

    InputError for a file that cannot be read, or that holds no application.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for number, document in enumerate(_documents(path), start=1):
        for item in _items(document, f"{_shown(path)}, document {number}"):
            group = str(item.get("apiVersion", "")).rpartition("/")[0]
            name = LIST_KINDS.get((str(item.get("kind")), group))
            if name is not None:
                found.setdefault(name, []).append(_completed(item, namespace, name))
    if not found.get("applications") and not found.get("pods"):
        raise InputError(
            where=_shown(path),
            what="holds neither a SparkApplication nor a driver's Pod",
            remedy=f"give one of {' or '.join(SPARK_APPLICATION_GROUPS)}, or a Pod",
        )
    lists: dict[str, Any] = {name: tuple(items) for name, items in found.items()}
    return ObjectLists(**lists, asked=False)


def _documents(path: str) -> list[Any]:
    try:
        text = sys.stdin.read() if path == STANDARD_INPUT else Path(path).read_text()
        return list(yaml.safe_load_all(text))
    except OSError as error:
        remedy = "name a file that is there, or - for standard input"
        raise InputError(where=path, what=f"{error.strerror}", remedy=remedy) from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        what = f"is no YAML ({custom_resources.clipped(' '.join(str(error).split()), SHOWN_MAX)})"
        raise InputError(where=_shown(path), what=what, remedy="correct it there") from None


def _items(document: Any, where: str) -> Iterator[dict[str, Any]]:
    if document is None:
        return
    if not isinstance(document, dict):
        remedy = "give objects of Kubernetes"
        raise InputError(where=where, what="is no object", remedy=remedy)
    if document.get("kind") == "List":
        for item in document.get("items") or ():
            yield from _items(item, where)
        return
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        remedy = "give each object metadata.name"
        raise InputError(where=where, what="has an object without a name", remedy=remedy)
    yield document


def _completed(item: dict[str, Any], namespace: str, name: str) -> dict[str, Any]:
    """With what the API server would add."""
    metadata = dict(item["metadata"])
    if name not in OF_CLUSTER:
        metadata["namespace"] = metadata.get("namespace") or namespace
    metadata.setdefault("uid", f"{item.get('kind')}/{metadata['name']}")
    # YAML reads a moment as a moment, the API gives it as text.
    metadata.pop("creationTimestamp", None)
    return {**item, "metadata": metadata}


def _shown(path: str) -> str:
    return "standard input" if path == STANDARD_INPUT else path

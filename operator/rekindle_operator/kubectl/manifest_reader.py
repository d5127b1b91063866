"""Objects that preflight looks at, read from a file, or from standard input.

Kinds that it does not look at are passed over, so that a team's whole manifest can be given.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from rekindle.model.errors import InputError
from rekindle_operator.api.custom_resources import GROUP, clipped
from rekindle_operator.cluster.pods import SPARK_APPLICATION_GROUPS
from rekindle_operator.kubectl.application_reader import ObjectLists

STANDARD_INPUT = "-"
SHOWN_MAX = 200
# By (kind, API group) the list that an object goes to.
LISTS = {
    **{("SparkApplication", group): "applications" for group in SPARK_APPLICATION_GROUPS},
    ("Pod", ""): "pods",
    ("RecoveryPolicy", GROUP): "policies",
    ("RecoveryClass", GROUP): "classes",
    ("PersistentVolumeClaim", ""): "claims",
    ("ResourceQuota", ""): "quotas",
    ("LimitRange", ""): "limit_ranges",
    ("Node", ""): "nodes",
}
OF_CLUSTER = ("classes", "nodes")


def read(path: str, namespace: str) -> ObjectLists:
    """The objects of a file; those without a namespace are of `namespace`.

    InputError for a file that cannot be read, or that holds no application.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for number, document in enumerate(_documents(path), start=1):
        for item in _items(document, f"{_shown(path)}, document {number}"):
            group = str(item.get("apiVersion", "")).rpartition("/")[0]
            name = LISTS.get((str(item.get("kind")), group))
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
        what = f"is no YAML ({clipped(' '.join(str(error).split()), SHOWN_MAX)})"
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

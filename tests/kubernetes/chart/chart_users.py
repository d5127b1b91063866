"""What the API server says that somebody may do.

A resource is written as kubectl does, `machinedeployments.cluster.x-k8s.io/scale`.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from chart_commands import NAMESPACE
from kubernetes import client

__all__ = ["OPERATOR", "Asked", "each", "permitted"]

OPERATOR = f"system:serviceaccount:{NAMESPACE}:rekindle-operator"
ACCOUNTS = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody would do; in no namespace it is in all of them."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""


def each(verbs: tuple[str, ...], resources: tuple[str, ...], *places: str) -> list[Asked]:
    """Every verb, of every resource, in every place; in all of them where none is given."""
    return [Asked(*what) for what in itertools.product(verbs, resources, places or ("",))]


def permitted(api_client: client.ApiClient, user: str, asked: Iterable[Asked]) -> list[Asked]:
    """Those that RBAC lets the user do."""
    api = client.AuthorizationV1Api(api_client)
    groups = ["system:authenticated", *(ACCOUNTS if user.startswith("system:") else ())]

    def is_permitted(what: Asked) -> bool:
        kind, _, subresource = what.resource.partition("/")
        plural, _, group = kind.partition(".")
        attributes = {
            "verb": what.verb,
            "group": group,
            "resource": plural,
            "subresource": subresource,
            "namespace": what.namespace,
            "name": what.name,
        }
        spec = {"user": user, "groups": groups, "resourceAttributes": attributes}
        body: Any = {"spec": spec}
        answer: Any = api.create_subject_access_review(body)
        return bool(answer.status.allowed)

    return [what for what in asked if is_permitted(what)]

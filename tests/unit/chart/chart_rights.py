"""Rights of operator, webhook and gate release, by their roles and by docs/install.md.

A resource is written as kubectl does, `machinedeployments.cluster.x-k8s.io/scale`.
"""

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from chart_commands import NAMESPACE, ROOT, Object

OPERATOR, WEBHOOK, RELEASE = "rekindle-operator", "rekindle-webhook", "rekindle-release-gates"

ROW = re.compile(r"^\| (cluster|own|`[a-z-]+`) \|([^|]*)\|([^|]*)\|[^|]*\|([^|]*)\|$", re.MULTILINE)
RESOURCE = re.compile(r"`([^`]+)`(?: named `([^`]+)`)?")


@dataclass(frozen=True, slots=True)
class Right:
    """`where` is `cluster`, `own` (the operator's namespace) or a namespace; without a name it is
    of all objects."""

    where: str
    resource: str
    name: str
    verb: str


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: rights, and the values that give them; without any it is always."""

    rights: frozenset[Right]
    settings: tuple[str, ...]


def rights(objects: Iterable[Object], account: str = OPERATOR) -> set[Right]:
    """What the rendered roles give to an account."""
    rendered = [*objects]
    bound = {
        (item["roleRef"]["kind"], item["roleRef"]["name"], _place(item))
        for item in rendered
        if item["kind"] in ("RoleBinding", "ClusterRoleBinding")
        and any(subject["name"] == account for subject in item["subjects"])
    }
    return {
        Right(_place(role), _written(resource, group), name, verb)
        for role in rendered
        if role["kind"] in ("Role", "ClusterRole")
        and (role["kind"], role["metadata"]["name"], _place(role)) in bound
        for rule in role["rules"]
        for group, resource, name, verb in itertools.product(
            rule["apiGroups"], rule["resources"], rule.get("resourceNames", [""]), rule["verbs"]
        )
    }


def documented(account: str = OPERATOR) -> list[Row]:
    """The table of an account in docs/install.md, of which each has one."""
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    operators, _, others = page.partition("The webhook's account")
    webhooks, _, releases = others.partition("The account of the Job")
    text = {OPERATOR: operators, WEBHOOK: webhooks, RELEASE: releases}[account]
    return [
        Row(
            frozenset(
                Right(where.strip("`"), resource, name, verb)
                for resource, name in RESOURCE.findall(resources)
                for verb in re.findall(r"\w+", verbs)
            ),
            tuple(re.findall(r"`([^`]+)`", settings)),
        )
        for where, resources, verbs, settings in ROW.findall(text)
    ]


def given(setting: str | None, account: str = OPERATOR) -> set[Right]:
    """What the table says that a value gives; None: what is always there."""
    return {
        right
        for row in documented(account)
        if (setting in row.settings if setting else not row.settings)
        for right in row.rights
    }


def _written(resource: str, group: str) -> str:
    kind, slash, subresource = resource.partition("/")
    return f"{kind}.{group}".rstrip(".") + slash + subresource


def _place(item: Object) -> str:
    if item["kind"].startswith("ClusterRole"):
        return "cluster"
    namespace: str = item["metadata"]["namespace"]
    return "own" if namespace == NAMESPACE else namespace

"""`kubectl rekindle release`: pods that wait for their turn run, also without an operator."""

from collections.abc import Iterable
from typing import Annotated

import typer

from rekindle.model.errors import InputError
from rekindle_operator.gates import waiting_pods
from rekindle_operator.kubectl import (
    application_reader,
    plugin_options,
    preflight_reader,
    resource_lookup,
    terminal_output,
)
from rekindle_operator.kubectl.api_connection import (
    PODS,
    POLICIES,
    STRATEGIC,
    ApiConnection,
    ApiRefusal,
    Object,
    connected,
)
from rekindle_operator.kubectl.application_reader import ObjectLists

MANAGER = "kubectl-rekindle-release"
MORE = (
    "New pods may still have to wait: for three minutes after the last word of an operator that is "
    "gone; where one runs, until `kubectl rekindle pause`."
)


def release(
    policy: plugin_options.Policy = None,
    every: Annotated[
        bool, typer.Option("--all", help="All pods of the namespace, whatever their policy.")
    ] = False,
    everywhere: plugin_options.AllNamespaces = False,
    dry_run: plugin_options.DryRun = False,
    namespace: plugin_options.Namespace = None,
    context: plugin_options.Context = None,
    kubeconfig: plugin_options.Kubeconfig = None,
    output: plugin_options.Output = plugin_options.Form.TABLE,
) -> None:
    """Let pods run that wait for their turn, whatever the plan says.

    It takes our scheduling gate off pods of a policy's applications. Gates of others stay.

    Example: kubectl rekindle release --policy nightly -n reports
    """
    if everywhere and not every:
        raise InputError(
            where="--all-namespaces",
            what="is given without --all, and policies are of one namespace",
            remedy="add --all, or name a namespace with -n",
        )
    if every and policy is not None:
        raise InputError(
            where="--all",
            what=f"is given together with --policy {policy}",
            remedy="leave one of them out",
        )
    target = plugin_options.Target(namespace, context, kubeconfig, everywhere=everywhere)
    with connected(target) as cluster:
        name = None if every else resource_lookup.policy(cluster, policy)["metadata"]["name"]
        pods = _waiting(cluster, name)
        refusals: list[ApiRefusal] = []
        if not dry_run:
            pods, refusals = _lift(cluster, pods)
        where = None if everywhere else cluster.default_namespace
    names = sorted(_shown(pod, everywhere=everywhere) for pod in pods)
    if output is plugin_options.Form.JSON:
        record = {"policy": name, "namespace": where, "released": not dry_run, "pods": names}
        terminal_output.show_json(record)
    elif names or not refusals:
        head = f"policy {where}/{name}" if name else f"namespace {where}"
        head = "all namespaces" if everywhere else head
        _show(head, names, dry_run=dry_run)
    if refusals:
        raise _refused(refusals)


def _shown(pod: Object, *, everywhere: bool) -> str:
    """A pod's name, with its namespace where pods of several are shown."""
    metadata = pod["metadata"]
    name: str = metadata["name"]
    return f"{metadata['namespace']}/{name}" if everywhere else name


def _show(head: str, names: list[str], *, dry_run: bool) -> None:
    if not names:
        terminal_output.show(f"{head}: no pod waits for its turn.")
        return
    gates = "the gate of 1 pod" if len(names) == 1 else f"the gates of {len(names)} pods"
    verb = "would be lifted" if dry_run else "is lifted" if len(names) == 1 else "are lifted"
    terminal_output.show(
        f"{head}: {gates} {verb}.",
        *(f"  {item}" for item in names),
        MORE,
    )


def _waiting(cluster: ApiConnection, policy: str | None) -> list[Object]:
    """Pods with our gate: of a policy's applications, or all, whatever their labels are."""
    if policy is None:
        pending = cluster.list(PODS, cluster.namespace, fieldSelector=waiting_pods.PENDING)
        return [*waiting_pods.waiting(pending)]
    pods = preflight_reader.read_pods(cluster)
    gated = [*waiting_pods.waiting(pods)]
    if not gated:
        return []
    uids = _uids(cluster, pods, policy)
    return [pod for pod in gated if pod["metadata"]["uid"] in uids]


def _uids(cluster: ApiConnection, pods: tuple[Object, ...], policy: str) -> set[str]:
    """Pods of the applications for which a policy holds, by the operator's own rules."""
    known = application_reader.told(
        ObjectLists(
            pods=pods,
            applications=preflight_reader.read_applications(cluster),
            policies=tuple(cluster.list(POLICIES, cluster.default_namespace)),
        )
    )
    found = [known.application(place) for place in known.places()]
    holder = f"{cluster.default_namespace}/{policy}"
    return {
        pod.uid
        for application in found
        if application is not None and application.policy == holder
        for pod in application.pods
    }


def _refused(refusals: list[ApiRefusal]) -> InputError:
    """An admission policy may refuse one pod and not another."""
    first, more = refusals[0], len(refusals) - 1
    others = f"; {more} more keep{'s its gate' if more == 1 else ' their gates'}" if more else ""
    return InputError(where=first.where, what=f"{first.what}{others}", remedy=first.remedy)


def _lift(cluster: ApiConnection, pods: Iterable[Object]) -> tuple[list[Object], list[ApiRefusal]]:
    """Take our gate off pods: those from which it is off, and what was refused of the others. One
    that has changed meanwhile is tried once more."""

    def patch(namespace: str, name: str, change: Object) -> tuple[int, ApiRefusal] | None:
        try:
            cluster.merge(PODS, (namespace, name), change, MANAGER, STRATEGIC)
        except ApiRefusal as refusal:
            return refusal.status, refusal
        return None

    first = waiting_pods.lift(pods, patch)
    refusals = [refusal for _, refusal in first.refused]
    again: list[Object] = []
    for pod, _ in first.changed:
        try:
            again += _still_waiting(cluster, pod)
        except ApiRefusal as refusal:
            refusals.append(refusal)
    second = waiting_pods.lift(again, patch)
    refusals += [refusal for _, refusal in (*second.changed, *second.refused)]
    return [*first.lifted, *second.lifted], refusals


def _still_waiting(cluster: ApiConnection, pod: Object) -> list[Object]:
    """A pod that was in conflict with a change, as it is now, where it still waits; nothing where
    another pod has its name. The right to list pods is enough."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    found = cluster.list(PODS, namespace, fieldSelector=f"metadata.name={name}")
    same = [item for item in found if item["metadata"]["uid"] == pod["metadata"]["uid"]]
    return [*waiting_pods.waiting(same)]

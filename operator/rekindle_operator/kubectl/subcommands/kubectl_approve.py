"""`kubectl rekindle approve`: the approval of a recovery, after saying what it will do."""

from collections.abc import Iterator
from typing import Annotated

import typer

from rekindle.model.errors import InputError
from rekindle_operator.api import recovery_class, recovery_policy
from rekindle_operator.api.custom_resources import identity
from rekindle_operator.api.recovery_class import RecoveryClass
from rekindle_operator.api.recovery_policy import RecoveryPolicy
from rekindle_operator.api.recovery_resource import Recovery
from rekindle_operator.kubectl import plugin_options, resource_lookup, terminal_output
from rekindle_operator.kubectl.api_connection import (
    CLASSES,
    POLICIES,
    RECOVERIES,
    ApiConnection,
    connected,
)
from rekindle_operator.kubectl.recovery_text import outlook

# The effects of an approval, in sentences.


def of_approval(
    recovery: Recovery,
    policy: RecoveryPolicy | None,
    class_: RecoveryClass | None,
    *,
    fencing: bool = False,
) -> Iterator[str]:
    """What happens once it is approved, or with `fencing` once that its driver's node is fenced is;
    policy and class are None where they cannot be read."""
    if fencing:
        yield from _fencing(recovery, policy, class_)
        yield "An approval of fencing cannot be taken back."
        return
    yield from _planning(recovery, policy, class_)
    yield "An approval cannot be taken back; `kubectl rekindle pause` stops the recovery."


def _planning(
    recovery: Recovery, policy: RecoveryPolicy | None, class_: RecoveryClass | None
) -> Iterator[str]:
    found = outlook(recovery)
    count = len(found.waiting)
    queries = "1 query waits" if count == 1 else f"{count} queries wait"
    if recovery.status.phase == "AwaitingApproval":
        lost = recovery.status.lost_nodes_total
        nodes = "1 node is" if lost == 1 else f"{lost} nodes are"
        yield f"{nodes} lost, {queries}: plans are made and carried out, the most important first."
        yield "Nodes are requested in place of those that are lost, as far as the class allows."
    else:
        phase = recovery.status.phase
        state = f"It is {phase}" if phase else "No operator has looked at it yet"
        yield f"{state}; {queries}. Nothing waits for the approval."
    dry = (policy is not None and policy.spec.dry_run) or (
        class_ is not None and class_.spec.dry_run
    )
    if dry:
        yield "Policy or class says dry run: plans are recorded and not carried out."
    paused = (policy is not None and policy.spec.paused) or (
        class_ is not None and class_.spec.paused
    )
    if paused:
        yield "Policy or class is paused: nothing happens until that ends."


def _fencing(
    recovery: Recovery, policy: RecoveryPolicy | None, class_: RecoveryClass | None
) -> Iterator[str]:
    """Who approves of it says that the driver's node is off for certain."""
    driver = recovery.status.driver
    nodes = [node.name for node in recovery.status.lost_nodes if node.driver]
    if not nodes or (driver is not None and (driver.back_at or driver.fenced_at)):
        yield "No driver of it waits on a lost node: nothing is fenced."
        return
    names = ", ".join(nodes)
    if policy is not None and policy.spec.guards.fencing == "Never":
        yield f"The driver was on {names}; the policy never fences, so its pod waits for a person."
    elif class_ is None:
        yield (
            f"The driver was on {names}. The class cannot be read: where its fencing takes "
            "Approval as certainty, you say by this that the node is off."
        )
    elif class_.spec.fencing.mode == "None" or "Approval" not in class_.spec.fencing.certainty:
        yield f"The driver was on {names}. The class fences nothing by an approval."
    else:
        does = "deleted" if class_.spec.fencing.mode == "DeleteNode" else "tainted out of service"
        yield (
            f"The driver was on {names}. You say by this that the node is off for certain: it is "
            f"{does}, and another driver starts."
        )


MANAGER = "kubectl-rekindle-approve"


def approve(
    name: Annotated[str, typer.Argument(metavar="RECOVERY", help="The recovery.")],
    fencing: Annotated[
        bool,
        typer.Option(
            "--fencing", help="Say that the driver's lost node is off; it takes a right of its own."
        ),
    ] = False,
    dry_run: plugin_options.DryRun = False,
    namespace: plugin_options.Namespace = None,
    context: plugin_options.Context = None,
    kubeconfig: plugin_options.Kubeconfig = None,
    output: plugin_options.Output = plugin_options.Form.TABLE,
) -> None:
    """Approve a recovery that waits for a person.

    There is no way back.

    Example: kubectl rekindle approve departures-7-1f3a9 -n flights
    """
    with connected(plugin_options.Target(namespace, context, kubeconfig)) as cluster:
        recovery = resource_lookup.recovery(cluster, name)
        before = recovery.spec.fencing_approved if fencing else recovery.spec.approved
        _check(recovery, before=before)
        terms = _terms(cluster, recovery)
        said = list(of_approval(recovery, *terms, fencing=fencing))
        if not dry_run and not before:
            field = "fencingApproved" if fencing else "approved"
            place = (recovery.metadata.namespace, recovery.metadata.name)
            cluster.merge(RECOVERIES, place, {"spec": {field: True}}, MANAGER)
    approved = before or not dry_run
    if output is plugin_options.Form.JSON:
        record = {"recovery": recovery.metadata.name, "namespace": recovery.metadata.namespace}
        what = "fencing_approved" if fencing else "approved"
        terminal_output.show_json({**record, what: approved, "before": before, "effects": said})
        return
    of = "fencing " if fencing else ""
    told = f"{of}approved" if not dry_run else f"{of}would be approved"
    head = f"{of}was approved already" if before else told
    terminal_output.show(f"recovery {identity(recovery)}: {head}.", *([] if before else said))


def _check(recovery: Recovery, *, before: bool) -> None:
    if recovery.status.has_ended and not before:
        phase = recovery.status.phase or "in a phase of a newer release"
        raise InputError(
            where=f"recovery {identity(recovery)}",
            what=f"is over ({phase}), so there is nothing to approve",
            remedy="see `kubectl rekindle status` for those that are open",
        )


def _terms(
    cluster: ApiConnection, recovery: Recovery
) -> tuple[RecoveryPolicy | None, RecoveryClass | None]:
    """Policy and class of the recovery, as far as they can be read."""
    spec = recovery.spec
    policy: RecoveryPolicy | None = None
    class_: RecoveryClass | None = None
    try:
        policy = recovery_policy.from_object(cluster.get(POLICIES, spec.policy_name))
    except InputError:
        policy = None
    try:
        class_ = recovery_class.from_object(cluster.get(CLASSES, spec.class_name))
    except InputError:
        class_ = None
    return policy, class_

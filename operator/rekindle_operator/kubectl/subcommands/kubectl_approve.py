"""`kubectl rekindle approve`: the approval of a recovery, after saying what it will do."""

from typing import Annotated

import typer

from rekindle.model.errors import InputError
from rekindle_operator.api import recovery_class, recovery_policy
from rekindle_operator.api.custom_resources import identity
from rekindle_operator.api.recovery_class import RecoveryClass
from rekindle_operator.api.recovery_policy import RecoveryPolicy
from rekindle_operator.api.recovery_resource import Recovery
from rekindle_operator.api.recovery_status import ENDED
from rekindle_operator.kubectl import approval_preview, resource_lookup, terminal_output
from rekindle_operator.kubectl.api_connection import ApiConnection, connected
from rekindle_operator.kubectl.plugin_options import (
    Context,
    DryRun,
    Form,
    Kubeconfig,
    Namespace,
    Output,
    Target,
)
from rekindle_operator.kubectl.resource_kinds import CLASSES, POLICIES, RECOVERIES

MANAGER = "kubectl-rekindle-approve"


def approve(
    name: Annotated[str, typer.Argument(metavar="RECOVERY", help="The recovery.")],
    fencing: Annotated[
        bool,
        typer.Option(
            "--fencing", help="Say that the driver's lost node is off; it takes a right of its own."
        ),
    ] = False,
    dry_run: DryRun = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Form.TABLE,
) -> None:
    """Approve a recovery that waits for a person.

    There is no way back.

    Example: kubectl rekindle approve departures-7-1f3a9 -n flights
    """
    with connected(Target(namespace, context, kubeconfig)) as cluster:
        recovery = resource_lookup.recovery(cluster, name)
        before = recovery.spec.fencing_approved if fencing else recovery.spec.approved
        _check(recovery, before=before)
        terms = _terms(cluster, recovery)
        said = list(approval_preview.of_approval(recovery, *terms, fencing=fencing))
        if not dry_run and not before:
            field = "fencingApproved" if fencing else "approved"
            place = (recovery.metadata.namespace, recovery.metadata.name)
            cluster.merge(RECOVERIES, place, {"spec": {field: True}}, MANAGER)
    approved = before or not dry_run
    if output is Form.JSON:
        record = {"recovery": recovery.metadata.name, "namespace": recovery.metadata.namespace}
        what = "fencing_approved" if fencing else "approved"
        terminal_output.show_json({**record, what: approved, "before": before, "effects": said})
        return
    of = "fencing " if fencing else ""
    told = f"{of}approved" if not dry_run else f"{of}would be approved"
    head = f"{of}was approved already" if before else told
    terminal_output.show(f"recovery {identity(recovery)}: {head}.", *([] if before else said))


def _check(recovery: Recovery, *, before: bool) -> None:
    if recovery.status.phase in ENDED and not before:
        raise InputError(
            where=f"recovery {identity(recovery)}",
            what=f"is over ({recovery.status.phase}), so there is nothing to approve",
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

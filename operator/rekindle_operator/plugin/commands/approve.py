"""`kubectl rekindle approve`: the approval of a recovery, after saying what it will do."""

from typing import Annotated

import typer

from rekindle.errors import InputError
from rekindle_operator import classes, policies
from rekindle_operator.classes import RecoveryClass
from rekindle_operator.plugin import consequences, display, lookup
from rekindle_operator.plugin.connection import Cluster, connected
from rekindle_operator.plugin.kinds import CLASSES, POLICIES, RECOVERIES
from rekindle_operator.plugin.options import Context, Form, Kubeconfig, Namespace, Output, Target
from rekindle_operator.policies import RecoveryPolicy
from rekindle_operator.recoveries import Recovery
from rekindle_operator.resources import identity
from rekindle_operator.stories import ENDED

__all__ = ["approve"]

MANAGER = "kubectl-rekindle-approve"


def approve(
    name: Annotated[str, typer.Argument(metavar="RECOVERY", help="The recovery.")],
    fencing: Annotated[
        bool,
        typer.Option(
            "--fencing", help="Say that the driver's lost node is off; it takes a right of its own."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")
    ] = False,
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
        recovery = lookup.recovery(cluster, name)
        before = recovery.spec.fencing_approved if fencing else recovery.spec.approved
        _check(recovery, before=before)
        terms = _terms(cluster, recovery)
        said = list(consequences.of_approval(recovery, *terms, fencing=fencing))
        if not dry_run and not before:
            field = "fencingApproved" if fencing else "approved"
            place = (recovery.metadata.namespace, recovery.metadata.name)
            cluster.merge(RECOVERIES, place, {"spec": {field: True}}, MANAGER)
    approved = before or not dry_run
    if output is Form.JSON:
        record = {"recovery": recovery.metadata.name, "namespace": recovery.metadata.namespace}
        what = "fencing_approved" if fencing else "approved"
        display.show_json({**record, what: approved, "before": before, "effects": said})
        return
    of = "fencing " if fencing else ""
    told = f"{of}approved" if not dry_run else f"{of}would be approved"
    head = f"{of}was approved already" if before else told
    display.show(f"recovery {identity(recovery)}: {head}.", *([] if before else said))


def _check(recovery: Recovery, *, before: bool) -> None:
    if recovery.status.phase in ENDED and not before:
        raise InputError(
            where=f"recovery {identity(recovery)}",
            what=f"is over ({recovery.status.phase}), so there is nothing to approve",
            remedy="see `kubectl rekindle status` for those that are open",
        )


def _terms(
    cluster: Cluster, recovery: Recovery
) -> tuple[RecoveryPolicy | None, RecoveryClass | None]:
    """Policy and class of the recovery, as far as they can be read."""
    spec = recovery.spec
    policy: RecoveryPolicy | None = None
    class_: RecoveryClass | None = None
    try:
        policy = policies.from_object(cluster.get(POLICIES, spec.policy_name))
    except InputError:
        policy = None
    try:
        class_ = classes.from_object(cluster.get(CLASSES, spec.class_name))
    except InputError:
        class_ = None
    return policy, class_

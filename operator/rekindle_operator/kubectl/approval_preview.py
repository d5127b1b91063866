"""The effects of an approval, in sentences.

Pure; the command `approve` shows it before it approves.
"""

from collections.abc import Iterator

from rekindle_operator.api.recovery_class import RecoveryClass
from rekindle_operator.api.recovery_policy import RecoveryPolicy
from rekindle_operator.api.recovery_resource import Recovery
from rekindle_operator.kubectl.wait_text import outlook


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

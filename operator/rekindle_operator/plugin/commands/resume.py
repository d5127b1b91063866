"""`kubectl rekindle resume`: the end of a pause."""

from rekindle.errors import RunError
from rekindle_operator.plugin import applying, display, lookup, ownership, priorities
from rekindle_operator.plugin.commands.pause import MANAGER, Policy, place
from rekindle_operator.plugin.connection import connected
from rekindle_operator.plugin.options import Context, Form, Kubeconfig, Namespace, Output, Target

__all__ = ["resume"]


def resume(
    policy: Policy = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Form.TABLE,
) -> None:
    """End a pause.

    It gives up what `pause` has set. Who has set spec.paused otherwise has to take it back.

    Example: kubectl rekindle resume --policy departures -n flights
    """
    with connected(Target(namespace, context, kubeconfig)) as cluster:
        record = lookup.policy(cluster, policy)
        before = bool(record["spec"].get("paused"))
        if MANAGER in ownership.managers_of(record, "spec", "paused"):
            record = applying.apply(cluster, record, MANAGER, priorities.bare)
    name = f"{record['metadata']['namespace']}/{record['metadata']['name']}"
    if record["spec"].get("paused"):
        others = ownership.managers_of(record, "spec", "paused")
        raise RunError(
            where=f"policy {name}",
            what=f"is still paused, by {' and '.join(others) or 'somebody else'}",
            remedy="set spec.paused to false where it is set to true",
        )
    if output is Form.JSON:
        display.show_json({**place(record), "paused": False, "before": before})
        return
    said = "goes on" if before else "was not paused"
    display.show(f"policy {name}: {said}. A class that is paused would still hold it.")

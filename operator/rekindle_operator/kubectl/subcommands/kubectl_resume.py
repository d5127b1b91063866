"""`kubectl rekindle resume`: the end of a pause."""

from rekindle.model.errors import RunError
from rekindle_operator.kubectl import resource_lookup, server_side_apply, terminal_output
from rekindle_operator.kubectl.api_connection import connected
from rekindle_operator.kubectl.plugin_options import (
    Context,
    Form,
    Kubeconfig,
    Namespace,
    Output,
    Policy,
    Target,
)
from rekindle_operator.kubectl.subcommands.kubectl_pause import MANAGER, place


def resume(
    policy: Policy = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Form.TABLE,
) -> None:
    """End a pause.

    It gives up what `kubectl_pause` has set. Who has set spec.paused otherwise has to take it back.

    Example: kubectl rekindle resume --policy departures -n flights
    """
    with connected(Target(namespace, context, kubeconfig)) as cluster:
        record = resource_lookup.policy(cluster, policy)
        before = bool(record["spec"].get("paused"))
        if MANAGER in server_side_apply.managers_of(record, "spec", "paused"):
            record = server_side_apply.apply(cluster, record, MANAGER, server_side_apply.bare)
    name = f"{record['metadata']['namespace']}/{record['metadata']['name']}"
    if record["spec"].get("paused"):
        others = server_side_apply.managers_of(record, "spec", "paused")
        raise RunError(
            where=f"policy {name}",
            what=f"is still paused, by {' and '.join(others) or 'somebody else'}",
            remedy="set spec.paused to false where it is set to true",
        )
    if output is Form.JSON:
        terminal_output.show_json({**place(record), "paused": False, "before": before})
        return
    said = "goes on" if before else "was not paused"
    terminal_output.show(f"policy {name}: {said}. A class that is paused would still hold it.")

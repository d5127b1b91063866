"""`kubectl rekindle pause` and `resume`: a pause of a policy's applications, and its end."""

from typing import Annotated

import typer

from rekindle.model.errors import RunError
from rekindle_operator.kubectl import (
    plugin_options,
    resource_lookup,
    server_side_apply,
    terminal_output,
)
from rekindle_operator.kubectl.api_connection import Object, connected

MANAGER = "kubectl-rekindle-pause"


def pause(
    policy: plugin_options.Policy = None,
    force: Annotated[
        bool, typer.Option("--force", help="Take the field from whoever has set it.")
    ] = False,
    namespace: plugin_options.Namespace = None,
    context: plugin_options.Context = None,
    kubeconfig: plugin_options.Kubeconfig = None,
    output: plugin_options.Output = plugin_options.Form.TABLE,
) -> None:
    """Plan and request nothing for the applications of a policy.

    What runs goes on, and what is lost stays lost, until `kubectl rekindle resume`.

    Example: kubectl rekindle pause --policy departures -n flights
    """
    with connected(plugin_options.Target(namespace, context, kubeconfig)) as cluster:
        record = resource_lookup.policy(cluster, policy)
        before = bool(record["spec"].get("paused"))
        taken = force or (not before and server_side_apply.is_default(record, "spec", "paused"))
        record = server_side_apply.apply(cluster, record, MANAGER, _paused, force=taken)
    if output is plugin_options.Form.JSON:
        terminal_output.show_json({**_place(record), "paused": True, "before": before})
        return
    name = f"{record['metadata']['namespace']}/{record['metadata']['name']}"
    terminal_output.show(
        f"policy {name}: {'was paused already' if before else 'paused'}; nothing is planned or "
        "requested for its applications until `kubectl rekindle resume`."
    )


def resume(
    policy: plugin_options.Policy = None,
    namespace: plugin_options.Namespace = None,
    context: plugin_options.Context = None,
    kubeconfig: plugin_options.Kubeconfig = None,
    output: plugin_options.Output = plugin_options.Form.TABLE,
) -> None:
    """End a pause.

    It gives up what `pause` has set. Who has set spec.paused otherwise has to take it back.

    Example: kubectl rekindle resume --policy departures -n flights
    """
    with connected(plugin_options.Target(namespace, context, kubeconfig)) as cluster:
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
    if output is plugin_options.Form.JSON:
        terminal_output.show_json({**_place(record), "paused": False, "before": before})
        return
    said = "goes on" if before else "was not paused"
    terminal_output.show(f"policy {name}: {said}. A class that is paused would still hold it.")


def _place(record: Object) -> dict[str, str]:
    """A policy's name and namespace, for scripts."""
    metadata = record["metadata"]
    return {"policy": metadata["name"], "namespace": metadata["namespace"]}


def _paused(record: Object) -> Object:
    return {**server_side_apply.bare(record), "spec": {"paused": True}}

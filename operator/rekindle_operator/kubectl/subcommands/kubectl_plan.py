"""`kubectl rekindle plan`: what waits for the next plan, and what that waits for."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import typer

from rekindle_operator.api.custom_resources import identity, written
from rekindle_operator.api.recovery_resource import PlanMade, QueryRecovery, Recovery
from rekindle_operator.kubectl import (
    plugin_options,
    recovery_text,
    resource_lookup,
    terminal_output,
)
from rekindle_operator.kubectl.api_connection import connected
from rekindle_operator.kubectl.durations import clock, span
from rekindle_operator.kubectl.recovery_text import WaitOutlook

COLUMNS = ("QUERY", "PRIORITY", "OUT", "REASON", "WHY")


def plan(
    application: Annotated[
        str, typer.Argument(metavar="APPLICATION", help="Its newest recovery is looked at.")
    ],
    namespace: plugin_options.Namespace = None,
    context: plugin_options.Context = None,
    kubeconfig: plugin_options.Kubeconfig = None,
    output: plugin_options.Output = plugin_options.Form.TABLE,
) -> None:
    """Show what waits for the next plan, and what that waits for.

    Nothing is changed or planned. What fits is decided with measurements that the API does not
    have; they are in the coordination store, and `rekindle explain` computes with them.

    Example: kubectl rekindle plan departures -n flights
    """
    with connected(plugin_options.Target(namespace, context, kubeconfig)) as cluster:
        recovery = resource_lookup.recovery_or_newest(cluster, application)
        namespace, well = (
            cluster.default_namespace,
            resource_lookup.nothing_lost(cluster, application),
        )
    if recovery is None:
        if output is plugin_options.Form.JSON:
            nothing = {"recovery": None, "namespace": namespace, "application": application}
            terminal_output.show_json({**nothing, "over": True, "waiting": [], "sentences": [well]})
        else:
            terminal_output.show(well)
        return
    now = datetime.now().astimezone()
    found = recovery_text.outlook(recovery)
    if output is plugin_options.Form.JSON:
        terminal_output.show_json(_record(recovery, found))
        return
    terminal_output.show(*_sentences(recovery, found, now))
    if found.waiting:
        rows = (_cells(query, recovery, now) for query in found.waiting)
        terminal_output.show(terminal_output.table(COLUMNS, rows), recovery_text.UNKNOWN)


def _record(recovery: Recovery, found: WaitOutlook) -> dict[str, Any]:
    hindrance = found.hindrance and {"reason": found.hindrance[0], "message": found.hindrance[1]}
    return {
        "recovery": recovery.metadata.name,
        "namespace": recovery.metadata.namespace,
        "phase": recovery.status.phase,
        "over": found.over,
        "hindrance": hindrance,
        "waiting": [written(query) for query in found.waiting],
        "catchingUp": [written(query) for query in found.catching_up],
        "lastPlan": None if found.last is None else written(found.last),
        "awaited": None if found.unanswered is None else found.unanswered.number,
        "nodesComing": sum(request.count for request in found.coming),
        "whatIf": None,
        "whatIfMissing": recovery_text.UNKNOWN,
    }


def _sentences(recovery: Recovery, found: WaitOutlook, now: datetime) -> Iterator[str]:
    name = f"{identity(recovery)} ({recovery.status.phase or 'nobody has looked at it yet'})"
    if found.over:
        yield f"{name} is over, so nothing waits for a plan."
        return
    total = recovery.status.queries_total
    yield f"{name}: {len(found.waiting)} of {total} queries wait for a plan."
    behind = len(found.catching_up)
    if behind:
        yield "1 is placed and catches up." if behind == 1 else f"{behind} are placed and catch up."
    if found.hindrance is not None:
        yield "No plan is made until this has changed: {} ({}).".format(
            found.hindrance[1].rstrip(".") or "nothing is said", found.hindrance[0]
        )
    if found.unanswered is not None:
        yield f"The next plan comes after plan {found.unanswered.number}, which is on its way."
    for reason, message in found.reasons.items():
        yield f"{reason}: {message}"
    if found.last is not None:
        yield _last(found.last, now)
    yield from _coming(found)


def _last(made: PlanMade, now: datetime) -> str:
    cpu = f" {made.capacity_millicores} m CPU were free for it." if made.capacity_millicores else ""
    return f"The last plan, at {clock(made.at, now)} ({made.reason}): {made.text}{cpu}"


def _coming(found: WaitOutlook) -> Iterator[str]:
    count = sum(request.count for request in found.coming)
    if count:
        names = ", ".join(sorted({request.provider for request in found.coming}))
        nodes = "1 node is" if count == 1 else f"{count} nodes are"
        yield f"{nodes} on the way ({names}); each that comes leads to another plan."


def _cells(query: QueryRecovery, recovery: Recovery, now: datetime) -> list[str]:
    out = recovery_text.out_seconds(query, recovery, now)
    return [
        query.name,
        f"{query.priority:g}",
        "-" if out is None else span(out),
        query.reason or "-",
        query.message or "",
    ]

"""`kubectl rekindle explain`: the story of a recovery in words."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

import typer

from rekindle_operator.api.custom_resources import written
from rekindle_operator.api.recovery_resource import QueryRecovery, Recovery
from rekindle_operator.kubectl import (
    plugin_options,
    recovery_text,
    resource_lookup,
    terminal_output,
)
from rekindle_operator.kubectl.api_connection import connected
from rekindle_operator.kubectl.durations import clock, span

# In these an executor that has no node may be what is waited for.
WAITING = ("AwaitingDriver", "Recovering")
COLUMNS = ("QUERY", "PRIORITY", "LOST", "PLANNED", "BACK", "OUT", "WAITS")


def explain(
    name: Annotated[
        str,
        typer.Argument(metavar="RECOVERY|APPLICATION", help="Of an application, the newest one."),
    ],
    query: Annotated[str | None, typer.Argument(metavar="QUERY", help="One query of it.")] = None,
    namespace: plugin_options.Namespace = None,
    context: plugin_options.Context = None,
    kubeconfig: plugin_options.Kubeconfig = None,
    output: plugin_options.Output = plugin_options.Form.TABLE,
) -> None:
    """Tell the story of a recovery: what was lost, planned, back, and waits.

    Example: kubectl rekindle explain departures worst-delays -n flights
    """
    with connected(plugin_options.Target(namespace, context, kubeconfig)) as cluster:
        recovery = resource_lookup.recovery_or_newest(cluster, name)
        namespace, well = cluster.default_namespace, resource_lookup.nothing_lost(cluster, name)
        waiting = recovery is not None and recovery.status.phase in WAITING
        application = name if recovery is None else recovery.spec.application.name
        pods = resource_lookup.executors(cluster, application) if waiting else ()
        is_open = recovery is not None and not recovery.status.has_ended
        remark = resource_lookup.policy_remark(cluster, recovery) if recovery and is_open else ""
    if recovery is None:
        if output is plugin_options.Form.JSON:
            nothing = {"recovery": None, "namespace": namespace, "application": name}
            terminal_output.show_json({**nothing, "sentences": [well], "queries": []})
        else:
            terminal_output.show(well)
        return
    now = datetime.now().astimezone()
    queries: Iterable[QueryRecovery] = recovery.status.queries
    if query is None:
        sentences = tuple(recovery_text.story(recovery, now))
    else:
        chosen = recovery_text.query_named(recovery, query)
        queries = (chosen,)
        sentences = tuple(recovery_text.of_query(chosen, recovery, now))
    pending = recovery_text.pending_pods(pods, now.timestamp())
    sentences += tuple(filter(None, (pending, remark)))
    if output is plugin_options.Form.JSON:
        terminal_output.show_json(_record(recovery, queries, sentences, now))
        return
    terminal_output.show(*sentences)
    if query is None and recovery.status.queries:
        terminal_output.show(
            terminal_output.table(COLUMNS, (_cells(item, recovery, now) for item in queries))
        )


def _record(
    recovery: Recovery, queries: Iterable[QueryRecovery], sentences: Iterable[str], now: datetime
) -> dict[str, Any]:
    return {
        "recovery": recovery.metadata.name,
        "namespace": recovery.metadata.namespace,
        "spec": written(recovery.spec),
        "sentences": list(sentences),
        "queries": [
            {**written(query), "outSeconds": recovery_text.out_seconds(query, recovery, now)}
            for query in queries
        ],
        "status": written(recovery.status),
    }


def _cells(query: QueryRecovery, recovery: Recovery, now: datetime) -> list[str]:
    moments = (query.lost_at, query.planned_at, query.back_at)
    out = recovery_text.out_seconds(query, recovery, now)
    why = f"{query.reason}: {query.message}" if query.reason else ""
    return [
        query.name,
        f"{query.priority:g}",
        *("-" if moment is None else clock(moment, now) for moment in moments),
        "-" if out is None else span(out),
        why,
    ]

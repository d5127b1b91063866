"""`rekindle status`: the state and the problems of applications in a coordination store.

Shows what `rekindle.coordination.application_status` says.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rekindle.coordination.application_status import ApplicationStatus, Phase, QueryProgress
from rekindle.coordination.session import Driver
from rekindle_cli import coordination_access
from rekindle_cli.coordination_access import CaFile, Hosts, SecretFile
from rekindle_coordinator.status_reader import StatusReader
from rekindle_zookeeper import Connection, StoreUnreachable

WATCH_SECONDS = 1.0
# more are shown with a line each
DETAILED_MAX = 5
STYLES = {
    Phase.LIVE: "green",
    Phase.CATCHING_UP: "yellow",
    Phase.WAITING: "red",
    Phase.STOPPED: "red",
    Phase.FINISHED: "dim",
}
RUNNING = (Phase.LIVE, Phase.CATCHING_UP, Phase.WAITING, Phase.STOPPED)
PLAIN_WIDTH = 10_000


def status(
    zookeeper: Hosts,
    application: Annotated[
        str | None,
        typer.Argument(metavar="[NAMESPACE/APP]", help="One application.", show_default="all"),
    ] = None,
    secret_file: SecretFile = None,
    ca_file: CaFile = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it anew, until ended.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; with --watch a line for each change.")
    ] = False,
) -> None:
    """Show applications, their queries, incident and plan, and what is wrong.

    Example: rekindle status default/flights --zookeeper 127.0.0.1:2181 --watch
    """
    with coordination_access.opened(zookeeper, secret_file, ca_file) as connection:
        viewer = StatusReader(connection)
        if watch:
            _watch(connection, viewer, application, as_json)
            return
        try:
            found = _read(connection, viewer, application)
        except StoreUnreachable:
            if as_json:
                print(json.dumps(_record(None, 0), indent=2))
            raise
        if as_json:
            print(json.dumps(_record(found, viewer.coordinators()), indent=2))
        else:
            _console().print(renderable(found, viewer.coordinators()))


def _read(
    connection: Connection, viewer: StatusReader, application: str | None
) -> list[ApplicationStatus]:
    if application is not None:
        places = [coordination_access.find(connection, application)]
    else:
        places = coordination_access.applications(connection)
    now = time.time()
    return [viewer.standing(place, now) for place in places]


def _watch(
    connection: Connection, viewer: StatusReader, application: str | None, as_json: bool
) -> None:
    """Show it every second; where nobody looks at a terminal, only what has changed."""
    console = _console()
    live = console.is_terminal and not as_json
    before = ""
    with Live(console=console, auto_refresh=False) if live else nullcontext() as screen:
        while True:
            try:
                found, coordinators = _read(connection, viewer, application), viewer.coordinators()
                record = json.dumps(_record(found, coordinators))
                shown = renderable(found, coordinators)
            except StoreUnreachable as trouble:
                record, shown = json.dumps(_record(None, 0)), Text(str(trouble), style="red")
            if screen is not None:
                screen.update(shown, refresh=True)
            elif record != before:
                if as_json:
                    print(record, flush=True)
                else:
                    console.print(shown)
            before = record
            time.sleep(WATCH_SECONDS)


def _console() -> Console:
    """As wide as need be where nobody looks at a terminal."""
    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)


def _record(found: Sequence[ApplicationStatus] | None, coordinators: int) -> dict[str, Any]:
    return {
        "version": 1,
        "store_reachable": found is not None,
        "coordinators": coordinators,
        "applications": [msgspec.to_builtins(standing) for standing in found or ()],
    }


def renderable(found: Sequence[ApplicationStatus], coordinators: int) -> RenderableType:
    """The store and its applications; of many a line each."""
    head = Text(f"The store answers; coordinators: {coordinators or 'none'}.")
    if not found:
        return Group(head, Text("No application has told anything yet."))
    if len(found) > DETAILED_MAX:
        return Group(head, _overview(found))
    return Group(head, *(part for standing in found for part in _details(standing)))


def _overview(found: Sequence[ApplicationStatus]) -> Table:
    table = _table("application", "driver", "live", "catching up", "waiting", "incident", "wrong")
    for standing in found:
        phases = [query.phase for query in standing.queries]
        table.add_row(
            Text(standing.application),
            standing.driver.value,
            *(str(phases.count(phase)) for phase in RUNNING),
            "" if standing.incident is None else standing.incident.kind.value,
            Text(", ".join(dict.fromkeys(notice.reason for notice in standing.notices))),
        )
    return table


def _details(standing: ApplicationStatus) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(standing.application, style="bold").append(f": {_driver(standing)}", style="")
    if standing.nodes:
        names = list(standing.nodes.values())
        counts = {str(status): names.count(status) for status in dict.fromkeys(names)}
        yield Text("nodes: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    incident = standing.incident
    if incident is not None:
        what = f"lost {', '.join(incident.lost)}" if incident.lost else "a driver started again"
        if incident.is_announced and not incident.lost:
            what = "lost nothing yet"
        began = f"{incident.kind} since {_clock(incident.began_at)}, {what}"
        yield Text(f"incident {incident.number}: {began}; plans so far: {incident.plans}")
    if standing.plan is not None:
        yield Text(f"plan, {standing.plan.outcome}: {standing.plan.text}")
    if standing.queries:
        yield _queries(standing.queries)
    if (beyond := standing.weighted_beyond_goal_seconds) is not None:
        yield Text(f"beyond their goals, weighted by priority: {beyond:.1f} s")
    if standing.late_rows:
        late = ", ".join(f"{step} {rows:,}" for step, rows in standing.late_rows.items())
        yield Text(f"rows that came too late: {late}")
    for source, seen in standing.sources.items():
        lag = f"{seen.waiting:,} offsets wait, {seen.lag_seconds:.1f} s"
        yield Text(f"source {source}: {'away, ' if seen.away else ''}{lag}")
    for notice in standing.notices:
        yield Text(f"! {notice.reason}: {notice.text}", style="yellow")


def _driver(standing: ApplicationStatus) -> str:
    if not standing.generation:
        return "no driver has told anything yet"
    told = {
        Driver.THERE: "is there",
        Driver.GONE: "is gone",
        Driver.SILENT: "is silent",
        Driver.FINISHED: "has finished its run",
    }
    since = "" if standing.driver_since is None else f" since {_clock(standing.driver_since)}"
    return f"driver {standing.generation} {told[standing.driver]}{since}"


def _queries(queries: Sequence[QueryProgress]) -> Table:
    goals = any(query.lag_goal_seconds is not None for query in queries)
    columns = ("query", "priority", "state", "partitions", "lag s")
    table = _table(*columns, *(("goal s", "beyond s") if goals else ()))
    for query in sorted(queries, key=lambda query: (-query.priority, query.name)):
        until = "" if query.until is None else f" until {_clock(query.until)}"
        own = "" if query.priority == query.own_priority else f" (own: {query.own_priority:g})"
        table.add_row(
            Text(query.name),
            f"{query.priority:g}{until}{own}",
            Text(query.phase.value, style=STYLES[query.phase]),
            f"{query.live}/{query.partitions}",
            _seconds(query.lag_seconds),
            *((_goal(query), _seconds(query.beyond_goal_seconds)) if goals else ()),
        )
    return table


def _goal(query: QueryProgress) -> str:
    return "" if query.lag_goal_seconds is None else f"{query.lag_goal_seconds:g}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _table(*columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))


def _clock(moment: float) -> str:
    """The time of day, with the date unless it is today's."""
    at, today = time.localtime(moment), time.localtime()
    form = "%H:%M:%S" if at[:3] == today[:3] else "%Y-%m-%d %H:%M:%S"
    return time.strftime(form, at)

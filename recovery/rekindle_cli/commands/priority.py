"""`rekindle priority`: says which queries matter more than the pipeline says."""

import time
from typing import Annotated

import typer

from rekindle.model.topology import PRIORITY_MAX, PRIORITY_MIN
from rekindle.protocol import PriorityOverride
from rekindle_cli import coordination_access
from rekindle_cli.coordination_access import Application, CaFile, Hosts, SecretFile
from rekindle_zookeeper import Connection

priority = typer.Typer(
    help="Say which queries matter more than the pipeline says.\n\n"
    "Example: rekindle priority set default/flights busiest 9 --for 2h",
    no_args_is_help=True,
)
Query = Annotated[str, typer.Argument(metavar="QUERY", help="The query's name.")]


@priority.command("set")
def set_priority(
    application: Application,
    query: Query,
    number: Annotated[
        float,
        typer.Argument(
            metavar="N", min=PRIORITY_MIN, max=PRIORITY_MAX, help="1 to 10, 10 matters most."
        ),
    ],
    zookeeper: Hosts,
    secret_file: SecretFile = None,
    ca_file: CaFile = None,
    duration: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="90s, 30m, 2h or 1d.", show_default="ever"),
    ] = None,
) -> None:
    """Give a query another priority.

    Example: rekindle priority set default/flights busiest 9 --for 2h
    """
    now = time.time()
    until = None if duration is None else now + coordination_access.seconds(duration, "--for")
    override = PriorityOverride(priority=number, until=until)
    with coordination_access.opened(zookeeper, secret_file, ca_file) as connection:
        before = _change(connection, application, query, override, now)
    end = "" if until is None else f" until {time.strftime('%H:%M:%S', time.localtime(until))}"
    was = "" if before is None else f"; it was set to {before.priority:g}"
    typer.echo(f"{application}: {query} has priority {number:g}{end}{was}")


@priority.command("reset")
def reset_priority(
    application: Application,
    query: Query,
    zookeeper: Hosts,
    secret_file: SecretFile = None,
    ca_file: CaFile = None,
) -> None:
    """Give a query its own priority again.

    Example: rekindle priority reset default/flights busiest
    """
    with coordination_access.opened(zookeeper, secret_file, ca_file) as connection:
        before = _change(connection, application, query, None, time.time())
    was = "; it had it already" if before is None else f"; it was set to {before.priority:g}"
    typer.echo(f"{application}: {query} has its own priority{was}")


def _change(
    connection: Connection,
    application: str,
    query: str,
    override: PriorityOverride | None,
    now: float,
) -> PriorityOverride | None:
    """Write it; returns what was set before."""
    place = coordination_access.find(connection, application)
    coordination_access.find_query(connection, place, query)
    before = coordination_access.change_orders(
        connection,
        place,
        lambda orders: coordination_access.with_priority(orders, query, override),
        now,
    )
    held = before.priorities.get(query)
    return held if held is None or held.until is None or now < held.until else None

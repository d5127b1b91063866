"""`rekindle priority`: says which queries matter more than the pipeline says."""

import time
from typing import Annotated

import typer

from rekindle.model.topology import PRIORITY_MAX, PRIORITY_MIN
from rekindle.protocol import PriorityOverride
from rekindle_cli import coordination_access
from rekindle_cli.coordination_access import Application, Hosts, SecretFile

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
    before = _change(application, query, override, zookeeper, secret_file, now)
    end = "" if until is None else f" until {time.strftime('%H:%M:%S', time.localtime(until))}"
    was = "" if before is None else f"; it was set to {before.priority:g}"
    typer.echo(f"{application}: {query} has priority {number:g}{end}{was}")


@priority.command("reset")
def reset_priority(
    application: Application, query: Query, zookeeper: Hosts, secret_file: SecretFile = None
) -> None:
    """Give a query its own priority again.

    Example: rekindle priority reset default/flights busiest
    """
    before = _change(application, query, None, zookeeper, secret_file, time.time())
    was = "; it had it already" if before is None else f"; it was set to {before.priority:g}"
    typer.echo(f"{application}: {query} has its own priority{was}")


def _change(
    application: str,
    query: str,
    override: PriorityOverride | None,
    zookeeper: str,
    secret_file: SecretFile,
    now: float,
) -> PriorityOverride | None:
    """Write it; returns what was set before."""
    with coordination_access.opened(zookeeper, secret_file) as connection:
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

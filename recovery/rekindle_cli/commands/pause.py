"""`rekindle pause`: lets an application rest until `rekindle resume`."""

import time

import msgspec
import typer

from rekindle_cli import coordination_access
from rekindle_cli.coordination_access import Application, Hosts, SecretFile


def pause(application: Application, zookeeper: Hosts, secret_file: SecretFile = None) -> None:
    """Let an application finish its epoch and start no other, until it is resumed.

    Nothing is planned for it meanwhile; its input waits.

    Example: rekindle pause default/flights --zookeeper 127.0.0.1:2181
    """
    order(application, zookeeper, secret_file, paused=True)


def order(application: str, zookeeper: str, secret_file: SecretFile, *, paused: bool) -> None:
    """Order a pause, or its end; says so, and whether that is new."""
    with coordination_access.opened(zookeeper, secret_file) as connection:
        place = coordination_access.find(connection, application)
        before = coordination_access.change_orders(
            connection,
            place,
            lambda orders: msgspec.structs.replace(orders, paused=paused),
            time.time(),
        )
    what = "paused" if paused else "resumed"
    when = "was so already" if before.paused == paused else f"`rekindle status {place}` shows when"
    typer.echo(f"{place}: to be {what}; {when}")

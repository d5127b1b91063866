"""`rekindle pause` and `rekindle resume`: let an application rest, and end that."""

import time

import msgspec
import typer

from rekindle_cli import coordination_access
from rekindle_cli.coordination_access import Application, CaFile, Hosts, SecretFile
from rekindle_zookeeper import Connection


def pause(
    application: Application,
    zookeeper: Hosts,
    secret_file: SecretFile = None,
    ca_file: CaFile = None,
) -> None:
    """Let an application finish its epoch and start no other, until it is resumed.

    Nothing is planned for it meanwhile; its input waits.

    Example: rekindle pause default/flights --zookeeper 127.0.0.1:2181
    """
    with coordination_access.opened(zookeeper, secret_file, ca_file) as connection:
        _order(connection, application, paused=True)


def resume(
    application: Application,
    zookeeper: Hosts,
    secret_file: SecretFile = None,
    ca_file: CaFile = None,
) -> None:
    """Let a paused application go on.

    Example: rekindle resume default/flights --zookeeper 127.0.0.1:2181
    """
    with coordination_access.opened(zookeeper, secret_file, ca_file) as connection:
        _order(connection, application, paused=False)


def _order(connection: Connection, application: str, *, paused: bool) -> None:
    """Order a pause, or its end; says so, and whether that is new."""
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

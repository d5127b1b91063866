"""`rekindle resume`: ends what `rekindle pause` has begun."""

from rekindle_cli import coordination_access
from rekindle_cli.commands.pause import order
from rekindle_cli.coordination_access import Application, CaFile, Hosts, SecretFile


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
        order(connection, application, paused=False)

"""`rekindle resume`: ends what `rekindle pause` has begun."""

from rekindle_cli.commands.pause import order
from rekindle_cli.coordination_access import Application, Hosts, SecretFile


def resume(application: Application, zookeeper: Hosts, secret_file: SecretFile = None) -> None:
    """Let a paused application go on.

    Example: rekindle resume default/flights --zookeeper 127.0.0.1:2181
    """
    order(application, zookeeper, secret_file, paused=False)

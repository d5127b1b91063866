"""`rekindle explain`: why a query is not back yet, and what would bring it."""

import json
import time
from typing import Annotated

import msgspec
import typer

from rekindle.coordination import explanation
from rekindle.errors import InputError
from rekindle_cli import store_access
from rekindle_cli.store_access import Application, Hosts, SecretFile
from rekindle_coordinator.viewing import Viewer

__all__ = ["explain"]


def explain(
    application: Application,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The query's name.")],
    zookeeper: Hosts,
    secret_file: SecretFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print facts and sentences.")] = False,
) -> None:
    """Say why a query is not back yet, and what would bring it.

    Example: rekindle explain default/flights busiest --zookeeper 127.0.0.1:2181
    """
    with store_access.opened(zookeeper, secret_file) as connection:
        place = store_access.find(connection, application)
        view = Viewer(connection).view(place)
    if view is None:
        raise InputError(
            where=f"application {place}",
            what="has not told its queries yet",
            remedy="wait until its driver has started",
        )
    found = explanation.explain(view, query, time.time(), clock=time.monotonic)
    if as_json:
        typer.echo(json.dumps({"version": 1, **msgspec.to_builtins(found)}, indent=2))
        return
    for sentence in found.sentences:
        typer.echo(sentence)

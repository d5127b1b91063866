"""`rekindle explain`: why a query is not back yet, and what would bring it."""

import json
import time
from typing import Annotated

import msgspec
import typer

from rekindle.coordination import query_explanation
from rekindle.model.errors import InputError
from rekindle_cli import coordination_access
from rekindle_cli.coordination_access import Application, CaFile, Hosts, SecretFile
from rekindle_coordinator.status_reader import StatusReader


def explain(
    application: Application,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The query's name.")],
    zookeeper: Hosts,
    secret_file: SecretFile = None,
    ca_file: CaFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print facts and sentences.")] = False,
) -> None:
    """Say why a query is not back yet, and what would bring it.

    Example: rekindle explain default/flights busiest --zookeeper 127.0.0.1:2181
    """
    with coordination_access.opened(zookeeper, secret_file, ca_file) as connection:
        place = coordination_access.find(connection, application)
        view = StatusReader(connection).view(place)
    if view is None:
        raise InputError(
            where=f"application {place}",
            what="has not told its queries yet",
            remedy="wait until its driver has started",
        )
    found = query_explanation.explain(view, query, time.time(), clock=time.monotonic)
    if as_json:
        typer.echo(json.dumps({"version": 1, **msgspec.to_builtins(found)}, indent=2))
        return
    for sentence in found.sentences:
        typer.echo(sentence)

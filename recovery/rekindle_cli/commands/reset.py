"""`rekindle reset`: forgets an application in the coordination store, to start it over.

    look at what is there ──► show it ──► asked, or --yes ──► remove it, unless a driver has come

Generations count within a checkpoint store, and the coordination store remembers the highest. So a
driver on a new checkpoint store is refused under the old name until that history is removed here.
"""

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import typer

from rekindle import protocol
from rekindle.model.errors import InputError, RunError
from rekindle.protocol import Heartbeat, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_cli import coordination_access
from rekindle_cli.coordination_access import Application, CaFile, Hosts, SecretFile
from rekindle_zookeeper import Conflict, Connection
from rekindle_zookeeper.application_removal import (
    held,
    look_at_application,
    remove_application,
)

# What each record is, for whoever decides whether it may go.
RECORDS = {
    store_paths.TOPOLOGY: "pipeline and policy",
    store_paths.STATISTICS: "measured costs and sizes of states",
    store_paths.PROGRESS: "what ran where, and the newest plan",
    store_paths.CHECKPOINT: "which checkpoint was the newest",
    store_paths.COORDINATION: "incident, losses and plans, as the coordinator remembers them",
    store_paths.ORDERS: "priorities and a pause that people have ordered",
}
FOLDERS = {
    store_paths.DIRECTIVES: "orders to its drivers",
    store_paths.ACKS: "answers to these orders",
    store_paths.PIECES: "parts of large records",
}
UNKNOWN = "a record that this version does not know"
SESSION_SECONDS = 10.0
# A coordinator and a sidecar that run may write between a look and the removal.
ATTEMPTS_MAX = 10

Yes = Annotated[bool, typer.Option("--yes", help="Remove it without asking.")]


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """What the coordination store has of an application: records by name, numbers by folder."""

    place: Place
    records: tuple[str, ...]
    folders: Mapping[str, int]


def reset(
    application: Application,
    zookeeper: Hosts,
    secret_file: SecretFile = None,
    ca_file: CaFile = None,
    yes: Yes = False,
) -> None:
    """Forget an application in the coordination store, to start it over.

    Its driver must have ended. The checkpoint store with its output is not touched.

    Example: rekindle reset default/flights --zookeeper 127.0.0.1:2181
    """
    with coordination_access.opened(zookeeper, secret_file, ca_file, SESSION_SECONDS) as connection:
        place = coordination_access.find(connection, application)
        _check_no_driver(connection, place)
        typer.echo(_shown(_look(connection, place)))
        if not yes:
            _ask()
        _remove(connection, place)
    typer.echo(
        f"{place}: removed. The checkpoint store is not touched: to start over, give the next "
        "`rekindle run` an empty --store, and remove the old one when nobody reads its output any "
        "more. With the old one a driver goes on from its last checkpoint."
    )


def _look(connection: Connection, place: Place) -> FoundRecords:
    names = connection.children(place.path())
    others = [name for name in names if name not in (*RECORDS, *FOLDERS, store_paths.HEARTBEAT)]
    return FoundRecords(
        place,
        (*(name for name in RECORDS if name in names), *others),
        {name: len(held(connection, place, name)) for name in FOLDERS if name in names},
    )


def _check_no_driver(connection: Connection, place: Place) -> None:
    """Raise InputError while a driver is there: it would write everything again."""
    path = place.path(store_paths.HEARTBEAT)
    found = connection.get(path)
    if found is None:
        return
    what = "has a driver that is there"
    with suppress(InputError):
        heartbeat = protocol.decode(found[0], Heartbeat, path)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(heartbeat.since))
        what += f": generation {heartbeat.generation}, process {heartbeat.process_id} on "
        what += f"{heartbeat.host!r}, since {since}"
    raise InputError(
        where=f"application {place}",
        what=what,
        remedy="end it first, with `rekindle savepoint STORE` or a file named finish in the "
        "store; the heartbeat of one that was killed goes after its sidecar's session time, mostly "
        f"{SESSION_SECONDS:.0f} s",
    )


def _shown(found: FoundRecords) -> str:
    width = max(map(len, (*RECORDS, *FOLDERS)))
    lines = [f"{found.place}: this is what the coordination store has of it"]
    for name in found.records:
        lines.append(f"  {ascii(name)[1:-1]:{width}}  {RECORDS.get(name, UNKNOWN)}")
    for name, count in found.folders.items():
        if count:
            lines.append(f"  {name:{width}}  {FOLDERS[name]}: {count:,}")
    return "\n".join(lines)


def _ask() -> None:
    """Go on only if somebody says so."""
    if not sys.stdin.isatty():
        raise InputError(
            where="rekindle reset",
            what="removes what is shown above, and nobody can be asked",
            remedy="add --yes",
        )
    if not typer.confirm("Remove all of it?"):
        typer.echo("Nothing was removed.")
        raise typer.Exit(1)


def _remove(connection: Connection, place: Place) -> None:
    for _ in range(ATTEMPTS_MAX):
        _check_no_driver(connection, place)
        try:
            remove_application(connection, look_at_application(connection, place))
        except Conflict:
            continue
        return
    raise RunError(
        where=f"application {place}",
        what=f"was written at each of {ATTEMPTS_MAX} attempts to remove it",
        remedy="end whoever starts or writes it, and try again",
    )

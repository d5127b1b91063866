"""Where `simulate` and `forecast` get an application from: a file, a report, or the store.

Commands call it; it reads and refuses, `rekindle.forecast` computes.
"""

import time
from pathlib import Path
from typing import Annotated

import typer

from rekindle.coordination import CoordinationState, NodeStatus
from rekindle.coordination.application_status import case_of
from rekindle.coordination.coordination_state import with_status
from rekindle.forecast import steady_state
from rekindle.forecast.failure_simulation import Model
from rekindle.model.errors import InputError
from rekindle.model.sentences import counted
from rekindle_cli import coordination_access

ARRIVE = "uniform:120..360"
MODEL = Model()

Situation = Annotated[
    str | None,
    typer.Argument(
        metavar="SITUATION", help="A file, a report's directory, or NAMESPACE/APP of a store."
    ),
]
Arrive = Annotated[
    str,
    typer.Option(
        help="When nodes come, in seconds: fixed:FIRST,EVERY, uniform:LOW..HIGH, or trace:FILE."
    ),
]
Detect = Annotated[
    float, typer.Option("--detect-seconds", min=0, max=3_600, help="Until a loss is known.")
]
Restore = Annotated[
    float,
    typer.Option(
        "--restore-seconds",
        min=0,
        max=3_600,
        help="Until a placed partition runs, besides reading its state.",
    ),
]
CheckpointAge = Annotated[
    float,
    typer.Option(
        "--checkpoint-age-seconds",
        min=0,
        max=86_400,
        help="How old the newest checkpoint is at the failure.",
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        envvar="REKINDLE_ZOOKEEPER",
        metavar="HOSTS",
        help="The store of a running application: HOST:PORT of each server, commas between.",
        show_default="none: SITUATION is a file",
    ),
]


def load(
    what: str | None, zookeeper: str | None, secret_file: Path | None, ca_file: Path | None = None
) -> CoordinationState:
    """The steady state of `what`: a file or a report's directory where there is one, else an
    application of the store. Raises InputError that names place and remedy."""
    if what is None:
        raise InputError(
            where="SITUATION",
            what="is missing",
            remedy="name a file as in docs/simulation.md, the directory of a report, or, with "
            "--zookeeper, an application",
        )
    path = Path(what)
    if zookeeper is not None and not path.exists():
        return _of_application(what, zookeeper, secret_file, ca_file)
    if path.is_dir():
        path = path / steady_state.FILE
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            where=str(path),
            what=f"cannot be read ({error.strerror})",
            remedy="name a situation as in docs/simulation.md, the directory of a report, or, with "
            "--zookeeper, an application",
        ) from error
    return steady_state.parse(content, str(path), clock=time.monotonic)


def _of_application(
    name: str, zookeeper: str, secret_file: Path | None, ca_file: Path | None
) -> CoordinationState:
    from rekindle_coordinator.status_reader import StatusReader

    with coordination_access.opened(zookeeper, secret_file, ca_file) as connection:
        place = coordination_access.find(connection, name)
        view = StatusReader(connection).view(place)
    state = None if view is None else case_of(view, time.time(), clock=time.monotonic).state
    return steady(state, f"application {place}")


def steady(state: CoordinationState | None, where: str) -> CoordinationState:
    """The state of an application, where it is one that runs as ever; InputError for others."""
    if state is None or state.starting or not state.placement:
        raise InputError(
            where=where,
            what="has not started yet",
            remedy="wait until its queries run",
        )
    if state.incident is not None:
        raise InputError(
            where=where,
            what=f"is in the middle of incident {state.incident.number}",
            remedy="wait until it is over; `rekindle explain` says what comes back when",
        )
    if silent := with_status(state, NodeStatus.SUSPECTED):
        raise InputError(
            where=where,
            what=f"has nodes that are silent: {', '.join(silent)[:200]}",
            remedy="wait until they are heard again, or lost; `rekindle status` shows them",
        )
    if state.catching_up:
        raise InputError(
            where=where,
            what=f"has {counted(len(state.catching_up), 'query partition')} still catching up",
            remedy="wait until all are live, as `rekindle status` shows",
        )
    return state

"""`rekindle coordinator`: coordinates the applications of a store until it is ended."""

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

import typer

from rekindle.model.errors import InputError
from rekindle.protocol import msgspec_warmup
from rekindle_cli import coordination_access
from rekindle_cli.coordination_access import CaFile, Hosts, SecretFile
from rekindle_coordinator import coordinator_health, health_server, json_lines
from rekindle_coordinator.application_retention import ApplicationRetention
from rekindle_coordinator.coordinator_log import Log
from rekindle_coordinator.coordinator_loop import CoordinatorLoop
from rekindle_local.local_provisioning import LocalProvider

# With a console beside it, who decides gets the interpreter back sooner than after Python's 5 ms.
SWITCH_SECONDS = 0.000_5

ConsolePort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65_535,
        help="For the web console; it asks nobody who they are.",
        show_default="none",
    ),
]
ConsoleHost = Annotated[
    str, typer.Option(help="Where the console listens; empty: every address of the machine.")
]
RetentionDays = Annotated[
    int,
    typer.Option(
        min=0,
        max=36_500,
        help="Remove records of an application after so many days without a driver; 0: never.",
    ),
]


def coordinator(
    zookeeper: Hosts,
    secret_file: SecretFile = None,
    ca_file: CaFile = None,
    cluster: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a local cluster, to see its nodes and to ask for others.",
            show_default="none: drivers tell",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="Where JSON lines are written.", show_default="standard output"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="For /metrics and /health.", show_default="none"),
    ] = None,
    console_port: ConsolePort = None,
    console_host: ConsoleHost = "127.0.0.1",
    session_seconds: Annotated[
        float, typer.Option(min=1, max=600, help="After how long of silence another one leads.")
    ] = 10.0,
    retention_days: RetentionDays = 0,
) -> None:
    """Coordinate the applications of a store; several coordinators elect the one that does.

    Ends at SIGTERM. Run a second one beside it, so that one may die.

    Example: rekindle coordinator --zookeeper 127.0.0.1:2181 --log coordinator.jsonl
    """
    if cluster is not None and not cluster.is_dir():
        raise InputError(
            where=f"--cluster {cluster}", what="is no folder", remedy="name the cluster's folder"
        )
    msgspec_warmup.work_out()
    metrics = coordinator_health.Metrics()
    with (
        _written(log) as file,
        coordination_access.opened(zookeeper, secret_file, ca_file, session_seconds) as connection,
    ):
        listening = {} if port is None else {"port": health_server.serve(metrics, port)}
        lines = Log(file)
        shell = CoordinatorLoop(
            connection=connection,
            log=lines,
            metrics=metrics,
            identity=f"{socket.gethostname()}:{os.getpid()}",
            provider=None if cluster is None else LocalProvider(cluster),
            retention=ApplicationRetention(connection, lines, retention_days),
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: shell.stop())
        with _console(shell, console_port, console_host) as served:
            shell.log.write("coordinator-started", identity=shell.identity, **listening, **served)
            shell.run()
        shell.log.write("coordinator-ended", identity=shell.identity)


@contextmanager
def _console(shell: CoordinatorLoop, port: int | None, host: str) -> Iterator[dict[str, int]]:
    """The console, where one is wanted, until the coordinator ends; gives its port for the log."""
    if port is None:
        yield {}
        return
    from rekindle_console import console_server
    from rekindle_console.coordinator_reader import CoordinatorReader

    sys.setswitchinterval(SWITCH_SECONDS)
    console = console_server.serve(CoordinatorReader(shell), port, host)
    try:
        yield {"console_port": console.port}
    finally:
        console.close()


@contextmanager
def _written(log: Path | None) -> Iterator[TextIO]:
    """The file for the log. Standard output is then only ours: the exact solver prints to it from
    C++, past Python and past its own switch for messages."""
    if log is None:
        with os.fdopen(os.dup(1), "w") as file:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            yield file
        return
    with json_lines.open_log(log) as file:
        yield file

"""`rekindle sidecar`: stands between one driver and ZooKeeper until a signal ends it.

Reads and checks options, then becomes the process of `rekindle_sidecar`, which does the work: what
only the command line needs is 10 MB that would lie there for as long as the driver lives.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from rekindle_cli.cli_options import check_range
from rekindle_sidecar.sidecar_options import SidecarOptions


def sidecar(
    zookeeper: Annotated[
        str, typer.Option(metavar="HOSTS", help="HOST:PORT of each server, commas between.")
    ],
    namespace: Annotated[str, typer.Option(help="Of the application.")],
    application: Annotated[str, typer.Option(help="Its name.")],
    socket: Annotated[Path, typer.Option(help="The Unix socket that the driver connects to.")],
    secret_file: Annotated[
        Path | None,
        typer.Option(help="Holds the secret that opens the store.", show_default="none"),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(
            envvar="REKINDLE_CA_FILE",
            help="Authorities of the servers' certificates, in PEM: speak TLS.",
            show_default="none: no TLS",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Serve metrics and health there.", show_default="none: they are not"),
    ] = None,
    host: Annotated[str, typer.Option(help="The address of that port.")] = "127.0.0.1",
    session_seconds: Annotated[
        float, typer.Option(help="A driver that is silent for so long counts as gone.")
    ] = 10.0,
) -> None:
    """Carry the reports of one driver to ZooKeeper, and directives back.

    Example: rekindle sidecar --zookeeper zk:2281 --namespace team --application flights --socket s
    """
    check_range("--session-seconds", session_seconds, 2, 60)
    if port is not None:
        check_range("--port", port, 1, 65_535)
    options = SidecarOptions(
        zookeeper=zookeeper,
        namespace=namespace,
        application=application,
        socket=str(socket),
        secret_file=None if secret_file is None else str(secret_file),
        ca_file=None if ca_file is None else str(ca_file),
        session_seconds=session_seconds,
        host=host,
        port=port,
    )
    _become([sys.executable, "-P", "-m", "rekindle_sidecar", msgspec.json.encode(options).decode()])


def _become(command: list[str]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], command)

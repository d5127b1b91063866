"""`rekindle-sidecar`, the sidecar's container: options from the environment, and its probe.

    REKINDLE_ZOOKEEPER         HOST:PORT of each server of the store, with commas between
    REKINDLE_NAMESPACE         of the application
    REKINDLE_APPLICATION       its name
    REKINDLE_SIDECAR_SOCKET    where the driver finds it
    REKINDLE_SECRET_FILE       holds the secret that opens the store; may be left out
    REKINDLE_CA_FILE           holds the authorities of its servers' certificates; none: plain text
    REKINDLE_SESSION_SECONDS   a driver that is silent for so long counts as gone, 10
    REKINDLE_METRICS_PORT      serves metrics and health there; may be left out
    REKINDLE_METRICS_HOST      the address of that port, 127.0.0.1

The admission webhook sets them. `rekindle-sidecar --probe` asks whether it answers on its socket;
the startup probe of its container runs that. A driver may start once it does: whether the store
answers is of no account, for a driver without a coordinator plans by itself. The probe is made of
the standard library alone, since it runs every second while a pod starts.
"""

import http.client
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from rekindle import interrupts
from rekindle.model.errors import InputError, RekindleError, RunError, refuse
from rekindle_sidecar.sidecar_options import SidecarOptions

SESSION_SECONDS, SESSION_SECONDS_MIN, SESSION_SECONDS_MAX = 10.0, 2.0, 60.0
PORT_MAX = 65_535

Environment = Mapping[str, str]


def main() -> None:
    """The console script; ends with the exit codes of `rekindle`."""
    interrupts.end_at_once(signal.SIGTERM)
    try:
        with interrupts.raised():
            code = _run(sys.argv[1:], os.environ)
    except KeyboardInterrupt:
        code = interrupts.INTERRUPTED
    sys.exit(code)


def _run(arguments: Sequence[str], environment: Environment) -> int:
    try:
        match [*arguments]:
            case ["--probe"]:
                probe(_needed(environment, "REKINDLE_SIDECAR_SOCKET"))
            case []:
                # What it imports takes longer than a probe may.
                from rekindle_sidecar import sidecar_process

                sidecar_process.serve(_options(environment))
            case _:
                refuse("rekindle-sidecar", "takes no argument but --probe", "leave it out")
    except RekindleError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


def _options(environment: Environment) -> SidecarOptions:
    port = environment.get("REKINDLE_METRICS_PORT")
    return SidecarOptions(
        zookeeper=_needed(environment, "REKINDLE_ZOOKEEPER"),
        namespace=_needed(environment, "REKINDLE_NAMESPACE"),
        application=_needed(environment, "REKINDLE_APPLICATION"),
        socket=_needed(environment, "REKINDLE_SIDECAR_SOCKET"),
        secret_file=environment.get("REKINDLE_SECRET_FILE") or None,
        ca_file=environment.get("REKINDLE_CA_FILE") or None,
        session_seconds=_session_seconds(environment),
        host=environment.get("REKINDLE_METRICS_HOST") or "127.0.0.1",
        port=_port(port) if port else None,
    )


def _session_seconds(environment: Environment) -> float:
    name = "REKINDLE_SESSION_SECONDS"
    text = environment.get(name) or str(SESSION_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not SESSION_SECONDS_MIN <= seconds <= SESSION_SECONDS_MAX:
        allowed = f"{SESSION_SECONDS_MIN:g} to {SESSION_SECONDS_MAX:g}"
        refuse(name, f"is {text[:60]!r}", f"give seconds from {allowed}")
    return seconds


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= PORT_MAX):
        refuse("REKINDLE_METRICS_PORT", f"is {text[:60]!r}", f"give a port from 1 to {PORT_MAX}")
    return int(text)


def _needed(environment: Environment, name: str) -> str:
    value = environment.get(name)
    if not value:
        refuse(name, "is not set", "see docs/injection.md for what a sidecar is told")
    return value


ANSWER_SECONDS_MAX = 4.0
OK = 200


def probe(path: str) -> None:
    """Ask the sidecar at a socket how it is. RunError when it does not answer."""
    connection = _Connection(path)
    try:
        connection.request("GET", "/v1/health")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        _fail(path, f"does not answer ({getattr(error, 'strerror', None) or error})", error)
    finally:
        connection.close()
    if status != OK:
        _fail(path, f"answers with status {status}")


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("sidecar", timeout=ANSWER_SECONDS_MAX)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_SECONDS_MAX)
        self.sock.connect(self._path)


def _fail(path: str, what: str, cause: Exception | None = None) -> NoReturn:
    raise RunError(
        where=f"socket {path}", what=what, remedy="see the log of the sidecar's container"
    ) from cause

"""The options of a sidecar.

The command line fills it in, `sidecar_process` follows it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SidecarOptions:
    """`zookeeper`: HOST:PORT of each server, with commas between; `socket`, `secret_file` and
    `ca_file` are paths, the last one of authorities for TLS; `port`, on `host`, is for metrics."""

    zookeeper: str
    namespace: str
    application: str
    socket: str
    secret_file: str | None = None
    ca_file: str | None = None
    session_seconds: float = 10.0
    host: str = "127.0.0.1"
    port: int | None = None

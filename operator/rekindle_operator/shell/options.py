"""What the operator is started with.

`main` fills it in from the command line and the environment; everything else gets values from it.
"""

import socket
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Options", "own_namespace"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Options:
    """`store` is HOST:PORT of each ZooKeeper server, with commas between; `namespace` is where the
    operator runs. A port of 0 is any that is free. A watch that says nothing for
    `watch_silence_seconds` is begun anew."""

    store: str
    namespace: str
    store_secret_file: Path | None = None
    identity: str = field(default_factory=socket.gethostname)
    lease_name: str = "rekindle-operator"
    port: int = 8080
    webhook: bool = True
    webhook_port: int = 9443
    webhook_service: str = "rekindle-webhook"
    webhook_configuration: str = "rekindle"
    certificates_folder: Path | None = None
    sidecar_image: str = ""
    kubeconfig: Path | None = None
    watch_silence_seconds: float = 90.0
    log: Path | None = None


def own_namespace() -> str:
    """The namespace of the pod that this runs in; `rekindle` outside of a cluster."""
    try:
        return SERVICE_ACCOUNT.read_text().strip()
    except OSError:
        return "rekindle"

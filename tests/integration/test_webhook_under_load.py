"""Connections that hold bodies open at the webhook: it stays within its container's memory."""

import http.client
import json
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from injection_world import driver, review

from rekindle_operator.webhook import certificate_rotation, webhook_server

# The second figure is far more than the webhook keeps: what it has refused has to be given back.
CONNECTIONS = (500, 1_500)
VALUES = Path(__file__).parents[2] / "charts" / "rekindle" / "values.yaml"
WAIT_SECONDS_MAX = 60.0
# so much of each body comes, and then nothing
BEGUN_BYTES = 256 << 10
# Nobody is there; the webhook waits for policies and answers all the same.
KUBECONFIG = {
    "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "nobody", "user": {}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "nobody"}}],
    "current-context": "none",
}


def limit_bytes() -> int:
    """The memory of the webhook's container in the chart."""
    written = yaml.safe_load(VALUES.read_text())["webhook"]["resources"]["limits"]["memory"]
    assert written.endswith("Mi")
    return int(written.removesuffix("Mi")) << 20


class Process:
    """The command `rekindle-webhook`."""

    def __init__(self, process: "subprocess.Popen[str]", authority: bytes) -> None:
        self.process = process
        self.context = ssl.create_default_context(cadata=authority.decode())
        self.port = self._port()

    def memory_bytes(self) -> int:
        """The most that it has ever had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) << 10

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=10.0, context=self.context
        )

    def answers(self, body: bytes) -> int:
        """The status of a review, asked for as the API server does: again where it is refused."""
        limit = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            connection = self.connect()
            with suppress(OSError, http.client.HTTPException):
                connection.request("POST", "/inject", body)
                status = connection.getresponse().status
                if status != 503:
                    return status
            connection.close()
            assert time.monotonic() < limit, "nobody is answered any more"

    def _port(self) -> int:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = json.loads(line)
            if found["kind"] == "webhook-serves":
                return int(found["port"])
        pytest.fail("it does not serve")


@contextmanager
def started(folder: Path) -> Iterator[Process]:
    issued = certificate_rotation.issue(("127.0.0.1",), datetime.now(UTC))
    (folder / "tls.crt").write_bytes(issued.pair.certificate)
    (folder / "tls.key").write_bytes(issued.pair.key)
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(KUBECONFIG))
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "rekindle_operator.webhook", "--store", "zk:2281"),
            *("--port", "0", "--health-port", "0", "--kubeconfig", str(kubeconfig)),
            *("--certificates-folder", str(folder)),
        ],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Process(process, issued.authority)
        finally:
            process.kill()


@pytest.fixture
def webhook(tmp_path: Path) -> Iterator[Process]:
    with started(tmp_path) as found:
        yield found


def hold(webhook: Process, stack: ExitStack) -> None:
    """Begin a body of the largest size, and send no more of it."""
    connection = webhook.connect()
    stack.callback(connection.close)
    with suppress(OSError):  # there are too many, and the oldest ones end
        connection.putrequest("POST", "/inject")
        connection.putheader("Content-Length", str(webhook_server.REVIEW_BYTES_MAX))
        connection.endheaders(b" " * BEGUN_BYTES)


@pytest.mark.parametrize("connections", CONNECTIONS)
def test_connections_that_hold_bodies_open_take_bounded_memory_and_hold_up_nobody(
    webhook: Process, connections: int
) -> None:
    with ExitStack() as stack:
        for _ in range(connections):
            hold(webhook, stack)
        assert webhook.answers(review(driver())) == 200
    used, limit = webhook.memory_bytes(), limit_bytes()
    assert used <= limit, f"{used >> 20} MiB of {limit >> 20}"

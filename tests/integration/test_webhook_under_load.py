"""Who may reach the webhook cannot hurt the operator: connections that hold bodies open."""

import http.client
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from injection_world import driver, review

from rekindle_operator.webhook import webhook_server

CONNECTIONS = 500
# Beside the memory of its modules: buffers of the 200 connections that are kept, and the bodies
# that are read. 62 MiB are usual; the operator's container may have 768.
MORE_BYTES_MAX = 128 << 20
WAIT_SECONDS_MAX = 60.0
# so much of each body comes, and then nothing
BEGUN_BYTES = 256 << 10


class Process:
    """The webhook's process, as `webhook_process` says."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        hello = self._read()
        self.port = int(hello["port"])
        self.context = ssl.create_default_context(cadata=hello["authority"])

    def figures(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._read()

    def goes_on(self, turns: int) -> dict[str, Any]:
        """The figures once the loop that decides has turned since it had turned so often."""
        limit = time.monotonic() + WAIT_SECONDS_MAX
        while (figures := self.figures())["turns"] <= turns:
            assert time.monotonic() < limit, "the loop that decides stands still"
        return figures

    def connect(self, seconds: float = 10.0) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=seconds, context=self.context
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

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found


@contextmanager
def started() -> Iterator[Process]:
    builders = Path(__file__).parents[1] / "unit" / "builders"
    path = os.pathsep.join((str(builders), os.environ.get("PYTHONPATH", "")))
    script = Path(__file__).with_name("webhook_process.py")
    with subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Process(process)
        finally:
            process.kill()


@pytest.fixture
def webhook() -> Iterator[Process]:
    with started() as found:
        yield found


def hold(webhook: Process, stack: ExitStack) -> None:
    """Begin a body of the largest size, and send no more of it."""
    connection = webhook.connect()
    stack.callback(connection.close)
    with suppress(OSError):  # there are too many, and the oldest ones end
        connection.putrequest("POST", "/inject")
        connection.putheader("Content-Length", str(webhook_server.REVIEW_BYTES_MAX))
        connection.endheaders(b" " * BEGUN_BYTES)


def test_connections_that_hold_bodies_open_take_bounded_memory_and_hold_up_nobody(
    webhook: Process,
) -> None:
    before = webhook.figures()
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            hold(webhook, stack)
        turns = webhook.goes_on(before["turns"])["turns"]
        assert webhook.answers(review(driver())) == 200
        figures = webhook.goes_on(turns)
    more = figures["memory"] - before["memory"]
    assert more <= MORE_BYTES_MAX, f"{more >> 20} MiB more than {before['memory'] >> 20} MiB"

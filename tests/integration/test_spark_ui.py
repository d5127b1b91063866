"""What the operator reads of streaming queries from the UI of a real Spark driver."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import pytest

from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_local import process_sets
from rekindle_local.port_reservation import hold_port
from rekindle_operator.applications.progress_reader import READS_MAX, ProgressReader
from rekindle_operator.applications.stream_progress import LOSS_MARGIN_SECONDS, ProgressReading
from rekindle_operator.cluster.pods import PodSeen
from rekindle_operator.cluster.work_queue import WorkQueue

PROGRAM = Path(__file__).with_name("streaming_backlog.py")
PLACE = Place("shop", "queries")
LIMIT_SECONDS = 600.0
SECRET = "c2VjcmV0LW9mLXRoZS10ZXN0LXdpdGgtMzItYnl0ZXM="
SIGNED = (
    "spark.ui.filters=org.apache.spark.ui.JWSFilter",
    f"spark.org.apache.spark.ui.JWSFilter.param.secretKey={SECRET}",
)


@dataclass
class Program:
    """The program, running, and where its UI is."""

    process: subprocess.Popen[str]
    address: str = ""
    port: int = 0

    def line(self) -> str:
        """The next one that it prints."""
        stream: IO[str] | None = self.process.stdout
        assert stream is not None
        found = stream.readline()
        assert found, "the program has ended"
        return found.strip()

    def go_on(self) -> None:
        stream: IO[str] | None = self.process.stdin
        assert stream is not None
        stream.write("\n")
        stream.flush()


@contextmanager
def running(folder: Path, *settings: str) -> Iterator[Program]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYSPARK_PYTHON": sys.executable,
    }
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), *settings],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        program = Program(process)
        try:
            word, _, where = program.line().partition(" ")
            assert word == "steady"
            program.port = urlsplit(where).port or 0
            yield program
        finally:
            process.kill()
            process.communicate()


@dataclass
class Reader:
    """The operator's, with what it has read."""

    log: StringIO = field(default_factory=StringIO)

    def __post_init__(self) -> None:
        self.queue = WorkQueue(Log(self.log), READS_MAX)
        self.reader = ProgressReader(self.queue, Log(self.log), lambda take: take())
        self.queue.start()

    def follow(self, port: int) -> None:
        """As if nodes had been lost now, and pods were back at once: batches up to now are the
        reference."""
        pod = PodSeen(
            namespace="shop",
            name="driver",
            uid="u",
            role="driver",
            ip="127.0.0.1",
            ui_port=port,
        )
        now = time.time()
        self.reader.follow(PLACE, pod, now + LOSS_MARGIN_SECONDS, now)

    def newest(self) -> ProgressReading:
        return self.reader._newest(PLACE)

    def await_that(self, condition: Callable[[dict[str, bool]], bool], what: str) -> None:
        """Until it holds for what is known of queries (name -> caught up)."""
        assert process_sets.await_condition(
            lambda: condition({it.name: it.is_caught_up for it in self.newest().queries}),
            limit_seconds=LIMIT_SECONDS,
            interval_seconds=0.2,
        ), f"{what}: {self.newest()}\n{self.log.getvalue()}"


@pytest.fixture
def reader() -> Iterator[Reader]:
    made = Reader()
    yield made
    made.queue.stop()


def test_a_query_with_a_backlog_catches_up_beside_one_that_is_steady(
    tmp_path: Path, reader: Reader
) -> None:
    with running(tmp_path) as program:
        reader.follow(program.port)
        reader.await_that(lambda found: found.get("steady", False), "it is as before")
        program.go_on()
        assert program.line() == "behind"
        reader.await_that(lambda found: found.get("behind") is False, "it has a backlog")
        reader.await_that(lambda found: found == {"steady": True, "behind": True}, "it ends")
        program.go_on()
    said = reader.log.getvalue().splitlines()
    assert not [line for line in said if "does not answer within" not in line], "it reads no body"


def test_a_ui_that_wants_a_token_is_not_asked_again(tmp_path: Path, reader: Reader) -> None:
    with running(tmp_path, *SIGNED) as program:
        reader.follow(program.port)
        assert process_sets.await_condition(
            lambda: reader.newest().is_final, limit_seconds=LIMIT_SECONDS, interval_seconds=0.2
        ), reader.newest()
        assert "wants to know who asks (403)" in reader.newest().unread


def test_a_ui_with_tls_is_not_followed_elsewhere(tmp_path: Path, reader: Reader) -> None:
    store = tmp_path / "keys"
    line = f"keytool -genkeypair -alias ui -keyalg EC -dname CN=ui -keystore {store}"
    words = [*line.split(), "-storepass", "of the test", "-validity", "2"]
    subprocess.run(words, check=True, capture_output=True, timeout=LIMIT_SECONDS)
    with hold_port("127.0.0.1") as held:
        port = held.getsockname()[1]
        run_with_tls(tmp_path, reader, port, store)


def run_with_tls(folder: Path, reader: Reader, port: int, store: Path) -> None:
    settings = {
        "spark.ui.port": port,  # answers without TLS, and names the other one
        "spark.ssl.ui.enabled": "true",
        "spark.ssl.ui.keyStore": store,
        "spark.ssl.ui.keyStorePassword": "of the test",
        "spark.ssl.ui.port": 0,
    }
    with running(folder, *(f"{name}={value}" for name, value in settings.items())):
        reader.follow(port)
        assert process_sets.await_condition(
            lambda: bool(reader.newest().unread) and reader.newest().is_final,
            limit_seconds=LIMIT_SECONDS,
            interval_seconds=0.2,
        ), reader.newest()
        assert "sends its readers elsewhere" in reader.newest().unread

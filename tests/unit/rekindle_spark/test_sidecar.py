"""The driver's end of the sidecar: what is still to be said is said before it goes."""

import http.server
import json
import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rekindle.protocol import Acknowledgement, CheckpointReport, Handshake
from rekindle_spark import sidecar
from rekindle_spark.sidecar import Sidecar


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Takes reports when it is let; `taken` are their sequence numbers, `answered` those of
    directives that were answered. It hangs up on the first `hang_ups` answers. With a `refusal`
    it takes nothing, and says that."""

    daemon_threads = True
    refusal: dict[str, Any] | None = None
    more: ClassVar[dict[str, Any]] = {}

    def __init__(self, path: Path) -> None:
        self.taken: list[int] = []
        self.answered: list[int] = []
        self.hang_ups = 0
        self.open = threading.Event()
        super().__init__(str(path), Handler)

    def get_request(self) -> tuple[Any, Any]:
        request, _ = super().get_request()
        return request, ("sidecar", 0)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as a sidecar does."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/reports":
            self.server.open.wait(10)
            self.server.taken.append(body["sequence"])
        if self.path == "/v1/acks":
            if self.server.hang_ups:
                self.server.hang_ups -= 1
                self.close_connection = True
                return
            self.server.answered.append(body["sequence"])
        self._answer({})

    def do_GET(self) -> None:
        self._answer({"directives": [], **self.server.more})

    def _answer(self, more: dict[str, Any]) -> None:
        refusal = self.server.refusal
        answer = {"store_reachable": True, **more} if refusal is None else refusal
        content = json.dumps(answer).encode()
        self.send_response(200 if refusal is None else 409)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "socket"


def client(path: Path) -> Sidecar:
    hello = Handshake(oldest=1, newest=1, namespace="a", application="b", generation=1)
    return Sidecar(path, hello)


def report(sequence: int) -> CheckpointReport:
    return CheckpointReport(generation=1, sequence=sequence, epoch=1, at=0.0)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"fenced": True, "generation": 7, "where": "report", "what": "x", "remedy": "y"},
            "application a/b: has had a driver of generation 7, this one is of generation 1; let "
            "the newer one go on; where none runs, name the checkpoint store that the application "
            "had, or start over with `rekindle reset a/b`",
        ),
        (
            {"fenced": True, "store": "other", "where": "here", "what": "that", "remedy": "do it"},
            "here: that; do it",
        ),
        ({}, "application a/b: has had a driver of generation ?, this one is of generation 1; let"),
    ],
)
def test_a_driver_that_is_refused_knows_why_in_a_sentence(
    body: dict[str, Any], message: str, path: Path
) -> None:
    with Server(path) as server:
        server.refusal = body
        threading.Thread(target=server.serve_forever, daemon=True).start()
        speaker = client(path)
        speaker.start()
        end = time.monotonic() + 10
        while speaker.fenced is None:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert str(speaker.fenced).startswith(message)
        speaker.stop()
        server.shutdown()


def test_the_last_report_is_taken_before_the_client_stops(path: Path) -> None:
    with Server(path) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        speaker = client(path)
        speaker.start()
        speaker.report(report(1))
        stopping = threading.Thread(target=speaker.stop)
        stopping.start()
        stopping.join(0.2)
        assert stopping.is_alive(), "it has gone before its report was taken"
        server.open.set()
        stopping.join(10)
        assert not stopping.is_alive()
        assert 1 in server.taken
        server.shutdown()


def test_a_client_without_a_sidecar_stops_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar, "ANSWER_SECONDS_MAX", 0.2)
    speaker = client(path)
    speaker.start()
    speaker.report(report(1))
    began = time.monotonic()
    speaker.stop()
    assert time.monotonic() - began >= 0.2


def test_answers_that_a_sidecar_did_not_take_are_given_to_the_next_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar, "RETRY_SECONDS", 0.01)
    with Server(path) as server:
        server.hang_ups = 1
        threading.Thread(target=server.serve_forever, daemon=True).start()
        speaker = client(path)
        for sequence in (3, 4):
            speaker.acknowledge(
                Acknowledgement(
                    sequence=sequence,
                    generation=1,
                    outcome="refused",
                    epoch=0,
                    plan_epoch=0,
                    text="",
                )
            )
        speaker.start()
        end = time.monotonic() + 10
        while server.answered != [3, 4] and time.monotonic() < end:
            time.sleep(0.01)
        speaker.stop()
        server.shutdown()
    assert server.answered == [3, 4]


@pytest.mark.parametrize(
    ("more", "led"), [({}, True), ({"led": True}, True), ({"led": False}, False)], ids=str
)
def test_whether_a_coordinator_leads_is_what_the_sidecar_says(
    path: Path, more: dict[str, Any], led: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "more", more)
    with Server(path) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asked = client(path)
        before = asked.contact_at
        asked.start()
        end = time.monotonic() + 5.0
        while asked.contact_at == before and time.monotonic() < end:
            time.sleep(0.01)
        assert asked.led is led
        asked.stop()
        server.shutdown()

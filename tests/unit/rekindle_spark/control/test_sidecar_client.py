"""The driver's end of the sidecar: what is still to be said is said before it goes."""

import http.server
import json
import socketserver
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rekindle.model.errors import FencedError, InputError, RekindleError
from rekindle.protocol import Acknowledgement, CheckpointReport, Handshake, StatisticsReport
from rekindle.protocol.store_paths import Place
from rekindle_spark.control import sidecar_client
from rekindle_spark.control.sidecar_client import UNREADABLE_KNOWN_MAX, SidecarClient

WAIT_SECONDS_MAX = 60.0


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Takes reports when it is let; `taken` are their sequence numbers, `answered` those of
    directives that were answered. It hangs up on the first `hang_ups` answers. With a `refusal`
    it takes nothing, and says that. It cannot read messages of the numbers `malformed`."""

    daemon_threads = True
    refusal: dict[str, Any] | None = None
    more: ClassVar[dict[str, Any]] = {}

    def __init__(self, path: Path) -> None:
        self.taken: list[int] = []
        self.answered: list[int] = []
        self.malformed: dict[int, int] = {}  # with which status
        self.refused: list[int] = []
        self.admission = (200, dict[str, Any]())
        self.asked: list[str] = []
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
        if body.get("sequence") in self.server.malformed:
            self.server.refused.append(body["sequence"])
            self._answer(
                {"what": "it is not as it should be"}, self.server.malformed[body["sequence"]]
            )
            return
        if self.path == "/v1/reports":
            self.server.open.wait(WAIT_SECONDS_MAX)
            self.server.taken.append(body["sequence"])
        if self.path == "/v1/acks":
            if self.server.hang_ups:
                self.server.hang_ups -= 1
                self.close_connection = True
                return
            self.server.answered.append(body["sequence"])
        self._answer({})

    def do_GET(self) -> None:
        if self.path.startswith("/v1/admission"):
            self.server.asked.append(self.path)
            status, body = self.server.admission
            self._answer(body, status)
            return
        self._answer({"directives": [], **self.server.more})

    def _answer(self, more: dict[str, Any], status: int = 200) -> None:
        refusal = self.server.refusal
        answer = {"store_reachable": True, **more} if refusal is None else refusal
        content = json.dumps(answer).encode()
        self.send_response(status if refusal is None else 409)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "socket"


def client(path: Path) -> SidecarClient:
    hello = Handshake(oldest=1, newest=1, namespace="a", application="b", generation=1)
    return SidecarClient(path, hello)


def acknowledgement(sequence: int) -> Acknowledgement:
    return Acknowledgement(
        sequence=sequence, generation=1, outcome="refused", epoch=0, plan_epoch=0, text=""
    )


def report(sequence: int) -> CheckpointReport:
    return CheckpointReport(generation=1, sequence=sequence, epoch=1, at=0.0)


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (
            {"fenced": True, "generation": 7, "where": "report", "what": "x", "remedy": "y"},
            FencedError,
            "application a/b: has had a driver of generation 7, this one is of generation 1; let "
            "the newer one go on; where none runs, name the checkpoint store that the application "
            "had, or start over with `rekindle reset a/b`",
        ),
        (
            {"fenced": True, "store": "other", "where": "here", "what": "that", "remedy": "do it"},
            InputError,
            "here: that; do it",
        ),
        (
            {},
            FencedError,
            "application a/b: has had a driver of generation ?, this one is of generation 1; let",
        ),
    ],
)
def test_a_driver_that_is_refused_knows_why_in_a_sentence(
    body: dict[str, Any], kind: type[RekindleError], message: str, path: Path
) -> None:
    with Server(path) as server:
        server.refusal = body
        threading.Thread(target=server.serve_forever, daemon=True).start()
        speaker = client(path)
        speaker.start()
        end = time.monotonic() + WAIT_SECONDS_MAX
        while speaker.fenced is None:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert type(speaker.fenced) is kind
        assert str(speaker.fenced).startswith(message)
        speaker.stop()
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, {"store_reachable": False}, None),
        (404, {"where": "GET /v1/admission", "what": "not found", "remedy": "see"}, None),
        (
            400,
            {"where": "driver", "what": "is of a/b", "remedy": "give"},
            "driver: is of a/b; give",
        ),
        (
            409,
            {"store": "other", "where": "here", "what": "that", "remedy": "do"},
            "here: that; do",
        ),
        (
            409,
            {"fenced": True, "generation": 7, "where": "driver", "what": "x", "remedy": "y"},
            "application a/b: has had a driver of generation 7, this one is of generation 3; let",
        ),
    ],
    ids=["taken", "earlier sidecar", "other application", "other store", "older copy"],
)
def test_a_driver_that_would_be_refused_knows_so_before_it_begins(
    status: int, body: dict[str, Any], message: str | None, path: Path
) -> None:
    with Server(path) as server:
        server.admission = (status, body)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = sidecar_client.refusal(path, Place("a", "b"), 3, "one")
        server.shutdown()
    assert server.asked == ["/v1/admission?namespace=a&application=b&generation=3&store=one"]
    assert (found is None) == (message is None)
    assert str(found or "").startswith(message or "")


def test_where_no_sidecar_is_yet_nothing_is_refused(path: Path) -> None:
    assert sidecar_client.refusal(path, Place("a", "b"), 3, "one") is None


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
        stopping.join(WAIT_SECONDS_MAX)
        assert not stopping.is_alive()
        assert 1 in server.taken
        server.shutdown()


def test_of_directives_that_cannot_be_read_the_newest_are_known(path: Path) -> None:
    contact = client(path)
    for sequence in range(UNREADABLE_KNOWN_MAX + 1):
        contact._read({"sequence": sequence, "order": {"kind": "of a later version"}})
    assert contact.unreadable == frozenset(range(1, UNREADABLE_KNOWN_MAX + 1))


def test_a_client_without_a_sidecar_stops_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar_client, "ANSWER_SECONDS_MAX", 0.2)
    speaker = client(path)
    speaker.start()
    speaker.report(report(1))
    began = time.monotonic()
    speaker.stop()
    assert time.monotonic() - began >= 0.2


def test_answers_that_a_sidecar_did_not_take_are_given_to_the_next_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar_client, "RETRY_SECONDS", 0.01)
    with Server(path) as server:
        server.hang_ups = 1
        threading.Thread(target=server.serve_forever, daemon=True).start()
        speaker = client(path)
        for sequence in (3, 4):
            speaker.acknowledge(acknowledgement(sequence))
        speaker.start()
        end = time.monotonic() + WAIT_SECONDS_MAX
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
        end = time.monotonic() + WAIT_SECONDS_MAX
        while asked.contact_at == before and time.monotonic() < end:
            time.sleep(0.01)
        assert asked.led is led
        asked.stop()
        server.shutdown()


def await_that(is_so: Callable[[], bool]) -> None:
    """Wait for it, a minute at most."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("status", [400, 413, 426])
def test_a_report_that_is_refused_holds_up_no_other(status: int, path: Path) -> None:
    with Server(path) as server:
        server.malformed, server.open = {1: status, 7: status}, threading.Event()
        server.open.set()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        speaker = client(path)
        speaker.report(StatisticsReport(generation=1, sequence=1, costs={}))
        speaker.report(report(2))
        speaker.acknowledge(acknowledgement(7))
        speaker.acknowledge(acknowledgement(8))
        speaker.start()
        await_that(lambda: server.answered == [8])
        assert set(server.taken) == {2}
        assert sorted(server.refused) == [1, 7], "each is sent once"
        said = speaker.refusals["StatisticsReport"]
        assert said.startswith(f"{status}: ")
        assert "it is not as it should be" in said
        assert speaker.fenced is None
        speaker.report(StatisticsReport(generation=1, sequence=3, costs={}))
        await_that(lambda: 3 in server.taken)
        await_that(lambda: "StatisticsReport" not in speaker.refusals)
        speaker.stop()
        server.shutdown()


def test_a_report_that_comes_before_a_greeting_is_sent_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar_client, "RETRY_SECONDS", 0.01)
    with Server(path) as server:
        server.malformed = {2: 428}
        server.open.set()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        speaker = client(path)
        speaker.report(report(2))
        speaker.start()
        await_that(lambda: len(server.refused) > 1)
        server.malformed = {}
        await_that(lambda: 2 in server.taken)
        assert speaker.refusals == {}
        speaker.stop()
        server.shutdown()

"""Reading of drivers' Spark UIs: of a real one's bodies, and of servers that mean no good."""

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from aiohttp import web
from recorded_ui import RecordedUi, recorded, serving

from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.applications import progress_reader
from rekindle_operator.applications.progress_reader import ProgressReader
from rekindle_operator.applications.stream_progress import LOSS_MARGIN_SECONDS, ProgressReading
from rekindle_operator.cluster.pods import PodSeen

PLACE = Place("shop", "orders")


class Reads:
    """A reader whose work items are done when a test wants it."""

    def __init__(self) -> None:
        self.left: dict[str, Callable[[], float | None]] = {}
        self.log = StringIO()
        queue: Any = self
        self.reader = ProgressReader(queue, Log(self.log), lambda take: take())

    def leave(self, key: str, errand: Callable[[], float | None]) -> None:
        self.left[key] = errand

    def clear(self) -> None:
        self.left.clear()

    def follow(self, port: int, picture: str = "behind", **more: Any) -> None:
        """As if pods had been back since the moment that was recorded."""
        said, now = recorded()[picture], time.time()
        self.reader.follow(
            PLACE,
            driver(port, **more),
            now - said["now"] + said["lost_at"] + LOSS_MARGIN_SECONDS,
            now - said["now"] + said["back_at"],
        )

    def read(self) -> ProgressReading:
        """One reading; the pause after it is kept."""
        self.pause = self.left[f"progress {PLACE}"]()
        return self.reader._newest(PLACE)


def driver(port: int, *, ip: str = "127.0.0.1", uid: str = "u") -> PodSeen:
    return PodSeen(namespace="shop", name="d", uid=uid, role="driver", ip=ip, ui_port=port)


@pytest.fixture
def reads() -> Reads:
    return Reads()


@pytest.fixture
def ui() -> Iterator[RecordedUi]:
    with serving(RecordedUi()) as served:
        yield served


def test_one_query_is_behind_beside_one_that_is_as_before(reads: Reads, ui: RecordedUi) -> None:
    reads.follow(ui.port)
    found = {query.name: query for query in reads.read().queries}
    assert found["steady"].is_caught_up, found
    assert not found["behind"].is_caught_up, found
    assert reads.pause == progress_reader.PAUSE_SECONDS


def test_all_have_caught_up_once_the_backlog_is_done(reads: Reads, ui: RecordedUi) -> None:
    ui.picture = "caught_up"
    reads.follow(ui.port, "caught_up")
    found = reads.read().queries
    assert {query.name for query in found if query.is_caught_up} == {"steady", "behind"}, found


@pytest.mark.parametrize("ahead", [-3_600.0, 3_600.0])
def test_the_driver_s_clock_may_be_another(reads: Reads, ui: RecordedUi, ahead: float) -> None:
    ui.ahead = ahead
    reads.follow(ui.port)
    found = {query.name: query.is_caught_up for query in reads.read().queries}
    assert found == {"steady": True, "behind": False}


def test_stages_are_read_once_and_no_credential_is_sent(reads: Reads, ui: RecordedUi) -> None:
    reads.follow(ui.port)
    reads.read()
    first = [path for path, _ in ui.asked]
    assert any("/stages/" in path for path in first)
    ui.asked.clear()
    reads.read()
    again = [path for path, _ in ui.asked if "/stages/" in path]
    assert not set(again) & set(first), "it reads them again"
    sent = {name.lower() for _, headers in ui.asked for name in headers}
    assert sent.isdisjoint({"authorization", "cookie"})
    assert all("details=false" in path for path in first if "/stages/" in path)


def response(status: int, body: bytes = b"", **headers: str) -> Callable[..., Any]:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=status, body=body, headers=headers)

    return answer


ID = "0b6c1c2e-6f0e-4a65-9d3a-0d1f6f1d7a11"
APPLICATION = b'[{"id": "spark-1"}]'
DEEP = b"[" * 100_000
REFUSALS = {
    "no json": (response(200, b"<html>Spark is starting up</html>"), "something else", False),
    "another json": (response(200, b'{"a": 1}'), "something else", False),
    "deep json": (response(200, DEEP), "something else", False),
    "no application": (response(200, b"[]"), "names no application", False),
    "a path": (response(200, b'[{"id": "../../x?"}]'), "names no application", False),
    "an error": (response(500), "answers with 500", False),
    "nothing there": (response(404), "answers with 404", False),
    "a login": (response(401), "wants to know who asks (401)", True),
    "no right": (response(403), "wants to know who asks (403)", True),
    "elsewhere": (response(302, Location="http://127.0.0.1:1/"), "elsewhere", True),
    "a large body": (
        response(200, b" " * (progress_reader.BODY_BYTES_MAX + 1)),
        "over 4 MiB",
        False,
    ),
    "a compressed body": (
        response(200, gzip.compress(b" " * 10**8), **{"Content-Encoding": "gzip"}),
        "something else",
        False,
    ),
    "rubbish for times": (
        response(
            200,
            b'[{"id": "s", "jobId": 1, "submissionTime": "now", "description": "'
            + f"id = {ID} runId = {ID} batch = 1".encode()
            + b'"}]',
        ),
        "no time of Spark",
        False,
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_a_ui_says_instead(reads: Reads, ui: RecordedUi, name: str) -> None:
    ui.answer, said, is_final = REFUSALS[name]
    reads.follow(ui.port)
    found = reads.read()
    assert said in found.unread
    assert found.is_final == is_final
    assert found.queries == ()
    assert (reads.pause is None) == is_final
    (line,) = reads.log.getvalue().splitlines()
    assert json.loads(line)["kind"] == "progress-unread"
    if not is_final:
        reads.read()
        assert reads.pause == progress_reader.PAUSE_SECONDS_MAX
        assert len(reads.log.getvalue().splitlines()) == 1, "it is said again and again"


def test_an_application_without_streams_has_no_queries(reads: Reads, ui: RecordedUi) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        jobs = b'[{"jobId": 1, "status": "SUCCEEDED", "name": "count", "stageIds": [0]}]'
        return web.Response(body=jobs if request.path.endswith("/jobs") else APPLICATION)

    ui.answer = answer
    reads.follow(ui.port)
    assert reads.read() == ProgressReading()


def test_a_server_that_sends_drop_by_drop_is_left(
    reads: Reads, ui: RecordedUi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        drops = web.StreamResponse()
        await drops.prepare(request)
        while True:
            await drops.write(b" ")
            await asyncio.sleep(0.01)

    monkeypatch.setattr(progress_reader, "READ_SECONDS_MAX", 0.3)
    ui.answer = answer
    reads.follow(ui.port)
    assert "does not answer within" in reads.read().unread


def test_nobody_listens(reads: Reads) -> None:
    with serving(RecordedUi()) as gone:
        port = gone.port
    reads.follow(port)
    found = reads.read()
    assert "cannot be reached" in found.unread
    assert not found.is_final
    assert found.unread_seconds < 60.0


def test_a_port_of_the_system_is_not_called(reads: Reads) -> None:
    reads.follow(80)
    assert not reads.left
    assert reads.reader._newest(PLACE).is_final


def test_a_pod_is_called_once_it_has_an_address(reads: Reads, ui: RecordedUi) -> None:
    reads.follow(ui.port, ip="")
    assert not reads.left
    found = reads.reader._newest(PLACE)
    assert found.unread
    assert not found.is_final, "it may get one"
    reads.reader._followed[PLACE].read_at -= 100.0
    assert reads.reader._newest(PLACE).unread_seconds >= 100.0, "it is awaited without end"
    reads.follow(ui.port)
    assert reads.read().queries


def test_another_driver_is_read_from_its_start(reads: Reads, ui: RecordedUi) -> None:
    reads.follow(ui.port)
    before = reads.left[f"progress {PLACE}"]
    assert reads.read().queries
    reads.follow(ui.port, uid="another")
    assert reads.reader._newest(PLACE).unread == "its driver has not been read yet"
    assert before() is None, "the earlier one is read on"
    assert reads.read().queries


def test_what_is_not_followed_any_more_is_not_read(reads: Reads, ui: RecordedUi) -> None:
    reads.follow(ui.port)
    reads.reader.keep_only([])
    assert reads.left[f"progress {PLACE}"]() is None
    assert not ui.asked
    reads.follow(ui.port)
    reads.reader.clear()
    assert not reads.left

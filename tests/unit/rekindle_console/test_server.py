"""The console over HTTP: pages, their news, and what it refuses."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest
from console_world import Values, healthy, many_queries, record_of, short
from standing_world import short_of_capacity

from rekindle.model.errors import InputError
from rekindle_console import console_server, question_process
from rekindle_console.application_summaries import view_of
from rekindle_console.console_questions import ConsoleAnswer, ConsoleQuestion, answer, portable
from rekindle_console.console_server import Console, Throttle, is_own_host, serve
from rekindle_console.page_addresses import Address, PageKind, link, parse
from rekindle_console.question_process import QuestionProcess

Ask = Callable[..., http.client.HTTPResponse]


@pytest.fixture
def values() -> Values:
    return Values([healthy(), short()])


@pytest.fixture
def console(values: Values) -> Iterator[Console]:
    started = serve(values, 0)
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def ask(console: Console) -> Iterator[Ask]:
    made: list[http.client.HTTPConnection] = []

    def asked(path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
        made.append(http.client.HTTPConnection("127.0.0.1", console.port, timeout=30))
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        made[-1].request(method, path, headers=named)
        return made[-1].getresponse()

    yield asked
    for connection in made:
        connection.close()


class Stream:
    """The events of a page."""

    def __init__(self, answered: http.client.HTTPResponse) -> None:
        assert answered.status == 200
        assert answered.headers["Content-Type"].startswith("text/event-stream")
        self.answered = answered

    def event(self) -> dict[str, str]:
        """The next one: its kind, identity and data."""
        found: dict[str, str] = {}
        while line := self.answered.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            found[name] = f"{found[name]}\n{value}" if name in found else value
        return found

    def of_kind(self, kind: str) -> dict[str, str]:
        while (found := self.event()).get("event") != kind:
            pass
        return found


def test_a_page_comes_with_headers_that_let_nothing_else_in(ask: Ask) -> None:
    answered = ask("/")
    text = answered.read().decode()
    assert (answered.status, "team/flights" in text) == (200, True)
    assert "default-src 'none'" in answered.headers["Content-Security-Policy"]
    assert answered.headers["Cache-Control"] == "no-store"
    assert "http://" not in text
    assert "https://" not in text
    assert '<noscript><meta http-equiv="refresh"' in text
    assert answered.headers["X-Content-Type-Options"] == "nosniff"


def test_style_sheet_and_script_are_served_beside_it(ask: Ask) -> None:
    style, script = ask("/console.css"), ask("/console.js")
    assert style.headers["Content-Type"].startswith("text/css")
    assert b"--paper" in style.read()
    assert b"EventSource" in script.read()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/applications/team/flights", 200),
        ("/applications/team/nobody", 404),
        ("/applications/team/flights/query?name=ranking", 200),
        ("/applications/te%2Fam/flights", 404),
        ("/applications/../../etc/passwd", 404),
        ("/nothing", 404),
        ("/events?path=/nothing", 404),
    ],
)
def test_what_there_is_is_answered_and_nothing_else(ask: Ask, path: str, status: int) -> None:
    assert ask(path).status == status


def test_every_method_that_writes_is_refused(ask: Ask) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert ask("/", method).status == 405
    assert ask("/", "HEAD").status == 200


def test_on_loopback_only_names_of_loopback_are_answered(ask: Ask) -> None:
    assert ask("/", Host="rebound.example.com").status == 421
    assert ask("/events?path=/", Host="rebound.example.com:8080").status == 421
    assert ask("/", Host="localhost:8080").status == 200


@pytest.mark.parametrize(
    ("header", "host", "expected"),
    [
        ("127.0.0.1:80", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("[::1]:8080", "::1", True),
        ("[::1]", "127.0.0.1", True),
        ("console.localhost:80", "127.0.0.1", True),
        ("localhost.example.com", "127.0.0.1", False),
        ("10.0.0.1", "127.0.0.1", False),
        ("", "127.0.0.1", False),
        ("anything", "", True),
        ("anything:80", "0.0.0.0", True),
    ],
)
def test_a_host_is_our_own_where_it_is_loopback_or_we_listen_elsewhere(
    header: str, host: str, expected: bool
) -> None:
    assert is_own_host(header, host) is expected


def test_news_of_a_page_come_once_and_again_when_it_has_changed(values: Values, ask: Ask) -> None:
    stream = Stream(ask("/events?path=/"))
    first = stream.of_kind("page")
    assert "team/flights" in first["data"]
    values.records.append(healthy("team/another"))
    second = stream.of_kind("page")
    assert "team/another" in second["data"]
    assert second["id"] != first["id"]


def test_who_connects_again_gets_the_page_only_if_it_is_another_one(ask: Ask) -> None:
    first = Stream(ask("/events?path=/applications/team/flights")).of_kind("page")
    again = Stream(ask("/events?path=/applications/team/flights", Last_Event_ID=first["id"]))
    assert [again.event().get("event") for _ in range(2)] == [None, "time"]
    stale = Stream(ask("/events?path=/applications/team/flights", Last_Event_ID="other"))
    assert stale.of_kind("page")["id"] == first["id"]
    seen = Stream(ask(f"/events?path=/applications/team/flights&seen={first['id']}"))
    assert [seen.event().get("event") for _ in range(2)] == [None, "time"]


def test_a_page_is_made_once_for_all_who_look_at_it(
    values: Values, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_server, "PAGE_SECONDS", 600.0)
    for _ in range(8):
        assert ask("/").status == 200
    assert values.reads == 1
    monkeypatch.setattr(console_server, "PAGE_SECONDS", 0.0)
    assert ask("/").status == 200
    assert values.reads == 2


def test_streams_beyond_the_limit_are_told_to_come_back(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_server, "STREAMS_MAX", 2)
    streams = [Stream(ask("/events?path=/")) for _ in range(2)]
    refused = ask("/events?path=/")
    assert (refused.status, refused.headers["Retry-After"]) == (503, "10")
    assert ask("/").status == 200
    streams[0].answered.close()


def test_requests_beyond_the_limit_are_told_to_come_back(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_server, "REQUESTS_MAX", 0)
    assert ask("/").status == 503


def test_connections_beyond_the_limit_are_closed(
    console: Console, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_server, "CONNECTIONS_MAX", 3)
    address = ("127.0.0.1", console.port)
    silent = [socket.create_connection(address, timeout=10) for _ in range(3)]
    with pytest.raises((http.client.HTTPException, OSError)):
        ask("/")
    for connection in silent:
        connection.close()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            assert ask("/").status == 200
            return
        except (http.client.HTTPException, OSError):
            time.sleep(0.05)
    pytest.fail("nobody is answered any more")


def test_a_page_that_cannot_be_made_is_said_without_a_trace(values: Values, ask: Ask) -> None:
    values.trouble = ZeroDivisionError("ours")
    answered = ask("/")
    assert (answered.status, answered.read()) == (500, b"This page cannot be made.\n")
    values.trouble = None
    assert ask("/").status == 200


def test_a_port_that_is_taken_is_one_sentence(console: Console) -> None:
    with pytest.raises(InputError) as caught:
        serve(Values(), console.port)
    assert f"--console-port {console.port}: cannot be listened on at 127.0.0.1" in str(caught.value)


def test_a_console_that_is_closed_leaves_no_thread_behind(values: Values) -> None:
    before = threading.active_count()
    started = serve(values, 0)
    connection = http.client.HTTPConnection("127.0.0.1", started.port, timeout=30)
    connection.request("GET", "/events?path=/")
    Stream(connection.getresponse()).of_kind("page")
    began = time.monotonic()
    started.close()
    started.close()
    assert time.monotonic() - began < 8
    connection.close()
    assert threading.active_count() <= before


def test_the_thread_of_the_console_rests_four_times_as_long_as_it_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rests: list[float] = []
    now = [0.0]
    monkeypatch.setattr(time, "thread_time", lambda: now[0])
    monkeypatch.setattr(time, "sleep", rests.append)
    throttle = Throttle()
    throttle.begin()
    now[0] = 0.01
    throttle.rest()
    assert rests == []
    now[0] = 0.03
    throttle.rest()
    throttle.rest(0.0)
    assert rests == [pytest.approx(0.12), 0.0]


@pytest.mark.parametrize(
    "address",
    [
        Address(),
        Address(page=3, find="a b&c=d"),
        Address(PageKind.APPLICATION, "team/flights", state="live", find="<b>"),
        Address(PageKind.QUERY, "team/flights", query="a/b?c#d e%2F<>"),
        Address(PageKind.INCIDENT, "team/flights", incident=12),
        Address(PageKind.FORECAST, "team/flights"),
    ],
)
def test_the_address_of_a_page_leads_to_that_page(address: Address) -> None:
    path, _, rest = link(address).partition("?")
    assert parse(f"/{path}", dict(parse_qsl(rest))) == address


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("/applications", {}),
        ("/applications/a", {}),
        ("/applications/a/b/c", {}),
        ("/applications/a/b/query", {}),
        ("/applications/a/b/query", {"name": "x" * 301}),
        ("/applications/a/b/incident", {"number": "-1"}),
        ("/applications/a/b/incident", {"number": "9" * 40}),
        ("/applications/a%00/b", {}),
        ("/other", {}),
    ],
)
def test_an_address_that_means_nothing_is_no_page(path: str, parameters: dict[str, str]) -> None:
    assert parse(path, parameters) is None


def question() -> ConsoleQuestion:
    view = view_of(record_of(short_of_capacity(), "team/short"))
    assert view is not None
    return ConsoleQuestion("explanation", portable(view), 1_000_100.0, "busiest")


def await_answer(asker: QuestionProcess, make: Callable[[], ConsoleQuestion]) -> ConsoleAnswer:
    assert asker.ask("key", 1, make) is None
    asker.await_answer("key", 110.0)
    found = asker.ask("key", 1, make)
    assert found is not None
    return found


def test_a_question_is_answered_by_a_process_of_its_own_as_it_would_be_here() -> None:
    asker = QuestionProcess(60.0, 60.0)
    try:
        found = await_answer(asker, question)
        assert found == answer(question())
        assert found.explanation is not None
        assert found.explanation.sentences[0].startswith("busiest waits")
    finally:
        asker.close()


def test_a_process_that_does_not_answer_in_time_is_ended_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(question_process, "WALL_SECONDS_MAX", 0.0)
    asker = QuestionProcess(60.0, 60.0)
    try:
        assert await_answer(asker, question).trouble == question_process.FAILED
    finally:
        asker.close()


def test_a_question_that_cannot_be_asked_is_said_and_the_next_one_is_answered() -> None:
    def broken() -> ConsoleQuestion:
        raise ValueError("no question")

    asker = QuestionProcess(60.0, 60.0)
    try:
        assert await_answer(asker, broken).trouble == question_process.BROKEN
        asker.ask("next", 1, question)
        asker.await_answer("next", 110.0)
        found = asker.ask("next", 1, question)
        assert found is not None
        assert not found.trouble
    finally:
        asker.close()


def test_too_many_questions_are_refused_and_closing_ends_what_waits() -> None:
    asker, going = QuestionProcess(60.0, 60.0), threading.Event()

    def slow() -> Any:
        going.wait(30.0)
        return question()

    found = [
        asker.ask(f"key-{index}", 1, slow) for index in range(question_process.WAITING_MAX + 1)
    ]
    assert found[:-1] == [None] * question_process.WAITING_MAX
    assert found[-1] is not None
    assert found[-1].trouble == question_process.BUSY
    going.set()
    asker.close()


def test_a_question_about_a_thousand_queries_can_be_sent() -> None:
    view = view_of(many_queries(1_000))
    assert view is not None
    sent = msgspec.json.encode(ConsoleQuestion("forecast", portable(view), 1.0))
    assert msgspec.json.decode(sent, type=ConsoleQuestion).view == portable(view)
    assert json.loads(sent)["kind"] == "forecast"

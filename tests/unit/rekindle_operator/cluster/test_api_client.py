"""The API server as the shell uses it, when it has too much to do; a small server stands for it."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from kubernetes import client
from kubernetes.config.incluster_config import InClusterConfigLoader

from rekindle_operator.cluster.api_client import Api, ApiUnreachable, NotLeading

UNAUTHORIZED, TOO_MANY = 401, 429


class Busy(ThreadingHTTPServer):
    """Refuses as many requests as `refusals` says, with `pause` as the time to come back."""

    refusals = 0
    refusal = TOO_MANY
    pause = "0"
    body = b"{}"
    asked = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Busy

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked += 1
        refused = self.server.asked <= self.server.refusals
        self.send_response(self.server.refusal if refused else 200)
        if refused and self.server.pause:
            self.send_header("Retry-After", self.server.pause)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_GET = do_PUT = do_POST = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Nothing is to be said."""


@pytest.fixture
def server() -> Iterator[Busy]:
    with Busy() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def api(server: Busy, may_write: Callable[[], bool] = lambda: True) -> Api:
    configuration = client.Configuration()
    configuration.host = f"http://127.0.0.1:{server.server_address[1]}"
    configuration.retries = False
    configuration.proxy = None
    return Api(client.ApiClient(configuration), may_write)


def test_what_was_too_much_is_asked_again_when_it_was_said_when(server: Busy) -> None:
    server.refusals = 1
    assert api(server).get("/thing") == {}
    assert server.asked == 2


@pytest.mark.parametrize("pause", ["", "60", "Sun, 22 Nov 2026 00:00:00 GMT"])
def test_who_is_told_no_moment_that_is_near_does_not_wait(server: Busy, pause: str) -> None:
    server.refusals, server.pause = 9, pause
    with pytest.raises(ApiUnreachable, match="429"):
        api(server).get("/thing")
    assert server.asked == 1


def test_what_is_asked_again_is_not_written_by_who_leads_no_more(server: Busy) -> None:
    server.refusals = 1
    with pytest.raises(NotLeading):
        api(server, lambda: server.asked == 0).replace("/thing", {})
    assert server.asked == 1


def test_a_list_without_items_is_empty_though_it_says_null(server: Busy) -> None:
    server.body = b'{"metadata": {"resourceVersion": "7"}, "items": null}'
    assert api(server).all("/things") == []
    assert list(api(server).forms("/things", dict)) == []
    assert [version for _, version in api(server).pages("/things")] == ["7"]


def test_a_token_that_is_not_taken_just_now_is_no_refusal_for_good(server: Busy) -> None:
    """Tokens and the keys that they are signed with are changed while requests are under way. A
    refusal for good would give up a request for a node."""
    server.refusals, server.refusal, server.pause = 1, UNAUTHORIZED, ""
    with pytest.raises(ApiUnreachable, match="401"):
        api(server).create("/thing", {})
    assert api(server).create("/thing", {}) == {}


def test_a_token_file_that_is_empty_just_now_is_no_bug(server: Busy, tmp_path: Path) -> None:
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("one")
    authority.write_text("none")
    host, port = "127.0.0.1", str(server.server_address[1])
    loader = InClusterConfigLoader(
        str(token),
        str(authority),
        environ={"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port},
    )
    loader._token_refresh_period = timedelta()
    asked = api(server)
    configuration = asked.client.configuration
    there = configuration.host
    loader.load_and_set(configuration)
    loader.host = there
    assert asked.get("/thing") == {}
    token.write_text("")
    with pytest.raises(ApiUnreachable, match="empty"):
        asked.get("/thing")
    token.write_text("two")
    assert asked.get("/thing") == {}

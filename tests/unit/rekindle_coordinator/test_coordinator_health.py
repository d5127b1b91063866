"""A coordinator's metrics and health on a port."""

import json
import socket
import threading
import urllib.error
import urllib.request

import pytest

from rekindle.model.errors import InputError
from rekindle_coordinator import coordinator_health, health_server
from rekindle_coordinator.coordinator_health import Metrics


def ask(port: int, page: str, host: str = "127.0.0.1") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/{page}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_tells_who_leads_and_fails_when_the_loop_does_not_turn_any_more() -> None:
    metrics = Metrics()
    port = health_server.serve(metrics, 0)
    metrics.leads.set(1)
    metrics.applications.set(3)
    status, text = ask(port, "health")
    found = json.loads(text)
    assert (status, found["healthy"], found["leads"], found["applications"]) == (200, True, 1, 3)
    assert found["store_reachable"] == 0
    assert '"applications": 3,' in text, "counts are whole numbers"
    metrics.turned_at -= coordinator_health.SILENT_SECONDS_MAX
    for page in ("health", "ready"):
        status, text = ask(port, page)
        found = json.loads(text)
        assert (status, found["healthy"], found["ready"]) == (503, False, False)
        assert found["reason"] == "the loop has not turned for 60 s"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is one family here")
def test_both_families_are_answered_on_one_port() -> None:
    port = health_server.serve(Metrics(), 0)
    assert [ask(port, "health", host)[0] for host in ("127.0.0.1", "[::1]")] == [200, 200]


def test_who_is_not_ready_says_what_is_waited_for() -> None:
    metrics = Metrics()
    metrics.awaited = "pods"
    port = health_server.serve(metrics, 0)
    status, text = ask(port, "ready")
    found = json.loads(text)
    assert (status, found["healthy"], found["ready"]) == (503, True, False)
    assert found["reason"] == "waits for pods"
    assert ask(port, "health")[0] == 200
    metrics.awaited = ""
    status, text = ask(port, "ready")
    assert (status, json.loads(text)["reason"]) == (200, "")


@pytest.mark.parametrize("page", ["", "nope", "healthz", "metrics/x"])
def test_a_page_that_is_not_there_is_not_answered_with_metrics(page: str) -> None:
    assert ask(health_server.serve(Metrics(), 0), page)[0] == 404


def test_metrics_are_those_of_this_coordinator_alone() -> None:
    metrics = Metrics()
    metrics.plans.inc()
    status, text = ask(health_server.serve(metrics, 0), "metrics")
    assert status == 200
    assert "rekindle_coordinator_plans_total 1.0" in text.splitlines()
    assert all(line.startswith(("#", "rekindle_coordinator_")) for line in text.splitlines())


def test_a_connection_that_says_nothing_keeps_nobody_from_an_answer() -> None:
    port = health_server.serve(Metrics(), 0)
    with socket.create_connection(("127.0.0.1", port)):
        assert ask(port, "health")[0] == 200


def test_a_port_that_is_taken_is_refused() -> None:
    port = health_server.serve(Metrics(), 0)
    with pytest.raises(InputError, match=f"--port {port}: cannot be listened on"):
        health_server.serve(Metrics(), port)


def test_connections_that_say_nothing_take_few_threads_and_keep_nobody_from_an_answer() -> None:
    port = health_server.serve(Metrics(), 0)
    before = threading.active_count()
    silent = [
        socket.create_connection(("127.0.0.1", port))
        for _ in range(4 * health_server.CONNECTIONS_MAX)
    ]
    try:
        assert ask(port, "health")[0] == 200
        silent[0].settimeout(health_server.REQUEST_SECONDS_MAX / 2)
        assert silent[0].recv(1) == b""  # the oldest was ended, before its time was over
        assert threading.active_count() - before <= 2 * health_server.CONNECTIONS_MAX
    finally:
        for connection in silent:
            connection.close()

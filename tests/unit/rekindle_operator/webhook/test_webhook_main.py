"""The command of the webhook: what cannot be right is refused before anything starts."""

import io
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from prometheus_client import CollectorRegistry

from rekindle.model.errors import InputError
from rekindle_coordinator.json_lines import JsonLineLog
from rekindle_operator.webhook import webhook_main, webhook_server
from rekindle_operator.webhook.certificate_store import CertificateStore

OPTIONS = webhook_main.WebhookOptions("zk-0.zk:2281,[::1]:2281", "rekindle")
ENDS = "rekindle_operator_webhook_certificate_ends_timestamp_seconds"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"store": "zk"}, "--store 'zk': is no address of a server; write HOST:PORT"),
        ({"store": "zk:1,"}, "--store '': is no address"),
        ({"sidecar_image": "a b"}, "--sidecar-image 'a b': is no image; write it like"),
        ({"namespace": "Bad Ns"}, "--namespace 'Bad Ns': is no name of Kubernetes"),
        ({"certificates_folder": Path("/nonexistent")}, "--certificates-folder /nonexistent: is"),
        ({"health_port": 9443}, "--port 9443: is that of --health-port too; give"),
    ],
)
def test_an_option_that_cannot_be_right_is_refused_by_its_name(
    changes: dict[str, Any], message: str
) -> None:
    options = replace(OPTIONS, **changes)
    with pytest.raises(InputError) as caught:
        webhook_main.check(options)
    assert message in str(caught.value)
    with pytest.raises(InputError), webhook_main.running(options, io.StringIO()):
        pytest.fail("it started")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sidecar_image": "registry.example.com:5000/rekindle@sha256:0a1b"},
        {"certificates_folder": Path("/")},
        {"port": 0, "health_port": 0},
    ],
)
def test_options_that_may_be_right_are_not_refused(changes: dict[str, Any]) -> None:
    webhook_main.check(replace(OPTIONS, **changes))


def test_a_port_that_is_taken_is_refused_before_anything_is_awaited() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"--port {port}: cannot be listened on"):
            webhook_server.check_port(port)
    webhook_server.check_port(0)


def webhook(**server: Any) -> webhook_main.RunningWebhook:
    """With one watch, that has listed nothing yet."""
    watcher = SimpleNamespace(kind=SimpleNamespace(plural="recoverypolicies"), listed=Mock())
    watcher.listed.is_set.return_value = False
    made = SimpleNamespace(**{"is_serving": True, "is_presenting": True, "ends": None, **server})
    parts: Any = (JsonLineLog(io.StringIO()), CollectorRegistry(), (watcher,), made)
    return webhook_main.RunningWebhook(*parts)


def test_it_is_ready_once_it_has_seen_all_and_has_a_certificate() -> None:
    made = webhook(is_presenting=False)
    told = made.summary()
    assert (told["healthy"], told["ready"]) == (True, False)
    assert told["reason"] == "waits for recoverypolicies, a certificate"
    made = webhook()
    cast(Mock, made.watchers[0].listed).is_set.return_value = True
    assert made.summary()["ready"]


def test_one_that_ends_serves_on_for_a_while_and_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = webhook(start=Mock(), port=1)
    cast(Any, made.watchers[0]).start = Mock()
    cast(Mock, made.watchers[0].listed).is_set.return_value = True
    waited: list[tuple[float | None, bool]] = []

    def is_ending(_: webhook_main.RunningWebhook, within_seconds: float | None) -> bool:
        waited.append((within_seconds, bool(made.summary()["ready"])))
        return within_seconds is None

    monkeypatch.setattr(webhook_main.RunningWebhook, "_is_ending", is_ending)
    made.run()
    assert waited[1:] == [(None, True), (webhook_main.DRAIN_SECONDS, False)]
    assert made.summary()["healthy"]


def test_one_that_does_not_listen_has_to_start_anew() -> None:
    told = webhook(is_serving=False).summary()
    assert (told["healthy"], told["reason"]) == (False, "the webhook does not listen")


def test_without_a_certificate_an_alert_is_due() -> None:
    """The alert asks for less than a week, and 0 always is."""
    assert webhook().registry.get_sample_value(ENDS) == 0.0


def test_the_secret_is_read_often_until_there_is_a_certificate_and_then_seldom() -> None:
    store, now = Mock(CertificateStore, pair=None), [0.0]
    certificate = webhook_main.SecretCertificate(store, clock=lambda: now[0])
    for moment, reads in ((0.0, 1), (0.5, 1), (1.0, 2)):
        now[0] = moment
        certificate.read()
        assert store.follow.call_count == reads
    store.pair = object()
    for moment, reads in ((2.0, 3), (6.0, 3), (7.0, 4)):
        now[0] = moment
        certificate.read()
        assert store.follow.call_count == reads

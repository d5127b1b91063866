"""Certificates of our own, renewed over and over while a real API server asks for patches."""

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from injection_webhook import (
    NAME,
    SECRET_PATH,
    WAIT_SECONDS_MAX,
    Hands,
    Webhook,
    await_injection,
    driver,
    is_injected,
    registered,
    try_pod,
)
from kubernetes import client

from rekindle_local import process_sets
from rekindle_operator.webhook import certificate_rotation, certificate_store, webhook_configuration
from rekindle_operator.webhook.certificate_rotation import Issued
from rekindle_operator.webhook.certificate_store import CertificateStore
from testbed.control_plane import ControlPlane

# Certificates that are due for renewal as soon as they are made, and end within the test.
LIFE = certificate_rotation.BACKDATED + timedelta(seconds=20)
SETTLE_SECONDS = 2.0
PROMOTED = 4
# So long the API server goes on asking after the first certificate has ended.
AFTERWARDS = timedelta(seconds=2)


def issue(hosts: Collection[str], now: datetime) -> Issued:
    return certificate_rotation.issue(hosts, now, LIFE)


def keeper(api_client: client.ApiClient, namespace: str, **more: Any) -> CertificateStore:
    hosts = certificate_store.hosts_of(NAME, namespace)
    return CertificateStore(Hands(api_client), namespace, namespace, hosts, **more)


@contextmanager
def as_a_service(core: Any, namespace: str, webhook: Webhook) -> Iterator[dict[str, Any]]:
    """The webhook behind a Service; what a configuration names."""
    webhook.server.start()
    try:
        # A service that is only a name is resolved to it, so the API server needs no proxy.
        spec = {"type": "ExternalName", "externalName": "localhost"}
        core.create_namespaced_service(namespace, {"metadata": {"name": NAME}, "spec": spec})
        yield webhook_configuration.service(NAME, namespace, webhook.server.port)
    finally:
        webhook.server.close()


class Making:
    """Makes drivers without a pause, and looks whether each has its sidecar."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace
        self.with_sidecar = self.without = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._make)

    def __enter__(self) -> "Making":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _make(self) -> None:
        with self.plane.api_client() as api_client:
            core = client.CoreV1Api(api_client)
            while not self._stop.wait(0.02):
                if is_injected(try_pod(core, self.namespace, driver("flights"))):
                    self.with_sidecar += 1
                else:
                    self.without += 1


def test_every_pod_is_injected_while_certificates_are_renewed(
    control_plane: ControlPlane, api_client: client.ApiClient, core: Any, restricted: str
) -> None:
    acting = keeper(api_client, restricted, issue=issue, settle_seconds=SETTLE_SECONDS)
    replica = keeper(api_client, restricted)

    def presented() -> Any:
        replica.follow()
        return replica.pair

    webhook = Webhook(restricted, presented)
    with (
        as_a_service(core, restricted, webhook) as where,
        registered(api_client, restricted, where),
    ):
        done = [*acting.tend(datetime.now(UTC))]
        assert done == ["issue", "trust"]
        await_injection(api_client, restricted)
        over = datetime.now(UTC) + (LIFE - certificate_rotation.BACKDATED) + AFTERWARDS

        with Making(control_plane, restricted) as making:

            def is_rotated() -> bool:
                done.extend(acting.tend(datetime.now(UTC)))
                is_over = datetime.now(UTC) > over and making.with_sidecar > 50
                return done.count("promote") >= PROMOTED and is_over

            assert process_sets.await_condition(
                is_rotated, limit_seconds=WAIT_SECONDS_MAX, interval_seconds=0.2
            )
        assert making.without == 0


def test_both_replicas_get_the_certificate_that_one_has_made_and_the_api_server_keeps_it(
    api_client: client.ApiClient, core: Any, restricted: str
) -> None:
    acting, standby = keeper(api_client, restricted), keeper(api_client, restricted)
    webhook = Webhook(restricted, lambda: standby.pair)
    with (
        as_a_service(core, restricted, webhook) as where,
        registered(api_client, restricted, where),
    ):
        now = datetime.now(UTC)
        assert acting.tend(now) == ("issue", "trust")
        standby.follow()
        assert standby.pair == acting.pair
        await_injection(api_client, restricted)
        assert standby.tend(now) == ()
        wiped = {
            "webhooks": [
                {"name": webhook_configuration.DRIVERS, "clientConfig": {"caBundle": None}}
            ]
        }
        admission: Any = client.AdmissionregistrationV1Api(api_client)
        admission.patch_mutating_webhook_configuration(restricted, wiped)
        assert standby.tend(now) == ("trust",)
        secret = Hands(api_client).get(SECRET_PATH.format(restricted))
        assert secret is not None
        assert secret["type"] == "kubernetes.io/tls"


def test_of_two_writers_the_one_that_has_not_seen_the_others_write_is_refused(
    api_client: client.ApiClient, restricted: str
) -> None:
    first, second = keeper(api_client, restricted), keeper(api_client, restricted)
    now = datetime.now(UTC)
    refused: list[int | None] = []
    start = threading.Barrier(2)

    def tend(which: CertificateStore) -> None:
        start.wait()
        try:
            which.tend(now)
        except client.ApiException as error:
            refused.append(error.status)

    threads = [threading.Thread(target=tend, args=(which,)) for which in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(refused) <= {409}
    for which in (first, second):
        which.follow()
    assert first.pair is not None
    assert first.pair == second.pair
    assert process_sets.await_condition(
        lambda: first.tend(now) == (), limit_seconds=WAIT_SECONDS_MAX
    )

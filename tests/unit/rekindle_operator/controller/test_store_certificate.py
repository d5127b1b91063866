"""The certificate of the store's servers: made, renewed, and trusted before it is presented."""

import base64
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from rekindle.model.errors import InputError, RunError
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.cluster.api_client import ObjectConflict
from rekindle_operator.controller.store_certificate import (
    BUNDLE,
    SECRET,
    StoreCertificate,
    hosts_of,
)
from rekindle_operator.webhook import certificate_rotation

START = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
STORE = "zk-0.zk.team.svc:2281,zk-1.zk.team.svc:2281"
PATH = f"/api/v1/namespaces/rekindle/secrets/{SECRET}"


@dataclass
class Server:
    """The API server, with one Secret."""

    secret: dict[str, Any] | None = None
    writes: list[str] = field(default_factory=list)

    def get(self, path: str) -> Mapping[str, Any] | None:
        assert path == PATH
        return self.secret

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        assert f"{path}/{SECRET}" == PATH
        if self.secret is not None:
            raise ObjectConflict(where=path, what="is there", remedy="read it")
        self._take("create", body)

    def replace(self, path: str, body: Mapping[str, Any]) -> None:
        assert path == PATH
        self._take("replace", body)

    def _take(self, verb: str, body: Mapping[str, Any]) -> None:
        self.writes.append(verb)
        self.secret = json.loads(json.dumps(body))

    def data(self, key: str) -> bytes:
        assert self.secret is not None
        return base64.b64decode(self.secret["data"][key])


def made(server: Server, *, acts: bool = True) -> StoreCertificate:
    api: Any = server
    log = Log(io.StringIO())
    return StoreCertificate(api, "rekindle", hosts_of(STORE), log, acts=lambda: acts)


def test_the_names_are_those_by_which_servers_are_called() -> None:
    assert hosts_of("zk-0.zk.svc.:2281,[::1]:2281,10.0.0.1") == ("zk-0.zk.svc", "::1", "10.0.0.1")


def test_whoever_acts_makes_it_once_and_all_others_read_it() -> None:
    server = Server()
    standby, acting = made(server, acts=False), made(server)
    standby.turn(START)
    assert server.secret is None
    with pytest.raises(InputError, match=f"Secret rekindle/{SECRET}: has no certificate yet"):
        standby.authorities()
    acting.turn(START)
    acting.turn(START + DAY)
    standby.turn(START + DAY)
    assert server.writes == ["create"]
    assert standby.authorities() == acting.authorities() == server.data("ca.crt").decode()
    assert server.data(BUNDLE) == server.data("ca.crt")
    assert (
        acting.ends
        == standby.ends
        == START - certificate_rotation.BACKDATED + certificate_rotation.LIFE
    )


def test_servers_may_present_it_to_clients_and_to_each_other() -> None:
    server = Server()
    made(server).turn(START)
    certificate = x509.load_pem_x509_certificate(server.data("tls.crt"))
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usages) == set(certificate_rotation.PEER)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"zk-0.zk.team.svc", "zk-1.zk.team.svc"}
    assert "store" in certificate.issuer.rfc4514_string()
    assert server.data("tls.key").startswith(b"-----BEGIN PRIVATE KEY-----"), "PKCS 8"


def test_another_authority_is_trusted_for_an_hour_before_its_certificate_is_presented() -> None:
    server = Server()
    acting = made(server)
    acting.turn(START)
    first, due = server.data("tls.crt"), START + 60 * DAY
    acting.turn(due)
    assert server.data("tls.crt") == first
    assert acting.authorities().count("BEGIN CERTIFICATE") == 2
    assert server.data(BUNDLE).count(b"BEGIN CERTIFICATE") == 2
    seen = due + timedelta(seconds=5)
    acting.turn(seen)
    acting.turn(seen + timedelta(minutes=59))
    assert server.data("tls.crt") == first
    acting.turn(seen + timedelta(minutes=60))
    assert server.data("tls.crt") != first
    assert server.data("ca.crt").decode() in acting.authorities()
    # a server that has not read the other one yet is trusted until the old one ends
    assert acting.authorities().count("BEGIN CERTIFICATE") == 2
    assert server.writes == ["create", "replace", "replace"]


def test_an_operator_that_has_just_begun_waits_the_hour_too() -> None:
    server = Server()
    before = made(server)
    before.turn(START)
    before.turn(START + 60 * DAY)
    first = server.data("tls.crt")
    made(server).turn(START + 70 * DAY)
    assert server.data("tls.crt") == first


@pytest.mark.parametrize("spoilt", [{"tls.crt": "none"}, {"tls.key": ""}, {"ca.crt": "none"}])
def test_a_certificate_that_somebody_has_spoilt_is_made_anew(spoilt: dict[str, str]) -> None:
    server = Server()
    acting = made(server)
    acting.turn(START)
    assert server.secret is not None
    for key, value in spoilt.items():
        server.secret["data"][key] = base64.b64encode(value.encode()).decode()
    acting.turn(START)
    assert server.writes == ["create", "replace"]
    assert acting.ends is not None


def test_a_bundle_that_somebody_has_changed_is_put_right() -> None:
    server = Server()
    acting = made(server)
    acting.turn(START)
    certificate = server.data("tls.crt")
    assert server.secret is not None
    del server.secret["data"][BUNDLE]
    acting.turn(START)
    assert server.data(BUNDLE) == server.data("ca.crt")
    assert server.data("tls.crt") == certificate


def test_what_the_api_server_says_goes_through() -> None:
    class Away(Server):
        def get(self, path: str) -> Mapping[str, Any] | None:
            raise RunError(where=path, what="is away", remedy="wait")

    with pytest.raises(RunError, match="is away"):
        made(Away()).turn(START)

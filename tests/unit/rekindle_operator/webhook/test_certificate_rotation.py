"""Certificates of the webhook: at every moment each replica presents one that is trusted."""

import base64
import copy
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle_operator.webhook import certificate_rotation, certificate_store, webhook_configuration
from rekindle_operator.webhook.certificate_rotation import Pair, RotationStep, StoredCertificates
from rekindle_operator.webhook.certificate_store import CertificateStore

HOSTS = ("rekindle-webhook.rekindle.svc",)
START = datetime(2026, 11, 21, 17, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


class GoneError(Exception):
    """The object is another one by now, or is there already."""


class Server:
    """An API server's Secret and configuration, with versions."""

    def __init__(self) -> None:
        self.secret: dict[str, Any] | None = None
        service = webhook_configuration.service("rekindle-webhook", "rekindle")
        self.configuration: dict[str, Any] | None = webhook_configuration.manifest(
            "rekindle", service
        )
        self.configuration["metadata"]["resourceVersion"] = "1"
        self.writes: list[str] = []

    def get(self, path: str) -> Mapping[str, Any] | None:
        if path == "/api/v1/namespaces/rekindle/secrets/rekindle-webhook-certificate":
            return copy.deepcopy(self.secret)
        assert path.endswith("/mutatingwebhookconfigurations/rekindle")
        return copy.deepcopy(self.configuration)

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        assert path == "/api/v1/namespaces/rekindle/secrets"
        if self.secret is not None:
            raise GoneError
        self.secret = self._stored(body)
        self.writes.append("create")

    def replace(self, path: str, body: Mapping[str, Any]) -> None:
        assert path.endswith("/secrets/rekindle-webhook-certificate")
        assert self.secret is not None
        self._check(body, self.secret)
        self.secret = self._stored(body)
        self.writes.append("replace")

    def patch(self, path: str, body: Mapping[str, Any], kind: str) -> None:
        assert path.endswith("/mutatingwebhookconfigurations/rekindle")
        assert kind == "application/strategic-merge-patch+json"
        assert self.configuration is not None
        self._check(body, self.configuration)
        for webhook, changed in zip(self.configuration["webhooks"], body["webhooks"], strict=True):
            assert webhook["name"] == changed["name"]
            webhook["clientConfig"] = {**webhook["clientConfig"], **changed["clientConfig"]}
        self.configuration = self._stored(self.configuration)
        self.writes.append("patch")

    @property
    def bundle(self) -> bytes:
        assert self.configuration is not None
        return webhook_configuration.bundle_of(self.configuration)

    def _check(self, body: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        if body["metadata"]["resourceVersion"] != known["metadata"]["resourceVersion"]:
            raise GoneError

    def _stored(self, body: Mapping[str, Any]) -> dict[str, Any]:
        stored = copy.deepcopy(dict(body))
        version = str(int(stored["metadata"].get("resourceVersion", "0")) + 1)
        stored["metadata"]["resourceVersion"] = version
        return stored


def keeper(server: Server) -> CertificateStore:
    return CertificateStore(server, "rekindle", "rekindle", HOSTS)


def is_trusted(pair: Pair | None, bundle: bytes, now: datetime) -> bool:
    """Whether an API server accepts a replica that presents this."""
    if pair is None:
        return False
    for authority in bundle.split(certificate_rotation.END):
        secret = {"tls.crt": pair.certificate, "tls.key": pair.key}
        secret["ca.crt"] = authority + certificate_rotation.END
        data = {name: base64.b64encode(value).decode() for name, value in secret.items()}
        found = certificate_rotation.from_secret({"data": data}).current
        if found is not None and certificate_rotation.is_usable(found, HOSTS, now):
            return True
    return False


ISSUED = certificate_rotation.issue(HOSTS, START)
NEXT = certificate_rotation.issue(HOSTS, START + 60 * DAY)
OTHER = certificate_rotation.issue(("elsewhere.svc",), START)
SINCE = START + 61 * DAY


@pytest.mark.parametrize(
    ("kept", "after", "since", "step"),
    [
        pytest.param(StoredCertificates(), 0 * DAY, None, RotationStep.ISSUE, id="there is none"),
        pytest.param(
            StoredCertificates(ISSUED), 0 * DAY, None, RotationStep.KEEP, id="a fresh one"
        ),
        pytest.param(
            StoredCertificates(ISSUED), 59 * DAY, None, RotationStep.KEEP, id="before two thirds"
        ),
        pytest.param(
            StoredCertificates(ISSUED), 60 * DAY, None, RotationStep.STAGE, id="at two thirds"
        ),
        pytest.param(
            StoredCertificates(ISSUED), 90 * DAY, None, RotationStep.ISSUE, id="it has ended"
        ),
        pytest.param(
            StoredCertificates(ISSUED), -1 * DAY, None, RotationStep.ISSUE, id="it has not begun"
        ),
        pytest.param(
            StoredCertificates(OTHER),
            0 * DAY,
            None,
            RotationStep.ISSUE,
            id="it is for another name",
        ),
        pytest.param(
            StoredCertificates(ISSUED, NEXT),
            61 * DAY,
            None,
            RotationStep.KEEP,
            id="not trusted yet",
        ),
        pytest.param(
            StoredCertificates(ISSUED, NEXT),
            61 * DAY + timedelta(seconds=59),
            SINCE,
            RotationStep.KEEP,
            id="just now",
        ),
        pytest.param(
            StoredCertificates(ISSUED, NEXT),
            61 * DAY + timedelta(seconds=60),
            SINCE,
            RotationStep.PROMOTE,
            id="settled",
        ),
        pytest.param(
            StoredCertificates(ISSUED, NEXT),
            91 * DAY,
            None,
            RotationStep.PROMOTE,
            id="no time to lose",
        ),
        pytest.param(
            StoredCertificates(ISSUED, OTHER),
            61 * DAY,
            SINCE,
            RotationStep.STAGE,
            id="staged for another",
        ),
    ],
)
def test_what_is_due_follows_from_what_is_kept_and_the_moment(
    kept: StoredCertificates, after: timedelta, since: datetime | None, step: RotationStep
) -> None:
    found = certificate_rotation.decide(
        kept, HOSTS, START + after, trusted_since=since, settle_seconds=60
    )
    assert found is step


def test_a_certificate_is_for_the_service_and_signed_by_its_authority() -> None:
    assert ISSUED.hosts == {"rekindle-webhook.rekindle.svc"}
    assert ISSUED.ends - ISSUED.starts == certificate_rotation.LIFE
    assert ISSUED.starts == START - HOUR
    addresses = certificate_rotation.issue(("127.0.0.1", "::1"), START)
    assert addresses.hosts == {"127.0.0.1", "::1"}
    long = certificate_rotation.issue((f"{'s' * 63}.{'n' * 63}.svc",), START)
    assert len(*long.hosts) == 131


def test_what_is_kept_comes_back_from_its_secret() -> None:
    kept = StoredCertificates(
        ISSUED, NEXT, (OTHER.authority, certificate_rotation.issue(HOSTS, START).authority)
    )
    secret = certificate_rotation.to_secret(kept, "name", "rekindle", None)
    assert certificate_rotation.from_secret(secret) == kept
    again = certificate_rotation.to_secret(
        kept, "name", "rekindle", {"type": "Opaque", "metadata": {}}
    )
    assert again["type"] == "Opaque"


def spoilt(**data: str) -> dict[str, Any]:
    secret = certificate_rotation.to_secret(StoredCertificates(ISSUED), "name", "rekindle", None)
    return {**secret, "data": {**secret["data"], **data}}


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


@pytest.mark.parametrize(
    "secret",
    [
        pytest.param(None, id="no secret"),
        pytest.param({"metadata": {}}, id="an empty one"),
        pytest.param(spoilt(**{"tls.crt": "%"}), id="no base64"),
        pytest.param(spoilt(**{"tls.crt": encoded(b"none")}), id="no certificate"),
        pytest.param(spoilt(**{"tls.key": encoded(b"none")}), id="no key"),
        pytest.param(spoilt(**{"tls.key": encoded(NEXT.pair.key)}), id="another's key"),
        pytest.param(spoilt(**{"ca.crt": encoded(NEXT.authority)}), id="another's authority"),
    ],
)
def test_a_secret_that_is_spoilt_counts_as_none(secret: Any) -> None:
    assert certificate_rotation.from_secret(secret).current is None


def test_the_first_turn_makes_a_certificate_and_has_it_trusted() -> None:
    server = Server()
    acting = keeper(server)
    assert acting.pair is None
    assert acting.tend(START) == ("issue", "trust")
    assert is_trusted(acting.pair, server.bundle, START)
    assert acting.tend(START + HOUR) == ()
    assert server.writes == ["create", "patch"]
    assert acting.ends == START - HOUR + certificate_rotation.LIFE


def test_a_bundle_that_somebody_has_wiped_is_set_again() -> None:
    server = Server()
    acting = keeper(server)
    acting.tend(START)
    assert server.configuration is not None
    del server.configuration["webhooks"][1]["clientConfig"]["caBundle"]
    assert acting.tend(START + HOUR) == ("trust",)


def test_without_a_configuration_the_certificate_is_made_all_the_same() -> None:
    server = Server()
    server.configuration = None
    assert keeper(server).tend(START) == ("issue",)


class Late(Server):
    """One whose reads are of before another wrote."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        self.server.create(path, body)

    def replace(self, path: str, body: Mapping[str, Any]) -> None:
        self.server.replace(path, body)

    def patch(self, path: str, body: Mapping[str, Any], kind: str) -> None:
        self.server.patch(path, body, kind)


def test_of_two_that_act_at_once_the_second_writes_nothing() -> None:
    server = Server()
    late = Late(server)
    keeper(server).tend(START)
    with pytest.raises(GoneError):
        keeper(late).tend(START)
    late.secret = copy.deepcopy(server.secret)
    keeper(server).tend(START + 60 * DAY)
    with pytest.raises(GoneError):
        keeper(late).tend(START + 60 * DAY)
    assert server.writes == ["create", "patch", "replace", "patch"]


def test_a_certificate_is_renewed_and_its_old_authority_goes_when_it_has_ended() -> None:
    server = Server()
    acting = keeper(server)
    acting.tend(START)
    old = acting.pair
    assert acting.tend(START + 60 * DAY) == ("stage", "trust")
    assert acting.tend(START + 60 * DAY + HOUR) == ()
    assert acting.pair == old
    assert acting.tend(START + 60 * DAY + 2 * HOUR) == ("promote",)
    assert acting.pair != old
    assert is_trusted(old, server.bundle, START + 60 * DAY + 2 * HOUR)
    assert acting.tend(START + 90 * DAY) == ("trust",)
    assert server.bundle.count(certificate_rotation.END) == 1
    assert is_trusted(acting.pair, server.bundle, START + 90 * DAY)


TURNS = st.tuples(
    st.sampled_from(["first acts", "second acts", "first reads", "second reads"]),
    st.sampled_from([20.0, 3_600.0, 31 * 86_400.0]),
)


@settings(max_examples=40)
@given(turns=st.lists(TURNS, min_size=8, max_size=16))
def test_whatever_a_replica_presents_is_trusted_until_it_ends(
    turns: list[tuple[str, float]],
) -> None:
    """By every replica of the API server, one of which hears of a new bundle 40 s later."""
    server = Server()
    first, second = keeper(server), keeper(server)
    now = START
    first.tend(now)
    second.follow()
    bundles, begun_at = [(now - DAY, server.bundle)], now
    for who, seconds in turns:
        now += timedelta(seconds=seconds)
        acting = first if who.startswith("first") else second
        if not who.endswith("acts"):
            acting.follow()
        elif "issue" in acting.tend(now):
            begun_at = now  # nothing was there any more, and nothing could be prepared
        bundles.append((now, server.bundle))
        heard_at = max(now - timedelta(seconds=40), begun_at)
        late = next(found for at, found in reversed(bundles) if at <= heard_at)
        for replica in (first, second):
            if replica.ends is not None and now < replica.ends:
                assert is_trusted(replica.pair, server.bundle, now)
                assert is_trusted(replica.pair, late, now)


def test_names_are_those_by_which_the_api_server_calls() -> None:
    assert certificate_store.hosts_of("rekindle-webhook", "rekindle") == HOSTS

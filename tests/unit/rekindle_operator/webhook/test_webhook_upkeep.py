"""What the operator that acts tells the webhook, and when."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rekindle.protocol.store_paths import Place
from rekindle_operator.api.recovery_class import Executors
from rekindle_operator.cluster.api_client import NOT_FOUND, ApiRefused
from rekindle_operator.cluster.application_matching import MatchedApplication
from rekindle_operator.controller.operator_options import OperatorOptions
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.webhook import avoided_domains, webhook_configuration
from rekindle_operator.webhook.webhook_upkeep import AWAY_SECONDS, WebhookUpkeep

PLACE = Place("team", "flights")
ZONE = Domain("zone", "a")


class Cluster:
    """The API server, work that is done at once, and what is known of one application."""

    def __init__(self, *, webhook: bool = True, whole: bool = False) -> None:
        self.now, self.acts = 100.0, True
        self.domains: tuple[Domain, ...] = ()
        self.held = SimpleNamespace(dry_run=False, executors=Executors())
        self.kept: Mapping[str, Any] | None = None
        self.writes = 0
        self.configuration: Mapping[str, Any] | None = webhook_configuration.manifest(
            "rekindle", {}, turns=True
        )
        self.lines: list[str] = []
        self.deployment: Mapping[str, Any] | None = {"status": {"availableReplicas": 2}}
        judge = SimpleNamespace(sightings=[PLACE], avoided=lambda *_: self.domains)
        known = SimpleNamespace(
            application=lambda place: MatchedApplication(place, "Driver"),
            held=lambda _: self.held,
        )
        self.upkeep = WebhookUpkeep(
            OperatorOptions("zk:2281", "rekindle", webhook=webhook, whole_applications=whole),
            *(cast(Any, part) for part in (self, known, judge, self, self)),
            acts=lambda: self.acts,
            clock=lambda: self.now,
        )

    def replace(self, path: str, body: Mapping[str, Any]) -> None:
        assert path.endswith(f"/namespaces/rekindle/configmaps/{avoided_domains.NAME}")
        if self.kept is None:
            raise ApiRefused(path, NOT_FOUND, "not found")
        self.kept, self.writes = body, self.writes + 1

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        assert path.endswith("/namespaces/rekindle/configmaps")
        self.kept, self.writes = body, self.writes + 1

    def write(self, kind: str, **more: str) -> None:
        assert more == {"configuration": "rekindle", "webhook": "turns.rekindle.dev"}
        self.lines.append(kind)

    def get(self, path: str) -> Mapping[str, Any] | None:
        if path.endswith("/mutatingwebhookconfigurations/rekindle"):
            return self.configuration
        assert path == "/apis/apps/v1/namespaces/rekindle/deployments/rekindle-webhook"
        return self.deployment

    def leave(self, key: str, errand: Callable[[], None]) -> None:
        assert key
        errand()

    def lose(self) -> None:
        self.domains = (ZONE,)
        self.upkeep.refresh([PLACE], stirred=False)

    def avoided(self) -> set[tuple[Domain, ...]]:
        assert self.kept is not None
        return {*avoided_domains.from_config_map(self.kept).avoided.values()}


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.upkeep.refresh((), stirred=True)
    assert (made.writes, made.avoided()) == (1, set()), "what another operator wrote is not kept"
    return made


def test_a_lost_domain_is_written_at_once_and_no_second_time(cluster: Cluster) -> None:
    cluster.lose()
    assert cluster.avoided() == {(ZONE,)}
    cluster.upkeep.refresh([PLACE], stirred=True)
    assert cluster.writes == 2


def test_it_is_renewed_while_it_holds_and_not_when_it_is_over(cluster: Cluster) -> None:
    cluster.lose()
    cluster.now += avoided_domains.RENEW_SECONDS
    cluster.upkeep.refresh((), stirred=False)
    assert cluster.writes == 3
    cluster.domains = ()
    cluster.upkeep.refresh([PLACE], stirred=False)
    assert (cluster.writes, cluster.avoided()) == (4, set())
    cluster.now += 10 * avoided_domains.RENEW_SECONDS
    cluster.upkeep.refresh((), stirred=False)
    assert cluster.writes == 4
    assert avoided_domains.RENEW_SECONDS < avoided_domains.VALID_SECONDS / 2


def test_who_does_not_act_writes_nothing_and_who_begins_to_writes_all(cluster: Cluster) -> None:
    cluster.acts = False
    cluster.lose()
    assert cluster.writes == 1
    cluster.acts = True
    cluster.upkeep.refresh((), stirred=False)
    assert cluster.avoided() == {(ZONE,)}


def test_in_a_dry_run_nothing_is_avoided(cluster: Cluster) -> None:
    cluster.held.dry_run = True
    cluster.lose()
    assert cluster.writes == 1


def test_without_a_webhook_nothing_is_written() -> None:
    cluster = Cluster(webhook=False)
    cluster.lose()
    assert cluster.writes == 0


def is_away_after(cluster: Cluster, seconds: float) -> bool:
    """Whether the webhook counts as away, looked at now and once so many seconds later."""
    cluster.upkeep.look()
    cluster.now += seconds
    cluster.upkeep.look()
    return cluster.upkeep.is_away


@pytest.mark.parametrize("status", [{}, {"availableReplicas": 0}])
def test_a_webhook_without_a_replica_for_long_counts_as_away_until_it_has_one(
    status: Mapping[str, Any],
) -> None:
    cluster = Cluster()
    cluster.deployment = {"status": status}
    assert not is_away_after(cluster, AWAY_SECONDS - 1)
    assert is_away_after(cluster, 1)
    cluster.deployment = {"status": {"availableReplicas": 1}}
    assert not is_away_after(cluster, AWAY_SECONDS)


def test_nobody_knows_of_a_webhook_that_no_deployment_runs() -> None:
    cluster = Cluster()
    cluster.deployment = None
    assert not is_away_after(cluster, 2 * AWAY_SECONDS)


def test_an_operator_that_begins_to_act_counts_from_then_on() -> None:
    cluster = Cluster()
    cluster.deployment = {"status": {}}
    cluster.acts = False
    assert not is_away_after(cluster, 2 * AWAY_SECONDS)
    cluster.acts = True
    assert not is_away_after(cluster, AWAY_SECONDS - 1)


def test_pods_that_wait_are_written_and_renewed_while_there_are_any(cluster: Cluster) -> None:
    waiting = frozenset({"bucket"})
    cluster.upkeep.waiting = lambda: waiting
    cluster.upkeep.refresh((), stirred=False)
    assert cluster.kept is not None
    assert avoided_domains.waiting_buckets(cluster.kept) == {"bucket"}
    cluster.now += avoided_domains.RENEW_SECONDS
    cluster.upkeep.refresh((), stirred=False)
    assert cluster.writes == 3
    cluster.upkeep.waiting = frozenset
    cluster.upkeep.refresh((), stirred=False)
    assert (cluster.writes, avoided_domains.waiting_buckets(cluster.kept)) == (4, frozenset())


@pytest.mark.parametrize("is_there", [True, False])
def test_a_configuration_by_which_no_pod_waits_is_reported_after_a_while_until_it_is_mended(
    is_there: bool,
) -> None:
    """As a Job leaves it that has failed before an uninstall, or as somebody deletes it."""
    cluster = Cluster(whole=True)
    mended = cluster.configuration
    cluster.configuration = webhook_configuration.manifest("rekindle", {}) if is_there else None

    def is_missing_after(seconds: float) -> bool:
        cluster.upkeep.look()
        cluster.now += seconds
        cluster.upkeep.look()
        return cluster.upkeep.gates_are_missing

    assert not is_missing_after(AWAY_SECONDS - 1)
    assert cluster.lines == []
    assert is_missing_after(1)
    assert is_missing_after(60)
    assert cluster.lines == ["gates-missing"]
    cluster.configuration = mended
    assert not is_missing_after(AWAY_SECONDS)
    assert cluster.lines == ["gates-missing", "gates-back"]


def test_where_no_pod_is_to_wait_nobody_misses_an_entry_of_the_configuration() -> None:
    cluster = Cluster()
    cluster.configuration = None
    cluster.upkeep.look()
    cluster.now += 2 * AWAY_SECONDS
    cluster.upkeep.look()
    assert (cluster.upkeep.gates_are_missing, cluster.lines) == (False, [])

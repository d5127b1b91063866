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
from rekindle_operator.webhook import avoided_domains
from rekindle_operator.webhook.webhook_upkeep import AWAY_SECONDS, WebhookUpkeep

PLACE = Place("team", "flights")
ZONE = Domain("zone", "a")


class Cluster:
    """The API server, work that is done at once, and what is known of one application."""

    def __init__(self, *, webhook: bool = True) -> None:
        self.now, self.acts = 100.0, True
        self.domains: tuple[Domain, ...] = ()
        self.held = SimpleNamespace(dry_run=False, executors=Executors())
        self.kept: Mapping[str, Any] | None = None
        self.writes = 0
        self.deployment: Mapping[str, Any] | None = {"status": {"availableReplicas": 2}}
        judge = SimpleNamespace(sightings=[PLACE], avoided=lambda *_: self.domains)
        known = SimpleNamespace(
            application=lambda place: MatchedApplication(place, "Driver"),
            held=lambda _: self.held,
        )
        self.upkeep = WebhookUpkeep(
            OperatorOptions("zk:2281", "rekindle", webhook=webhook),
            *(cast(Any, part) for part in (self, known, judge, self, None)),
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

    def get(self, path: str) -> Mapping[str, Any] | None:
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

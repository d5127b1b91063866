"""What the webhook goes by, as its watches tell it."""

import io
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from injection_world import DEFAULTS, driver
from kubernetes.client import ApiClient

from rekindle_coordinator.json_lines import JsonLineLog
from rekindle_operator.cluster.api_client import Api
from rekindle_operator.cluster.object_watcher import ObjectWatcher, news_of
from rekindle_operator.detection.failure_domains import Domain
from rekindle_operator.webhook import avoided_domains, policy_watch
from rekindle_operator.webhook.injection_spec import InjectionRefusal, SidecarTerms
from rekindle_operator.webhook.policy_watch import WatchedPolicies

ZONE = Domain("zone", "a")
AT = datetime(2026, 11, 21, 17, tzinfo=UTC)
CREATED = "2026-11-21T17:00:00Z"
CLASS = {"metadata": {"name": "default", "uid": "c", "creationTimestamp": CREATED}, "spec": {}}
EVERY: Mapping[str, Any] = {"labelSelector": {}}
POLICY = {
    "metadata": {"name": "all", "namespace": "flights", "uid": "p", "creationTimestamp": CREATED},
    "spec": {"selector": {"drivers": EVERY, "sparkApplications": EVERY}},
}


class Watched:
    """What is known, and the watches that nobody has started."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log = io.StringIO()
        self.known = WatchedPolicies(
            DEFAULTS,
            clock=lambda: self.now,
            wall_clock=lambda: AT + timedelta(seconds=self.now),
        )
        api = Api(Mock(ApiClient))
        made = policy_watch.watchers(api, self.known, "rekindle", JsonLineLog(self.log), 90.0)
        self.by_version: dict[str, ObjectWatcher[WatchedPolicies]] = {
            f"{item.kind.api_version}/{item.kind.plural}": item for item in made
        }

    def watcher(self, kind: str) -> ObjectWatcher[WatchedPolicies]:
        (found,) = [item for name, item in self.by_version.items() if name.endswith(kind)]
        return found

    def see(self, kind: str, body: Mapping[str, Any]) -> None:
        """In a list."""
        watcher = self.watcher(kind)
        news = news_of(watcher.telling.seen, watcher.telling, dict(body), kind, watcher.log)
        watcher.inbox.put(news)
        watcher._tell_current()

    def event(self, type_: str, kind: str, body: Mapping[str, Any]) -> None:
        """Of a watch; of a bookmark only the version counts."""
        metadata = {**body.get("metadata", {}), "resourceVersion": "2"}
        self.watcher(kind)._take({"type": type_, "object": {**body, "metadata": metadata}})

    def only(self, kind: str, *uids: str) -> None:
        watcher = self.watcher(kind)
        watcher.inbox.put(watcher.telling.only(uids))


@pytest.fixture
def watched() -> Watched:
    made = Watched()
    made.see("recoveryclasses", CLASS)
    made.see("recoverypolicies", POLICY)
    return made


def test_a_driver_gets_what_policy_and_class_say(watched: Watched) -> None:
    terms = watched.known.terms_of(driver(), "flights")
    assert isinstance(terms, SidecarTerms)
    assert terms.image == DEFAULTS.image


@pytest.mark.parametrize("kind", ["recoverypolicies", "recoveryclasses"])
def test_what_is_not_listed_any_more_holds_no_more(watched: Watched, kind: str) -> None:
    watched.only(kind, "p", "c")
    assert isinstance(watched.known.terms_of(driver(), "flights"), SidecarTerms)
    watched.only(kind)
    assert isinstance(watched.known.terms_of(driver(), "flights"), InjectionRefusal)


def test_an_object_that_is_gone_holds_no_more(watched: Watched) -> None:
    watcher = watched.watcher("recoverypolicies")
    watcher.inbox.put(watcher.telling.gone(dict(POLICY)))
    assert isinstance(watched.known.terms_of(driver(), "flights"), InjectionRefusal)


def test_a_policy_that_means_nothing_is_logged_and_forgotten(watched: Watched) -> None:
    watched.see("recoverypolicies", {**POLICY, "spec": {"selector": 3}})
    assert '"kind": "unreadable"' in watched.log.getvalue()
    assert isinstance(watched.known.terms_of(driver(), "flights"), InjectionRefusal)


def test_of_a_spark_application_its_metadata_is_enough(watched: Watched) -> None:
    kind = "sparkoperator.k8s.io/v1beta2/sparkapplications"
    assert watched.watcher(kind).api.metadata_only
    metadata = {
        "name": "flights",
        "namespace": "flights",
        "uid": "s",
        "labels": {"team": "x"},
        "creationTimestamp": CREATED,
    }
    told = {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadata",
        "metadata": metadata,
    }
    watched.see(kind, told)
    (seen,) = watched.known.applications.values()
    assert (seen.group, seen.labels) == ("sparkoperator.k8s.io", (("team", "x"),))
    before = watched.known.view()
    watched.see(kind, {**told, "metadata": {**metadata, "resourceVersion": "2"}})
    assert watched.known.view().resources is before.resources, "made again for nothing"
    watched.only("spark.apache.org/v1/sparkapplications")
    assert watched.known.applications, "the other operator's list says nothing of it"
    watched.only(kind)
    assert not watched.known.applications


def record(written_at_seconds: float) -> dict[str, Any]:
    """The ConfigMap, written at a moment of `Watched.now`."""
    at = AT + timedelta(seconds=written_at_seconds)
    body = avoided_domains.to_config_map({"bucket": (ZONE,)}, "rekindle", at)
    body["metadata"]["uid"] = "m"
    return body


def test_what_the_operator_does_not_renew_keeps_nobody_out_of_a_domain(watched: Watched) -> None:
    watched.see("configmaps", record(0.0))
    watched.now = avoided_domains.VALID_SECONDS - 1
    assert watched.known.view().avoided == {"bucket": (ZONE,)}
    watched.now = avoided_domains.VALID_SECONDS
    assert watched.known.view().avoided == {}
    watched.see("configmaps", record(watched.now))
    assert watched.known.view().avoided == {"bucket": (ZONE,)}
    watched.only("configmaps")
    assert watched.known.view().avoided == {}


def test_a_record_that_is_listed_again_has_not_been_renewed(watched: Watched) -> None:
    watched.see("configmaps", record(0.0))
    for watched.now in (avoided_domains.VALID_SECONDS / 2, avoided_domains.VALID_SECONDS):
        watched.see("configmaps", record(0.0))
    watched.only("configmaps", "m")
    assert watched.known.view().avoided == {}


@pytest.mark.parametrize(
    ("age_seconds", "left_seconds"), [(-600, 180), (0, 180), (170, 10), (180, 0), (600, 0)]
)
def test_the_first_record_after_a_start_holds_as_long_as_for_a_webhook_that_has_run(
    watched: Watched, age_seconds: float, left_seconds: float
) -> None:
    """Of a clock that is ahead a record seems to come from the future."""
    watched.see("configmaps", record(-age_seconds))
    for at, counts in ((left_seconds - 1, left_seconds > 0), (left_seconds, False)):
        watched.now = max(0.0, at)
        assert bool(watched.known.view().avoided) is counts


@pytest.mark.parametrize("clock", [-7_200.0, 0.0, 7_200.0])
def test_a_renewal_counts_whatever_the_clock_of_its_operator_says(
    watched: Watched, clock: float
) -> None:
    for watched.now in (0.0, 60.0, 120.0):
        watched.see("configmaps", record(watched.now + clock))
    assert watched.known.view().avoided == {"bucket": (ZONE,)}
    watched.now = 239.0
    assert watched.known.view().avoided == {"bucket": (ZONE,)}
    watched.now = 300.0
    assert watched.known.view().avoided == {}


@pytest.mark.parametrize("clock", [-7_200.0, -200.0, 0.0, 7_200.0])
def test_the_first_record_of_an_incident_after_a_quiet_hour_counts_whatever_the_clocks_say(
    watched: Watched, clock: float
) -> None:
    """The webhook's clock is ahead of the operator's by more than a record holds."""
    watched.see("configmaps", waiting_record(clock))
    watched.now = 10.0
    watched.event("MODIFIED", "configmaps", waiting_record(10.0 + clock, ()))
    for watched.now in range(60, 3_600, 60):
        watched.event("BOOKMARK", "configmaps", {})
    watched.now = 3_599.0
    watched.event("MODIFIED", "configmaps", waiting_record(3_599.0 + clock))
    assert watched.known.gates
    watched.now = 3_599.0 + avoided_domains.VALID_SECONDS - 60
    assert watched.known.gates
    watched.now += 61.0
    assert not watched.known.gates


def test_the_first_record_of_all_counts_where_it_comes_after_the_list(watched: Watched) -> None:
    watched.only("configmaps")
    watched.watcher("configmaps")._tell_current()
    watched.now = 30.0
    watched.event("ADDED", "configmaps", waiting_record(30.0 - 600.0))
    assert watched.known.gates


def test_a_record_that_is_seen_late_holds_no_longer_than_one_that_is_seen_at_once(
    watched: Watched,
) -> None:
    """The API server was away for the webhook, and its operator went meanwhile."""
    watched.see("configmaps", waiting_record(0.0))
    watched.now = 170.0
    watched.see("configmaps", waiting_record(30.0))
    watched.now = 209.0
    assert watched.known.gates
    watched.now = 210.0
    assert not watched.known.gates


def waiting_record(
    written_at_seconds: float, waiting: Iterable[str] = ("bucket",)
) -> dict[str, Any]:
    """The ConfigMap with pods that wait and nothing to avoid."""
    at = AT + timedelta(seconds=written_at_seconds)
    body = avoided_domains.to_config_map({}, "rekindle", at, waiting)
    body["metadata"]["uid"] = "m"
    return body


def test_no_pod_waits_by_a_record_that_the_operator_does_not_renew(watched: Watched) -> None:
    watched.see("configmaps", waiting_record(0.0))
    watched.now = avoided_domains.VALID_SECONDS - 1
    assert (watched.known.gates, watched.known.view().waiting) == (True, {"bucket"})
    watched.now = avoided_domains.VALID_SECONDS
    watched.see("configmaps", waiting_record(0.0))
    known = watched.known
    assert (known.gates, known.view().waiting) == (False, set()), "it was not renewed"
    watched.see("configmaps", waiting_record(60.0))
    assert watched.known.gates
    watched.see("configmaps", waiting_record(61.0, ()))
    assert not watched.known.gates, "the incident is over"


@pytest.mark.parametrize(("age_seconds", "counts"), [(179, True), (180, False), (600, False)])
def test_by_the_first_record_no_pod_waits_longer_after_the_operator_has_gone(
    watched: Watched, age_seconds: float, counts: bool
) -> None:
    watched.see("configmaps", waiting_record(-age_seconds))
    assert watched.known.gates is counts
    watched.see("configmaps", waiting_record(-age_seconds))
    assert watched.known.gates is counts
    watched.now = 1.0
    assert not watched.known.gates


def test_no_pod_waits_when_the_record_is_gone(watched: Watched) -> None:
    watched.see("configmaps", waiting_record(0.0))
    watched.only("configmaps")
    assert not watched.known.gates


def test_only_the_one_config_map_is_asked_for(watched: Watched) -> None:
    scope = watched.watcher("configmaps").scope
    assert scope.namespace == "rekindle"
    assert scope.query == {"fieldSelector": f"metadata.name={avoided_domains.NAME}"}


def test_only_spark_applications_may_be_none_of_the_clusters_kinds(watched: Watched) -> None:
    optional = {name for name, item in watched.by_version.items() if item.optional}
    assert {name.rpartition("/")[2] for name in optional} == {"sparkapplications"}

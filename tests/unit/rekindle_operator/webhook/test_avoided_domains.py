"""The ConfigMap by which the operator tells the webhook what executors avoid."""

from datetime import UTC, datetime, timedelta

import pytest

from rekindle.model.errors import InputError
from rekindle_operator.detection.failure_domains import HOSTNAME, Domain
from rekindle_operator.webhook import avoided_domains

A, B = Domain("zone", "a"), Domain("zone", "b")
AT = datetime(2026, 11, 21, 17, tzinfo=UTC)


def test_what_is_written_is_what_is_read() -> None:
    avoided = {"pod/team/1": (A,), "pod/team/2": (A, B), "app/team/x": (A,)}
    written = avoided_domains.to_config_map(avoided, "rekindle", AT)
    assert written["metadata"] == {"name": avoided_domains.NAME, "namespace": "rekindle"}
    record = avoided_domains.from_config_map(written)
    assert (record.avoided, record.at) == (avoided, AT)


def test_a_renewal_is_another_version_of_the_object() -> None:
    written = [
        avoided_domains.to_config_map({"b": (A,)}, "rekindle", at)["data"]
        for at in (AT, AT + timedelta(seconds=1))
    ]
    assert written[0] != written[1]


def test_a_zone_with_all_its_applications_fits_into_an_object() -> None:
    uid = "0" * 36
    avoided = {f"pod/{'n' * 20}/{uid}-{number}": (A,) for number in range(20_000)}
    written = avoided_domains.to_config_map(avoided, "rekindle", AT)["data"][avoided_domains.KEY]
    assert len(written) < 1_000_000
    record = avoided_domains.from_config_map({"data": {avoided_domains.KEY: written}})
    assert len(record.avoided) == avoided_domains.BUCKETS_MAX


def test_a_record_of_the_release_before_is_read() -> None:
    written = '{"version":1,"at":"2026-11-21T17:00:00.000001+00:00","groups":[]}'
    record = avoided_domains.from_config_map({"data": {avoided_domains.KEY: written}})
    assert record.at == AT + timedelta(microseconds=1)


NO_ZONE = '{"version":1,"at":"2026-11-21T17:00:00","groups":[]}'


@pytest.mark.parametrize("written", [None, "no", "{}", NO_ZONE, NO_ZONE.replace("17:00", "noon")])
def test_what_says_nothing_is_told_with_a_remedy(written: str | None) -> None:
    data = {} if written is None else {avoided_domains.KEY: written}
    with pytest.raises(InputError, match=r"is no record .*; delete the ConfigMap"):
        avoided_domains.from_config_map({"data": data})


def test_pods_that_wait_are_in_the_same_object_and_only_while_there_are_any() -> None:
    quiet = avoided_domains.to_config_map({}, "rekindle", AT)
    assert avoided_domains.waiting_buckets(quiet) == frozenset()
    assert list(quiet["data"]) == [avoided_domains.KEY]
    written = avoided_domains.to_config_map({"a": (A,)}, "rekindle", AT, ["b", "a"])
    assert avoided_domains.waiting_buckets(written) == {"a", "b"}
    assert avoided_domains.from_config_map(written).avoided == {"a": (A,)}


def test_both_records_of_a_large_cluster_fit_into_one_object() -> None:
    uid = "0" * 36
    buckets = [f"pod/{'n' * 20}/{uid}-{number}" for number in range(20_000)]
    data = avoided_domains.to_config_map(dict.fromkeys(buckets, (A,)), "r", AT, buckets)["data"]
    assert sum(map(len, data.values())) < 2**20


def test_where_each_application_has_lost_other_nodes_there_are_all_domains_and_fewer_nodes() -> (
    None
):
    """Five hundred applications of a cluster that has lost a zone of 300 nodes."""
    nodes = [
        Domain(HOSTNAME, f"ip-10-0-{number}-17.eu-west-1.compute.internal") for number in range(300)
    ]
    avoided = {
        f"pod/team/{number}": tuple(
            sorted([A, *nodes[number % 150 : number % 150 + 120 + number % 7]])
        )
        for number in range(500)
    }
    data = avoided_domains.to_config_map(avoided, "rekindle", AT)["data"]
    assert len(data[avoided_domains.KEY]) < 1_000_000
    found = avoided_domains.from_config_map({"data": data}).avoided
    assert found.keys() == avoided.keys()
    assert all(A in domains and set(domains) <= set(avoided[one]) for one, domains in found.items())
    assert all(len(domains) > 1 for domains in found.values())


def test_all_nodes_of_an_application_are_named_where_they_fit() -> None:
    nodes = tuple(Domain(HOSTNAME, f"node-{number:04}") for number in range(3_000))
    written = avoided_domains.to_config_map({"b": nodes}, "rekindle", AT)
    assert avoided_domains.from_config_map(written).avoided == {"b": nodes}


def test_names_as_long_as_they_may_be_fit_into_the_object() -> None:
    buckets = [f"application/{'n' * 63}/{number:0253d}" for number in range(10_000)]
    data = avoided_domains.to_config_map(dict.fromkeys(buckets, (A,)), "r", AT, buckets)["data"]
    assert sum(map(len, data.values())) < 1_000_000
    assert avoided_domains.from_config_map({"data": data}).avoided.keys() <= {*buckets}
    assert avoided_domains.waiting_buckets({"data": data}) <= {*buckets}


def test_a_bad_record_of_pods_that_wait_is_told_with_a_remedy() -> None:
    with pytest.raises(InputError, match=r"waiting.json: is no record .*; delete the ConfigMap"):
        avoided_domains.waiting_buckets({"data": {avoided_domains.WAITING_KEY: "no"}})

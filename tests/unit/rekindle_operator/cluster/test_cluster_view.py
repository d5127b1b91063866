"""What is known of the Recoveries of a namespace."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from operator_world import APACHE, FLIGHTS, KUBEFLOW, tell

from rekindle.protocol.store_paths import Place
from rekindle_operator.api import recovery_resource
from rekindle_operator.api.recovery_resource import (
    ApplicationReference,
    Recovery,
    RecoverySpec,
    RecoveryStatus,
)
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.policies.effective_policy import Effective
from rekindle_testing.operator_builders import make_class, make_policy


def recovery(namespace: str, application: str, incident: int) -> Recovery:
    spec = RecoverySpec(ApplicationReference("Driver", application), incident, "all", "standard")
    return recovery_resource.from_object(recovery_resource.to_object(namespace, spec))


def test_a_namespace_has_the_applications_with_recoveries_until_the_last_is_gone() -> None:
    known = ClusterView()
    flights, trains = Place("europe", "flights"), Place("europe", "trains")
    made = [
        recovery("europe", "flights", 1),
        recovery("europe", "flights", 2),
        recovery("europe", "trains", 1),
        recovery("asia", "flights", 1),
    ]
    for item in made:
        known.see_recovery(item)
    assert known.with_recoveries["europe"] == {flights, trains}
    known.take_changed()
    known.forget_recovery("europe", made[0].metadata.name)
    assert known.with_recoveries["europe"] == {flights, trains}
    assert known.take_changed() == {flights}
    known.forget_recovery("europe", made[1].metadata.name)
    assert known.with_recoveries["europe"] == {trains}
    assert flights not in known.recoveries
    known.forget_recovery("europe", "of-nobody")
    known.forget_recovery("nowhere", made[2].metadata.name)
    assert known.take_changed() == {flights}


def test_a_class_that_is_not_for_its_namespace_any_more_holds_for_no_policy_there() -> None:
    known = ClusterView()
    policy = make_policy("all", namespace="flights", className="gold")
    known.see_policy(policy)
    known.see_class(make_class("gold", allowedNamespaces=["flights", "weather"]))
    assert isinstance(known.effective("flights/all"), Effective)
    known.stirred = False
    known.see_class(make_class("gold", allowedNamespaces=["weather"]))
    assert known.stirred
    assert known.effective("flights/all") is None
    known.see_class(make_class("gold", allowedNamespaces=["fl*"]))
    assert isinstance(known.effective("flights/all"), Effective)


LONG_AGO = datetime(2026, 1, 31, tzinfo=UTC)


def ended(incident: int, at: datetime | None) -> Recovery:
    status = RecoveryStatus(phase=None if at is None else "Recovered", ended_at=at)
    return msgspec.structs.replace(recovery("flights", "flights", incident), status=status)


def test_of_applications_without_objects_recoveries_are_past_that_ended_long_ago() -> None:
    known = ClusterView()
    made = (
        ended(1, LONG_AGO - timedelta(days=400)),
        ended(2, LONG_AGO),
        ended(3, LONG_AGO + timedelta(seconds=1)),
        ended(4, None),
    )
    for item in made:
        known.see_recovery(item)
    assert known.past(LONG_AGO) == [*made[:2]]


@pytest.mark.parametrize("left", [KUBEFLOW[0], KUBEFLOW[1], APACHE[0]])
def test_no_recovery_is_past_of_an_application_with_a_driver_or_a_spark_application(
    left: dict[str, object],
) -> None:
    known = ClusterView()
    known.see_recovery(ended(1, LONG_AGO))
    assert known.past(LONG_AGO)
    tell(known.registry, left)
    assert known.application(FLIGHTS) is not None
    assert known.past(LONG_AGO) == []

"""The registry: what an event touches, and that no order of events matters."""

from typing import Any

import spark_objects as objects
from hypothesis import given
from hypothesis import strategies as st
from operator_world import (
    APACHE,
    DRIVERS,
    FLIGHTS,
    KUBEFLOW,
    RESOURCES,
    application,
    numbers,
    policy,
    tell,
    told,
    untell,
)
from spark_objects import Body

from rekindle.protocol.store_paths import Place
from rekindle_operator.api import recovery_policy
from rekindle_operator.api.recovery_policy import RecoveryPolicy
from rekindle_operator.cluster.cluster_cache import ClusterCache
from rekindle_operator.cluster.pods import APPLICATION_LABEL


def test_only_what_an_event_touches_is_looked_at_again() -> None:
    registry = told(*KUBEFLOW, *APACHE, objects.submitted_driver(app_name="etl"))
    assert registry.take_changed() == {FLIGHTS, Place("flights", "etl")}
    tell(registry, objects.submitted_executor(1))
    assert registry.take_changed() == {Place("flights", "etl")}
    tell(registry, objects.submitted_executor(1))
    tell(registry, objects.pod("web"))
    tell(registry, objects.node("node-1"))
    assert registry.take_changed() == frozenset()


def test_what_is_written_to_the_status_of_a_policy_changes_nothing() -> None:
    registry = told(policy(), *KUBEFLOW)
    registry.take_changed()
    record = {
        "metadata": {"name": "all", "namespace": "flights", "creationTimestamp": objects.at(0)},
        "spec": {"selector": DRIVERS | RESOURCES, "paused": True},
        "status": {"applicationsSelected": 1},
    }
    registry.see_policy(recovery_policy.from_object(record))
    assert registry.take_changed() == frozenset()


def test_a_policy_that_changes_what_it_selects_is_looked_at_again() -> None:
    registry = told(policy(), *KUBEFLOW)
    assert application(registry).policy == "flights/all"
    tell(registry, policy(**DRIVERS))
    assert application(registry).policy == ""


def test_two_applications_with_one_run_share_no_executor() -> None:
    """Somebody has given both the same spark.app.id; it goes to the newest driver before it."""
    registry = told(objects.submitted_driver(), objects.set_executor(0, known="1"))
    assert numbers(application(registry).executors) == ["1"]
    same = {"spark-app-selector": "spark-s"}
    tell(registry, objects.submitted_driver("etl", start="u", extra=same, second=9))
    assert application(registry).executors == ()
    assert numbers(application(registry, Place("flights", "etl")).executors) == ["1"]
    registry.forget_pod("submitted-u")
    assert numbers(application(registry).executors) == ["1"]


def test_a_policy_reaches_what_is_left_of_an_application_by_its_name() -> None:
    registry = told(objects.kubeflow_executor(1))
    assert application(registry).policy == ""
    tell(registry, policy("it", sparkApplications={"names": ["flights"]}))
    assert FLIGHTS in registry.take_changed()
    assert application(registry).policy == "flights/it"


def test_after_a_list_whatever_it_does_not_hold_is_forgotten() -> None:
    registry = told(*KUBEFLOW, objects.node("node-1", "4"))
    registry.forget_pods_but({"driver-a", "uid-of-flights-a-exec-2"})
    assert numbers(application(registry).executors) == ["2"]
    room = registry.room("node-1", application(registry))
    assert room is not None
    assert room.others_millis == 1020


def test_a_late_word_of_an_old_pod_does_not_harm_the_new_one_of_its_name() -> None:
    registry = told(*KUBEFLOW, objects.kubeflow_driver(start="b", second=300))
    registry.forget_pod("driver-a")
    registry.forget_pod("driver-a")
    found = application(registry)
    assert found.driver is not None
    assert found.driver.uid == "driver-b"


# What may happen to some objects that have much to do with each other: each in several versions.
SAME_RUN = {"spark-app-selector": "spark-s"}
OBJECTS: list[list[Body | RecoveryPolicy]] = [
    [objects.kubeflow_application(), objects.kubeflow_application(labels={"team": "trains"})],
    [objects.apache_application(), objects.apache_application(state="ResourceReleased")],
    [objects.kubeflow_driver(), objects.kubeflow_driver(deleting=60, **objects.protected())],
    [
        objects.kubeflow_driver(start="b", second=90),
        objects.kubeflow_driver(start="b", phase="Failed"),
    ],
    [objects.apache_driver(second=20)],
    [objects.submitted_driver(), objects.submitted_driver(app_name="etl")],
    [objects.submitted_driver(start="t", second=40, extra={"tier": "gold", "pipeline": "etl"})],
    [objects.submitted_driver("etl", start="u", extra=SAME_RUN, second=15)],
    [objects.client_driver(second=10), objects.client_driver(labels={"spark-role": "driver"})],
    [objects.kubeflow_executor(1), objects.kubeflow_executor(1, deleting=70)],
    [objects.kubeflow_executor(1, start="b", node="node-2")],
    [objects.apache_executor(1), objects.apache_executor(1, phase="Failed")],
    [objects.submitted_executor(1), objects.submitted_executor(1, node="", phase="Pending")],
    [objects.set_executor(0), objects.set_executor(0, known="4")],
    [objects.client_executor(1, owned=False, extra={APPLICATION_LABEL: "flights"}, second=25)],
    [objects.client_executor(2, owned=False, extra={APPLICATION_LABEL: "etl"}, second=60)],
    [objects.pod("web"), objects.pod("web", node="node-2"), objects.pod("web", phase="Succeeded")],
    [policy("a"), policy("a", second=7, **RESOURCES)],
    [
        policy(
            "b",
            second=5,
            drivers={"labelSelector": {"matchLabels": {"tier": "gold"}}, "nameLabel": "pipeline"},
        )
    ],
]
NODES = [objects.node("node-1"), objects.node("node-2")]
# An object, and its version; None when it is gone.
EVENTS = st.lists(
    st.integers(0, len(OBJECTS) - 1).flatmap(
        lambda number: st.tuples(
            st.just(number), st.none() | st.integers(0, len(OBJECTS[number]) - 1)
        )
    ),
    max_size=40,
)


def everything_known(registry: ClusterCache) -> dict[str, object]:
    found: dict[str, object] = {"nameless": registry.nameless("flights")}
    for name in ("flights", "etl"):
        joined = registry.application(Place("flights", name))
        found[name] = joined
        if joined is not None:
            found[f"{name} rooms"] = [registry.room(node, joined) for node in ("node-1", "node-2")]
    return found | {"places": registry.places()}


@given(EVENTS, st.randoms(use_true_random=False))
def test_any_order_of_events_gives_the_same_join(
    events: list[tuple[int, int | None]], chance: Any
) -> None:
    """Of each object the last word counts; what was told between has left nothing behind."""
    registry = told(*NODES)
    before = everything_known(registry)
    for number, version in events:
        registry.take_changed()
        versions = OBJECTS[number]
        if version is None:
            untell(registry, versions[0])
        else:
            tell(registry, versions[version])
        for place in (FLIGHTS, Place("flights", "etl")):
            there = registry.has_objects(place)
            assert there == (registry.application(place) is not None)
        now = everything_known(registry)
        changed = {place.application for place in registry.take_changed()}
        assert {name for name in ("flights", "etl") if now[name] != before[name]} <= changed
        before = now
    last = list(dict(events).items())
    chance.shuffle(last)
    anew = told(
        *(OBJECTS[number][version] for number, version in last if version is not None), *NODES
    )
    assert everything_known(anew) == before


@given(EVENTS)
def test_every_executor_belongs_to_one_application_at_most(
    events: list[tuple[int, int | None]],
) -> None:
    registry = told(*(OBJECTS[number][version or 0] for number, version in events))
    owned: list[str] = []
    for place in registry.places():
        found = application(registry, place)
        owned += [pod.uid for pod in (*found.executors, *found.earlier_executors)]
        assert all(
            pod.driver_uid in ("", found.driver.uid) for pod in found.executors if found.driver
        )
    assert len(owned) == len(set(owned))


@given(EVENTS)
def test_forgetting_all_leaves_nothing(events: list[tuple[int, int | None]]) -> None:
    registry = told(*(OBJECTS[number][version or 0] for number, version in events))
    for versions in OBJECTS:
        untell(registry, versions[0])
    assert registry == ClusterCache(
        _joined=registry._joined, _changed=registry._changed, _held=registry._held
    )
    assert not registry._held
    assert not any(registry.application(place) for place in registry.take_changed())


def test_a_pod_of_another_namespace_is_no_executor_whatever_owner_it_names() -> None:
    driver, executor = objects.submitted_driver(), objects.submitted_executor(1)
    place = Place("flights", "flights")
    registry = told(driver, executor)
    foreign = {**executor, "metadata": {**executor["metadata"]}}
    foreign["metadata"] |= {"namespace": "mallory", "name": "zzz", "uid": "foreign"}
    tell(registry, foreign)
    (found,) = application(registry, place).executors
    assert found.namespace == driver["metadata"]["namespace"]
    untell(registry, executor)
    assert application(registry, place).executors == ()

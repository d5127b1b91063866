"""Pods, SparkApplications and policies, joined to applications."""

from typing import Any

import pytest
import spark_objects as objects
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
)
from spark_objects import Body

from rekindle.protocol.store_paths import Place
from rekindle_operator.cluster import application_matching, pods
from rekindle_operator.cluster.pods import APPLICATION_LABEL
from rekindle_operator.policies import policy_status_writer
from rekindle_operator.policies.policy_selection import ProtectionReason


@pytest.mark.parametrize(
    ("everything", "kind", "group", "executors"),
    [
        pytest.param(
            KUBEFLOW, "SparkApplication", "sparkoperator.k8s.io", ["1", "2", "10"], id="kubeflow"
        ),
        pytest.param(APACHE, "SparkApplication", "spark.apache.org", ["1", "2"], id="apache"),
        pytest.param(
            (
                objects.submitted_driver(**objects.protected()),
                objects.submitted_executor(1),
                objects.submitted_executor(2),
            ),
            "Driver",
            "",
            ["1", "2"],
            id="spark-submit in cluster mode",
        ),
        pytest.param(
            (
                objects.submitted_driver(
                    app_name="etl", extra={APPLICATION_LABEL: "flights"}, **objects.protected()
                ),
                objects.submitted_executor(1),
            ),
            "Driver",
            "",
            ["1"],
            id="spark-submit with our label, which goes before Spark's",
        ),
        pytest.param(
            (objects.client_driver(**objects.protected()), objects.client_executor(1)),
            "Driver",
            "",
            ["1"],
            id="client mode with spark.kubernetes.driver.pod.name",
        ),
        pytest.param(
            (
                objects.client_driver(**objects.protected()),
                objects.client_executor(1, owned=False, extra={APPLICATION_LABEL: "flights"}),
            ),
            "Driver",
            "",
            ["1"],
            id="client mode without it, our label on both",
        ),
        pytest.param(
            (
                objects.submitted_driver(**objects.protected()),
                objects.set_executor(0, known="1"),
                objects.set_executor(1, known="2"),
            ),
            "Driver",
            "",
            ["1", "2"],
            id="executors of a StatefulSet",
        ),
    ],
)
def test_drivers_and_executors_of_every_kind_come_together(
    everything: tuple[Body, ...], kind: str, group: str, executors: list[str]
) -> None:
    found = application(told(*everything))
    assert (found.kind, found.group) == (kind, group)
    assert numbers(found.executors) == executors
    assert found.earlier_executors == found.earlier_drivers == ()
    assert found.footing is None
    assert found.protected


def test_executors_have_their_nodes_and_addresses() -> None:
    found = application(told(*KUBEFLOW))
    assert found.nodes == {"node-1", "node-2", "node-10"}
    assert [pod.ip for pod in found.executors] == ["10.0.1.1", "10.0.1.2", "10.0.1.10"]
    assert numbers(found.executors_on({"node-2", "node-10"})) == ["2", "10"]


def test_two_applications_of_one_name_in_two_namespaces_stay_apart() -> None:
    """Apache's operator gives both the same application id of Spark."""
    other: dict[str, Any] = {"namespace": "trains"}
    registry = told(
        *APACHE,
        objects.apache_driver(uid="other-driver", **other),
        objects.apache_executor(1, driver_uid="other-driver", uid="other-1", **other),
        objects.set_executor(0, start="t", known="9", **other),
    )
    assert registry.places() == {FLIGHTS, Place("trains", "flights")}
    assert numbers(application(registry).executors) == ["1", "2"]
    trains = application(registry, Place("trains", "flights"))
    assert [pod.uid for pod in trains.executors] == ["other-1"]


def test_a_driver_that_is_restarted_stays_the_same_application() -> None:
    """Kubeflow's driver has the same pod name each time, and another UID and submission."""
    registry = told(*KUBEFLOW)
    registry.forget_pod("driver-a")
    tell(registry, objects.kubeflow_driver(start="b", second=300))
    tell(registry, objects.kubeflow_executor(1, start="b", second=330, uid="new-1"))
    found = application(registry)
    assert found.driver is not None
    assert (found.driver.uid, found.driver.run) == ("driver-b", "spark-b")
    assert [pod.uid for pod in found.executors] == ["new-1"]
    assert numbers(found.earlier_executors) == ["1", "2", "10"]
    assert found.orphans == found.earlier_executors


def test_executors_are_no_orphans_before_another_driver_is_there_nor_when_they_are_younger() -> (
    None
):
    registry = told(*KUBEFLOW)
    assert application(registry).orphans == ()
    registry.forget_pod("driver-a")
    assert application(registry).orphans == ()
    early = objects.kubeflow_executor(1, start="c", second=400, uid="of-one-not-seen-yet")
    tell(registry, objects.kubeflow_driver(start="b", second=300))
    tell(registry, early)
    assert "of-one-not-seen-yet" not in [pod.uid for pod in application(registry).orphans]


def test_while_the_old_driver_hangs_on_a_lost_node_the_new_one_is_the_driver() -> None:
    registry = told(
        objects.apache_driver(deleting=200, **objects.protected()),
        objects.apache_executor(1, deleting=200),
        objects.apache_driver(attempt=1, second=240, **objects.protected()),
        objects.apache_executor(1, attempt=1, second=260, uid="new-1"),
    )
    found = application(registry)
    assert found.driver is not None
    assert found.driver.uid == "apache-driver-1"
    assert [pod.uid for pod in found.earlier_drivers] == ["apache-driver-0"]
    assert [pod.uid for pod in found.executors] == ["new-1"]
    assert [pod.name for pod in found.earlier_executors] == ["flights-0-exec-1"]
    assert found.orphans == (), "the old one may be alive behind a partition"
    assert found.footing is None


def test_with_its_driver_gone_a_resource_still_has_its_executors_and_no_driver() -> None:
    registry = told(*KUBEFLOW)
    registry.forget_pod("driver-a")
    found = application(registry)
    assert (found.driver, found.executors) == (None, ())
    assert numbers(found.earlier_executors) == ["1", "2", "10"]
    assert (found.kind, found.footing) == ("SparkApplication", ProtectionReason.NO_DRIVER)
    assert found.resource is not None
    assert found.resource.restart_policy == "Always"


def test_executors_are_force_deleted_by_node_and_drivers_never() -> None:
    registry = told(*KUBEFLOW, objects.kubeflow_executor(7, start="z", node="node-1"))
    there = application(registry).executors_on({"node-1"})
    assert [pod.role for pod in there] == ["executor", "executor"]
    assert numbers(there) == ["1", "7"]


def test_a_resource_made_anew_does_not_inherit_executors_by_the_id_that_comes_again() -> None:
    registry = told(
        objects.apache_driver(uid="second", second=600),
        objects.apache_executor(1, driver_uid="first", second=610),
        objects.apache_executor(1, driver_uid="second", uid="new-1", second=620),
    )
    found = application(registry)
    assert [pod.uid for pod in found.executors] == ["new-1"]
    assert numbers(found.earlier_executors) == ["1"]


def test_executors_that_no_pod_owns_go_to_the_newest_driver_before_them() -> None:
    def executor(number: int, second: int) -> Body:
        extra = {APPLICATION_LABEL: "flights"}
        return objects.client_executor(number, owned=False, extra=extra, second=second)

    found = application(
        told(
            executor(1, 5),
            objects.client_driver("c", second=10, deleting=100),
            executor(2, 20),
            objects.client_driver("d", second=110),
            executor(3, 130),
        )
    )
    assert numbers(found.executors) == ["3"]
    assert numbers(found.earlier_executors) == ["1", "2"]


def test_of_a_set_of_executors_the_run_tells_whose_they_are() -> None:
    found = application(
        told(
            objects.submitted_driver(start="s"),
            objects.submitted_driver(start="t", second=10),
            objects.set_executor(0, start="s", known="1", second=50),
            objects.set_executor(0, start="t", known="2", second=50),
        )
    )
    assert numbers(found.executors) == ["2"]
    assert numbers(found.earlier_executors) == ["1"]


def test_the_run_counts_among_executors_that_only_name_their_application() -> None:
    extra = {APPLICATION_LABEL: "flights"}
    found = application(
        told(
            objects.submitted_driver(start="s", extra=extra, deleting=40),
            objects.submitted_driver(start="t", extra=extra, second=10),
            objects.client_executor(1, start="s", owned=False, extra=extra, second=50),
            objects.client_executor(2, start="t", owned=False, extra=extra, second=50),
        )
    )
    assert numbers(found.executors) == ["2"]
    assert numbers(found.earlier_executors) == ["1"]


def test_the_submission_counts_where_old_spark_gives_executors_another_run() -> None:
    found = application(
        told(
            objects.kubeflow_driver(start="a", deleting=40),
            objects.kubeflow_driver(start="b", second=10),
            objects.kubeflow_executor(
                1, start="a", owned=False, run="spark-application-1", second=50
            ),
            objects.kubeflow_executor(
                2, start="b", owned=False, run="spark-application-2", second=50
            ),
        )
    )
    assert numbers(found.executors) == ["2"]
    assert numbers(found.earlier_executors) == ["1"]


def test_an_executor_that_has_ended_is_none_any_more() -> None:
    state = {"name": "spark-kubernetes-executor", "state": {"terminated": {"exitCode": 0}}}
    ended = objects.kubeflow_executor(1, status={"containerStatuses": [state]})
    assert numbers(application(told(*KUBEFLOW, ended)).executors) == ["2", "10"]


@pytest.mark.parametrize(
    "driver",
    [
        pytest.param(objects.submitted_driver(app_name=""), id="a name of which nothing was left"),
        pytest.param(objects.client_driver(labels={"spark-role": "driver"}), id="no name"),
        pytest.param(objects.client_driver(labels={APPLICATION_LABEL: ""}), id="an empty name"),
    ],
)
def test_a_driver_that_nothing_names_belongs_to_no_application_and_is_told(driver: Body) -> None:
    registry = told(policy(), driver)
    assert registry.places() == frozenset()
    (nameless,) = registry.nameless("flights")
    entry = policy_status_writer.of_nameless(nameless)
    assert (entry.protected, entry.reason) == (False, "NameMissing")
    assert entry.message == (
        f"Driver {nameless.name} has no label with its name; give it rekindle.dev/application."
    )


def test_a_policy_says_which_label_names_its_drivers() -> None:
    by_app: dict[str, Any] = {
        "drivers": {"labelSelector": {"matchLabels": {"tier": "gold"}}, "nameLabel": "pipeline"}
    }
    registry = told(
        objects.submitted_driver(extra={"tier": "gold", "pipeline": "departures"}),
        objects.submitted_executor(1),
    )
    assert registry.places() == {FLIGHTS}
    registry.see_policy(policy("gold", **by_app))
    departures = Place("flights", "departures")
    assert registry.places() == {departures}
    assert registry.application(FLIGHTS) is None
    assert numbers(application(registry, departures).executors) == ["1"]
    assert application(registry, departures).policy == "flights/gold"
    registry.forget_policy("flights", "gold")
    assert registry.places() == {FLIGHTS}


def test_a_spark_application_is_not_renamed_by_a_policy_for_drivers() -> None:
    named = {**DRIVERS["drivers"], "nameLabel": "spark-version"}
    registry = told(policy(drivers=named), *KUBEFLOW)
    assert registry.places() == {FLIGHTS}
    assert application(registry).policy == ""


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        (RESOURCES, True),
        ({"sparkApplications": {"names": ["flights"]}}, True),
        ({"sparkApplications": {"labelSelector": {"matchLabels": {"team": "flights"}}}}, True),
        ({"sparkApplications": {"labelSelector": {"matchLabels": {"team": "trains"}}}}, False),
        ({"sparkApplications": {"groups": ["spark.apache.org"], "labelSelector": {}}}, False),
        (DRIVERS, False),
    ],
)
def test_a_policy_selects_a_spark_application_by_its_own_labels_and_name(
    selector: dict[str, Any], selects: bool
) -> None:
    found = application(told(*KUBEFLOW, policy("it", **selector)))
    assert found.policy == ("flights/it" if selects else "")


def test_of_two_policies_the_older_holds_and_the_other_is_told() -> None:
    found = application(told(policy("b", second=9), policy("a", second=10), *KUBEFLOW))
    assert (found.policy, found.overlapping) == ("flights/b", ("flights/a",))


def test_a_policy_of_another_namespace_selects_nothing_here() -> None:
    assert application(told(policy(namespace="trains"), *KUBEFLOW)).policy == ""


def test_a_name_still_selects_a_resource_that_nobody_has_seen() -> None:
    by_name = policy(sparkApplications={"names": ["flights"]})
    found = application(told(*KUBEFLOW[1:], by_name))
    assert (found.resource, found.policy) == (None, "flights/all")


SECOND = objects.submitted_driver(start="t", second=9, **objects.protected())


@pytest.mark.parametrize(
    ("everything", "footing", "protected", "message"),
    [
        ((objects.kubeflow_application(),), "NoDriver", False, "There is no driver's pod."),
        (
            (objects.kubeflow_driver(phase="Failed"),),
            "DriverEnded",
            False,
            "The newest driver has ended (flights-driver).",
        ),
        (
            (objects.kubeflow_driver(phase="Pending", node="", ip=""),),
            "DriverPending",
            False,
            "The driver's pod does not run yet (flights-driver).",
        ),
        (
            (objects.kubeflow_driver(),),
            "SidecarMissing",
            False,
            "Driver flights-driver runs without its sidecar; start it again with the webhook up.",
        ),
        (
            (objects.kubeflow_driver(**objects.protected(ready=False)),),
            "SidecarStarting",
            False,
            "The driver's sidecar is not ready (flights-driver).",
        ),
        (
            (objects.submitted_driver(), SECOND),
            "NameShared",
            True,
            "Several go by this name (drivers: flights-s-driver, flights-t-driver); "
            "give each its own.",
        ),
        (
            (*KUBEFLOW, objects.apache_application()),
            "NameShared",
            True,
            "Several go by this name (drivers: flights-driver); give each its own.",
        ),
        ((objects.submitted_driver(deleting=8), SECOND), None, True, None),
        ((objects.submitted_driver(phase="Failed"), SECOND), None, True, None),
        ((*KUBEFLOW, objects.apache_application(state="ResourceReleased")), None, True, None),
    ],
)
def test_what_is_wrong_is_said_with_a_reason(
    everything: tuple[Body, ...], footing: str | None, protected: bool, message: str | None
) -> None:
    entry = policy_status_writer.of_application(application(told(*everything)))
    assert (entry.reason, entry.protected, entry.message) == (footing, protected, message)
    assert entry.name == "flights"


def test_a_driver_of_another_namespace_is_nobodys_driver() -> None:
    driver, executor = objects.submitted_driver(), objects.submitted_executor(1)
    foreign = {**executor, "metadata": {**executor["metadata"], "namespace": "mallory"}}
    seen = [pods.pod_seen(body) for body in (driver, executor, foreign)]
    its, own, others = (item for item in seen if isinstance(item, pods.PodSeen))
    assert application_matching.driver_of(own, (its,)) == its
    assert application_matching.driver_of(others, (its,)) is None
    assert application_matching.bucket(others) not in application_matching.buckets(its, None)

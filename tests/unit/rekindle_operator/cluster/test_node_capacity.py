"""Which pods a driver's report means, and what of their nodes' CPU is free for them."""

import pytest
import spark_objects as objects
from operator_world import KUBEFLOW, application, told
from spark_objects import Body

from rekindle.protocol import NodeSeen
from rekindle_operator.cluster import nodes as cluster_nodes
from rekindle_operator.detection.node_inventory import locate


@pytest.mark.parametrize(
    ("reported", "located"),
    [
        pytest.param({"10.0.1.2": "2.0"}, {"10.0.1.2": "2"}, id="by executor id"),
        pytest.param({"10.0.1.2": "2.3"}, {"10.0.1.2": "2"}, id="after its host had relapses"),
        pytest.param({"node-2": "2.0"}, {"node-2": "2"}, id="a node called by its name"),
        pytest.param({"10.0.1.2": "1.0"}, {}, id="an address that is another executor's"),
        pytest.param(
            {"10.0.1.2": "77.0"}, {}, id="an executor that no pod has, at a known address"
        ),
        pytest.param({"10.9.9.9": "2.0"}, {}, id="an address that the pod does not have"),
        pytest.param({"10.0.1.2": "plain"}, {"10.0.1.2": "2"}, id="no executor id, by address"),
        pytest.param({"node-2": "plain"}, {"node-2": "2"}, id="no executor id, by node"),
        pytest.param({"192.168.0.9": "plain"}, {}, id="two pods in the network of one node"),
        pytest.param({"[fd00::1:3]": "3.0"}, {"[fd00::1:3]": "3"}, id="an address of version 6"),
    ],
)
def test_nodes_of_a_report_are_found_among_the_executors(
    reported: dict[str, str], located: dict[str, str]
) -> None:
    registry = told(
        objects.kubeflow_driver(),
        objects.kubeflow_executor(1),
        objects.kubeflow_executor(2),
        objects.kubeflow_executor(3, ip="fd00:0:0::1:3"),
        objects.kubeflow_executor(4, ip="192.168.0.9"),
        objects.kubeflow_executor(5, ip="192.168.0.9"),
    )
    seen = {name: NodeSeen(incarnation=its, capacity_percent=100) for name, its in reported.items()}
    found = locate(seen, application(registry).executors)
    assert {name: pod.executor_id for name, pod in found.pods.items()} == located
    assert set(found.unknown) == reported.keys() - located.keys()


def test_an_executor_whose_id_spark_never_labels_is_found_by_its_address() -> None:
    registry = told(objects.submitted_driver(), *(objects.set_executor(n) for n in (0, 1)))
    seen = {"10.0.1.1": NodeSeen(incarnation="1.0", capacity_percent=100)}
    found = locate(seen, application(registry).executors)
    assert found.pods["10.0.1.1"].name == "spark-s-spark-s-0-1"


def test_lost_nodes_are_told_in_the_words_of_the_report() -> None:
    registry = told(*KUBEFLOW)
    seen = {
        f"10.0.1.{n}": NodeSeen(incarnation=f"{n}.0", capacity_percent=100) for n in (1, 2, 10, 11)
    }
    found = locate(seen, application(registry).executors)
    assert found.on({"node-1", "node-10", "node-77"}) == ("10.0.1.1", "10.0.1.10")
    assert found.unknown == ("10.0.1.11",)


def test_what_other_pods_have_requested_is_never_planned_on() -> None:
    registry = told(
        objects.node("node-1", "4"),
        *KUBEFLOW,
        objects.pod("web", node="node-1", containers=(objects.container("main", "500m"),)),
        objects.pod("done", node="node-1", phase="Succeeded"),
        objects.pod("waiting", node=""),
    )
    room = registry.room("node-1", application(registry))
    assert room is not None
    # The driver is there too: it takes 1 core, and its sidecar 20m.
    assert (room.capacity_millis, room.others_millis) == (4000, 1520)
    assert room.free_percent == 248.0
    registry.forget_pod("uid-of-flights-web")
    room = registry.room("node-1", application(registry))
    assert room is not None
    assert room.free_percent == 298.0


def test_a_node_on_which_nothing_of_ours_runs_has_what_others_leave() -> None:
    registry = told(objects.node("node-9", "2"), *KUBEFLOW, objects.pod("web", node="node-9"))
    room = registry.room("node-9", application(registry))
    assert room is not None
    assert room.free_percent == 100.0
    registry.forget_node("node-9")
    assert registry.room("node-9", application(registry)) is None


def test_an_overcommitted_node_has_no_room() -> None:
    registry = told(objects.node("node-1", "1"), *KUBEFLOW)
    room = registry.room("node-1", application(registry))
    assert room is not None
    assert room.free_percent == 0.0


def test_executors_on_one_node_share_its_room_by_their_requests_and_up_to_their_limits() -> None:
    def spark(cpu: str, limit: str | None = None) -> tuple[Body, ...]:
        made = objects.container("spark-kubernetes-executor", cpu)
        if limit is not None:
            made["resources"]["limits"] = {"cpu": limit}
        return (made,)

    registry = told(
        objects.node("node-5", "8"),
        objects.kubeflow_driver(),
        objects.kubeflow_executor(1, node="node-5", containers=spark("1")),
        objects.kubeflow_executor(2, node="node-5", containers=spark("2", "3")),
        objects.kubeflow_executor(3, node="node-5", containers=spark("2"), deleting=99),
    )
    found = application(registry)
    room = registry.room("node-5", found)
    assert room is not None
    assert room.free_percent == 600.0
    by_number = {pod.uid: pod.executor_id for pod in found.executors}
    shares = cluster_nodes.shares(room, found.executors)
    assert {by_number[uid]: percent for uid, percent in shares.items()} == {"1": 200.0, "2": 300.0}


def test_executors_that_request_nothing_share_alike() -> None:
    registry = told(
        objects.node("node-5", "2"),
        objects.kubeflow_driver(),
        *(objects.kubeflow_executor(n, node="node-5", containers=({"name": "e"},)) for n in (1, 2)),
    )
    found = application(registry)
    room = registry.room("node-5", found)
    assert room is not None
    assert list(cluster_nodes.shares(room, found.executors).values()) == [100.0, 100.0]


def test_a_plan_gets_no_more_than_others_leave_and_no_more_than_the_driver_says() -> None:
    def seen(percent: float) -> NodeSeen:
        return NodeSeen(incarnation="1.0", capacity_percent=percent)

    nodes = {"a": seen(200.0), "b": seen(200.0), "c": seen(50.0), "d": seen(5.0)}
    found = cluster_nodes.capped(nodes, {"a": 137.0, "b": 300.0, "c": 49.9999999, "d": 2.0})
    assert {name: node.capacity_percent for name, node in found.items()} == {
        "a": 130.0,
        "b": 200.0,
        "c": 50.0,
        "d": 5.0,
    }
    assert cluster_nodes.capped(nodes, {"a": 200.0}) is nodes

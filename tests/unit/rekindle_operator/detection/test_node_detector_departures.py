"""Node objects that go: deleted, replaced, announced."""

import pytest
from detection_stories import (
    ONE_LOST,
    ONLY_SUSPECTED,
    Story,
    both,
    change,
    check,
    delete,
    driver,
    lose,
    machine,
    mend,
    restore,
)

from rekindle.coordination import Driver

SHUTDOWN = {"ready": "False", "reason": "KubeletNotReady", "message": "node is shutting down"}

DELETED = [
    Story(
        "a node is deleted without announcement, though its driver hears executors there",
        [(32, delete("n1"))],
        ["35 confirmed n1 to a: node-deleted"],
    ),
    Story(
        "a node without executors of ours is deleted",
        [(32, delete("n6"))],
        ["35 confirmed n6: node-deleted"],
    ),
    Story(
        "a node that was lost is deleted later: once is enough",
        [(12, lose("n1")), (52, delete("n1"))],
        ONE_LOST,
    ),
    Story(
        "its pods are gone with it",
        [(32, both(delete("n1"), driver(executors={"n2", "n3"})))],
        ["35 confirmed n1 to a: node-deleted"],
    ),
    Story(
        "a node is deleted before we have looked for a full period",
        [(7, delete("n1"))],
        ["20 confirmed n1 to a: node-deleted"],
    ),
    Story(
        "another machine takes a node's name",
        [(32, both(delete("n1"), lambda world: world.add("n1", phase=3.0)))],
        ["35 confirmed n1 to a: node-replaced", "45 returned n1 to a: node-back"],
    ),
    Story(
        "a node is deleted before that, and the list of nodes is not known for a while",
        [(7, delete("n1")), (12, mend(lists=False)), (42, mend(lists=True))],
        ["45 confirmed n1 to a: node-deleted"],
    ),
    Story(
        "a lost node is deleted, and a new one gets its name",
        [
            (12, lose("n1")),
            (52, delete("n1")),
            (80, lambda world: world.add("n1", phase=1.0)),
        ],
        [*ONE_LOST, "80 returned n1 to a: node-back"],
    ),
    Story(
        "a node that nobody used is deleted, and a new one gets its name",
        [(32, delete("n6")), (80, lambda world: world.add("n6", phase=1.0))],
        ["35 confirmed n6: node-deleted"],
    ),
    Story(
        "another machine takes a suspected node's name",
        [
            (12, machine("n1", kubelet=False)),
            (42, both(delete("n1"), lambda world: world.add("n1", phase=1.0))),
        ],
        [
            *ONLY_SUSPECTED,
            "45 confirmed n1 to a: node-replaced",
            "55 returned n1 to a: node-back",
        ],
    ),
    Story(
        "another machine takes a dead node's name, and has a period of its own",
        [(12, lose("n1")), (27, both(delete("n1"), lambda world: world.add("n1", phase=99.0)))],
        ["30 confirmed n1 to a: node-replaced", "50 suspected n1: suspected-failure"],
    ),
    Story(
        "another machine takes a node's name while we do not see, and dies",
        [
            (12, mend(sees=False, writable=False)),
            (40, both(delete("n1"), lambda world: world.add("n1"))),
            (50, lose("n1")),
            (72, mend(sees=True, writable=True)),
        ],
        ["95 suspected n1: suspected-failure", "95 confirmed n1 to a: node-replaced"],
    ),
    Story(
        "an executor is first seen on a node as that is deleted",
        [(32, both(delete("n6"), driver(executors={"n2", "n6"})))],
        ["35 confirmed n6 to a: node-deleted"],
    ),
    Story(
        "an executor is first seen on a node as another machine takes its name",
        [
            (
                32,
                both(
                    delete("n6"),
                    lambda world: world.add("n6", phase=1.0),
                    driver(executors={"n2", "n6"}),
                ),
            ),
        ],
        ["35 confirmed n6: node-replaced", "45 returned n6: node-back"],
    ),
    Story(
        "an executor stands on a node that no list has",
        [(12, driver(executors={"n2", "gone"}))],
        ["35 confirmed gone to a: node-deleted"],
    ),
    Story(
        "the list of pods is ahead of the list of nodes",
        [
            (12, driver(executors={"n2", "n7"})),
            (22, lambda world: world.add("n7", phase=1.0)),
        ],
        [],
    ),
]

ANNOUNCED = [
    Story(
        "the autoscaler removes a node",
        [(32, change("n1", taints=("ToBeDeletedByClusterAutoscaler",))), (42, delete("n1"))],
        ["45 departed n1 to a: departure-announced"],
    ),
    Story(
        "Karpenter disrupts a node",
        [(32, change("n1", taints=("karpenter.sh/disrupted",))), (42, delete("n1"))],
        ["45 departed n1 to a: departure-announced"],
    ),
    Story(
        "Karpenter before 1.0 disrupts a node",
        [(32, change("n1", taints=("karpenter.sh/disruption",))), (42, delete("n1"))],
        ["45 departed n1 to a: departure-announced"],
    ),
    Story(
        "a node shuts down in order",
        [(12, change("n1", **SHUTDOWN)), (22, lose("n1"))],
        ["40 departed n1 to a: departure-announced"],
    ),
    Story(
        "a node shuts down in order, and nothing says so any more when it is deleted",
        [
            (12, change("n1", **SHUTDOWN)),
            (22, both(lose("n1"), driver(driver=Driver.SILENT))),
            (72, change("n1", ready="Unknown", message="Kubelet stopped posting node status.")),
            (90, delete("n1")),
        ],
        ["90 departed n1 to a: departure-announced"],
    ),
    Story(
        "a node that has shut down comes back, and dies",
        [
            (12, change("n1", **SHUTDOWN)),
            (22, lose("n1")),
            (62, both(restore("n1"), change("n1", ready="True", message=""))),
            (73, lose("n1")),
        ],
        [
            "40 departed n1 to a: departure-announced",
            "65 returned n1 to a: node-back",
            "95 suspected n1: suspected-failure",
            "95 confirmed n1 to a: driver-hears-nothing",
        ],
    ),
    Story(
        "a node without executors of ours shuts down, comes back, and dies",
        [
            (12, change("n5", **SHUTDOWN)),
            (22, lose("n5")),
            (62, both(restore("n5"), change("n5", ready="True", message=""))),
            (73, lose("n5")),
        ],
        ["95 suspected n5: suspected-failure"],
    ),
    Story(
        "a node shuts down, and the machine that takes its name never renews",
        [
            (12, change("n5", **SHUTDOWN)),
            (22, lose("n5")),
            (62, both(delete("n5"), lambda world: world.add("n5", phase=99.0))),
        ],
        ["65 departed n5: departure-announced", "85 suspected n5: suspected-failure"],
    ),
    Story(
        "a disrupted node falls silent before it is deleted",
        [
            (12, change("n1", taints=("karpenter.sh/disrupted",))),
            (22, lose("n1")),
            (62, delete("n1")),
        ],
        ["40 departed n1 to a: departure-announced"],
    ),
    Story(
        "a node is cordoned, drained and deleted",
        [
            (32, change("n1", unschedulable=True)),
            (40, driver(executors={"n2", "n3"})),
            (50, delete("n1")),
        ],
        ["50 departed n1: departure-announced"],
    ),
    Story(
        "a drained node is switched off",
        [
            (12, both(change("n1", unschedulable=True), driver(executors={"n2"}))),
            (22, lose("n1")),
        ],
        [],
    ),
    Story(
        "a cordoned node dies with its executors",
        [(12, change("n1", unschedulable=True)), (12, lose("n1"))],
        ONE_LOST,
    ),
    Story(
        "a cordoned node is deleted with its executors",
        [(32, change("n1", unschedulable=True)), (50, delete("n1"))],
        ["50 confirmed n1 to a: node-deleted"],
    ),
    Story(
        "somebody repairs a node that we suspect already",
        [
            (12, both(lose("n1"), driver(driver=Driver.SILENT))),
            (40, change("n1", taints=("karpenter.sh/disrupted",))),
            (60, delete("n1")),
        ],
        [*ONLY_SUSPECTED, "60 confirmed n1 to a: node-deleted"],
    ),
    Story(
        "a spot notice is no orderly departure",
        [
            (32, change("n1", taints=("aws-node-termination-handler/spot-itn",))),
            (42, delete("n1")),
        ],
        ["45 confirmed n1 to a: node-deleted"],
    ),
    Story(
        "an announcement is taken back, then the node dies",
        [
            (12, change("n1", taints=("karpenter.sh/disrupted",))),
            (32, change("n1", taints=())),
            (42, lose("n1")),
        ],
        ["60 suspected n1: suspected-failure", "60 confirmed n1 to a: driver-hears-nothing"],
    ),
    Story(
        "the last node goes as announced",
        [(32, change("n1", taints=("karpenter.sh/disrupted",))), (42, delete("n1"))],
        ["45 departed n1 to a: departure-announced"],
        count=1,
    ),
]


@pytest.mark.parametrize("story", [*DELETED, *ANNOUNCED], ids=lambda story: story.name)
def test_a_node_that_goes_is_lost_or_has_departed(story: Story) -> None:
    check(story)

"""Silent nodes: when they are suspected, and for whom they are lost."""

from dataclasses import replace

import pytest
from detection_stories import (
    CLEARED,
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
    restore,
)
from detection_world import RULES, Change, Team, cluster, follow, play, told

from rekindle.coordination import Driver
from rekindle.model.reasons import Reason
from rekindle_operator.detection import node_detector
from rekindle_operator.detection.detection_events import DetectionKind, DetectionReason

SILENT = [
    Story("nothing happens", [], []),
    Story("a machine dies", [(12, lose("n1"))], ONE_LOST),
    Story(
        "it dies just before it would renew: both clocks run at the same time",
        [(19, lose("n1"))],
        ["30 suspected n1: suspected-failure", "35 confirmed n1 to a: driver-hears-nothing"],
    ),
    Story(
        "all nodes of the application die, others live: a complete failure",
        [(12, lose("n1", "n2", "n3"))],
        [
            "25 suspected n3: suspected-failure",
            "30 suspected n1: suspected-failure",
            "30 confirmed n1 to a: driver-hears-nothing",
            "30 confirmed n3 to a: driver-hears-nothing",
            "35 suspected n2: suspected-failure",
            "35 confirmed n2 to a: driver-hears-nothing",
        ],
    ),
    Story(
        "a machine without executors of ours dies",
        [(12, lose("n5"))],
        ["30 suspected n5: suspected-failure"],
    ),
    Story(
        "a machine pauses for less than two intervals",
        [(12, lose("n1")), (27, restore("n1"))],
        [],
    ),
    Story(
        "a machine that was lost comes back",
        [(12, lose("n1")), (60, restore("n1"))],
        [*ONE_LOST, f"60 cleared n1: {CLEARED}", "60 returned n1 to a: node-back"],
    ),
    Story(
        "it is lost again after that",
        [(12, lose("n1")), (60, restore("n1")), (72, lose("n1"))],
        [
            *ONE_LOST,
            f"60 cleared n1: {CLEARED}",
            "60 returned n1 to a: node-back",
            "90 suspected n1: suspected-failure",
            "90 confirmed n1 to a: driver-hears-nothing",
        ],
    ),
    Story(
        "a kubelet stops while executors run on, and is started again",
        [
            (12, machine("n1", kubelet=False)),
            (22, change("n1", ready="Unknown")),
            (100, restore("n1")),
        ],
        [*ONLY_SUSPECTED, f"100 cleared n1: {CLEARED}"],
    ),
    Story(
        "executors are silent while the lease is renewed",
        [(12, driver(word={"n1": 99.0})), (12, change("n1", ready="False"))],
        [],
    ),
]

DRIVERS = [
    Story(
        "the driver is dead: Ready decides",
        [(12, both(lose("n1"), driver(driver=Driver.GONE))), (62, change("n1", ready="Unknown"))],
        [*ONLY_SUSPECTED, "65 confirmed n1 to a: node-not-ready"],
    ),
    Story(
        "the driver is dead and the kubelet stopped: Ready decides all the same",
        [(12, both(machine("n1", kubelet=False), driver(driver=Driver.GONE)))],
        ONLY_SUSPECTED,
    ),
    Story(
        "the driver is alive: Ready decides nothing",
        [(12, both(machine("n1", kubelet=False), change("n1", ready="Unknown")))],
        ONLY_SUSPECTED,
    ),
    Story(
        "the driver is silent and may be there",
        [(12, both(lose("n1"), change("n1", ready="Unknown"), driver(driver=Driver.SILENT)))],
        ONLY_SUSPECTED,
    ),
    Story(
        "the driver's word is too old",
        [(12, both(lose("n1"), driver(said_seconds_ago=10.5)))],
        ONLY_SUSPECTED,
    ),
    Story(
        "the driver has said nothing of the node",
        [(12, both(lose("n1"), driver(hears=False)))],
        ONLY_SUSPECTED,
    ),
    Story(
        "one driver hears nothing, another one still does",
        [
            (12, lose("n1")),
            (12, lambda world: world.teams.update(b=Team({"n1", "n4"}, word={"n1": 1.0}))),
            (52, lambda world: world.teams.update(b=Team({"n1", "n4"}, word={"n1": 15.0}))),
        ],
        [*ONE_LOST, "55 confirmed n1 to b: driver-hears-nothing"],
    ),
    Story(
        "an application that has ended loses nothing",
        [(12, both(lose("n1"), driver(driver=Driver.FINISHED))), (52, delete("n1"))],
        [*ONLY_SUSPECTED, "55 confirmed n1: node-deleted"],
    ),
]

LEASES = [
    Story(
        "a new node takes its time to get a lease and to be Ready, then dies",
        [
            (12, lambda world: world.add("n7", phase=40.0, ready="False")),
            (50, change("n7", ready="True")),
            (60, driver(executors={"n2", "n7"})),
            (63, lose("n7")),
        ],
        ["85 suspected n7: suspected-failure", "85 confirmed n7 to a: driver-hears-nothing"],
    ),
    Story(
        "a node never has a lease: Ready is all that it can say",
        [
            (12, lambda world: world.add("n7", leased=False)),
            (12, driver(executors={"n2", "n7"})),
            (46, lose("n7")),
            (46, change("n7", ready="Unknown")),
            (96, both(restore("n7"), change("n7", ready="True"))),
        ],
        [
            "65 suspected n7: suspected-failure",
            "65 confirmed n7 to a: driver-hears-nothing",
            f"100 cleared n7: {CLEARED}",
            "100 returned n7 to a: node-back",
        ],
    ),
    Story(
        "a lease goes away and comes back",
        [
            (12, machine("n1", leased=False)),
            (62, machine("n1", leased=True)),
        ],
        [*ONLY_SUSPECTED, f"70 cleared n1: {CLEARED}"],
    ),
    Story(
        "a lease that is renewed every 40 s gets 80 s",
        [(45, lose("n1"))],
        ["120 suspected n1: suspected-failure", "120 confirmed n1 to a: driver-hears-nothing"],
        before=machine("n1", interval=40.0, granted=40.0),
    ),
    Story(
        "a node's clock is ten minutes ahead, another one's behind",
        [(12, lose("n1"))],
        ONE_LOST,
        before=both(machine("n1", clock_ahead=600.0), machine("n2", clock_ahead=-600.0)),
    ),
]


@pytest.mark.parametrize("story", [*SILENT, *DRIVERS, *LEASES], ids=lambda story: story.name)
def test_silence_is_noticed_and_confirmed(story: Story) -> None:
    check(story)


def test_between_two_looks_a_drivers_word_may_confirm() -> None:
    world = cluster(6)
    turns = [*play(world, [(12, lose("n1")), (14, driver(word={"n1": 3.0}))], range(0, 31, 5))]
    state, last = turns[-1].after, turns[-1].observation
    assert told(turns[-1].verdicts) == ONLY_SUSPECTED
    later = replace(last.applications["a"], silent_seconds={"n1": 15.0})
    said = replace(last, leases=None, nodes=None, applications={"a": later})
    _, verdicts_then = node_detector.detect(state, said, 31.5, RULES)
    assert told(verdicts_then) == ["31.5 confirmed n1 to a: driver-hears-nothing"]


def test_a_driver_on_a_node_that_looks_lost_may_be_counted_as_gone() -> None:
    world = cluster(6)
    script: list[tuple[float, Change]] = [
        (12, lose("n5")),
        (12, machine("n6", kubelet=False)),
        (50, change("n5", ready="Unknown")),
    ]
    found = {
        turn.at: node_detector.looks_lost(turn.after, turn.at, RULES)
        for turn in play(world, script, range(0, 61, 5))
    }
    assert found[45] == frozenset()
    assert found[50] == {"n5"}


def test_a_look_that_is_old_says_nothing_of_drivers_either() -> None:
    script: list[tuple[float, Change]] = [(12, lose("n5")), (50, change("n5", ready="Unknown"))]
    state = [*play(cluster(6), script, range(0, 61, 5))][-1].after
    assert node_detector.looks_lost(state, 70.0, RULES) == {"n5"}
    assert node_detector.looks_lost(state, 70.0, RULES, ["n4", "n5", "unheard-of"]) == {"n5"}
    assert node_detector.looks_lost(state, 70.0, RULES, ["n4"]) == frozenset()
    assert node_detector.looks_lost(state, 80.0, RULES) == frozenset()


def test_verdicts_are_sentences_with_node_machine_and_cause() -> None:
    world = cluster(6)
    script: list[tuple[float, Change]] = [
        (12, lose("n1")),
        (32, delete("n2")),
        (42, change("n3", taints=("karpenter.sh/disrupted",))),
        (52, delete("n3")),
        (60, restore("n1")),
    ]
    found = follow(world, script, 60)
    assert [verdict.text for verdict in found] == [
        "The lease of node n1 has not changed for 20 s.",
        "Node n1 is lost to a: its lease has not changed for 20 s, and the driver has had nothing "
        "from its executors there for 18 s.",
        "Node n2 is lost to a: it was deleted without announcement.",
        "Node n3 has gone, announced by the taint karpenter.sh/disrupted.",
        "Node n1 has been heard of again after 30 s.",
        "Node n1 is back for a.",
    ]
    assert [verdict.uid for verdict in found] == ["n1-1", "n1-1", "n2-2", "n3-3", "n1-1", "n1-1"]


def test_losses_of_one_round_are_told_to_an_application_at_once() -> None:
    script = [(12.0, lose("n1", "n2", "n3"))]
    turns = [*play(cluster(6), script, range(0, 31, 5))]
    confirmed = [item for item in turns[-1].verdicts if item.kind is DetectionKind.CONFIRMED]
    assert [(item.application, item.node) for item in confirmed] == [("a", "n1"), ("a", "n3")]


def test_every_word_has_a_meaning_and_none_is_in_the_cores_list_already() -> None:
    for word in DetectionReason:
        assert word.value == word.name.lower().replace("_", "-")
        assert word.meaning
        assert "\n" not in word.meaning
    assert not {word.value for word in DetectionReason} & {word.value for word in Reason}

"""When it is us: every node looks lost, nobody can renew, or we were not looking."""

import pytest
from detection_stories import (
    ALL_SUSPECTED,
    CLEARED,
    ONLY_SUSPECTED,
    Story,
    both,
    change_all,
    check,
    driver,
    lose,
    machine,
    mend,
    restore,
)
from detection_world import RULES, cluster, follow, told

from rekindle_operator.detection import detection_input, node_detector
from rekindle_operator.detection.node_inventory import NodeInventory

OURSELVES = [
    Story(
        "all machines die at once, silent one after the other: held until one is back",
        [(12, lose("n1", "n2", "n3", "n4")), (100, restore("n1"))],
        [
            *ALL_SUSPECTED,
            f"100 cleared n1: {CLEARED}",
            "100 released: cluster-answers",
            "120 confirmed n2 to a: driver-hears-nothing",
            "120 confirmed n3 to a: driver-hears-nothing",
        ],
        count=4,
    ),
    Story(
        "the only machine dies",
        [(12, lose("n1"))],
        ["30 suspected n1: suspected-failure", "30 held: all-nodes-lost"],
        count=1,
    ),
    Story(
        "all machines die, and a new one is Ready",
        [
            (12, lose("n1", "n2", "n3")),
            (60, lambda world: world.add("n4", phase=1.0)),
        ],
        [
            "25 suspected n2: suspected-failure",
            "30 suspected n1: suspected-failure",
            "30 suspected n3: suspected-failure",
            "30 held: all-nodes-lost",
            "60 released: cluster-answers",
            "85 confirmed n1 to a: driver-hears-nothing",
            "85 confirmed n2 to a: driver-hears-nothing",
            "85 confirmed n3 to a: driver-hears-nothing",
        ],
        count=3,
    ),
    Story(
        "every node is NotReady, and all renew",
        [(12, change_all(6, ready="False"))],
        [],
    ),
    Story(
        "every node is NotReady, and one is silent while the others renew: only that one is lost",
        [(12, both(change_all(6, ready="Unknown"), lose("n1")))],
        [*ONLY_SUSPECTED, "30 confirmed n1 to a: driver-hears-nothing"],
    ),
    Story(
        "no kubelet can renew for a minute, and they come back one after the other",
        [(12, mend(writable=False)), (72, mend(writable=True))],
        [
            *ALL_SUSPECTED,
            f"75 cleared n4: {CLEARED}",
            "75 released: cluster-answers",
            f"80 cleared n1: {CLEARED}",
            f"80 cleared n2: {CLEARED}",
            f"80 cleared n3: {CLEARED}",
        ],
        count=4,
    ),
    Story(
        "the same, and no driver hears anything meanwhile",
        [
            (12, both(mend(writable=False), driver(word={"n1": 99.0, "n2": 99.0, "n3": 99.0}))),
            (72, mend(writable=True)),
        ],
        [
            *ALL_SUSPECTED,
            f"75 cleared n4: {CLEARED}",
            "75 released: cluster-answers",
            f"80 cleared n1: {CLEARED}",
            f"80 cleared n2: {CLEARED}",
            f"80 cleared n3: {CLEARED}",
        ],
        count=4,
    ),
    Story(
        "the API server is away for a minute: nobody renews, and we see nothing",
        [
            (12, mend(writable=False, sees=False, lists=False)),
            (12, driver(word={"n1": 99.0, "n2": 99.0, "n3": 99.0})),
            (72, mend(writable=True, sees=True, lists=True)),
        ],
        [],
    ),
    Story(
        "a machine dies while the API server is away: a full period, then it is lost",
        [
            (12, mend(writable=False, sees=False)),
            (40, lose("n1")),
            (72, mend(writable=True, sees=True)),
        ],
        ["95 suspected n1: suspected-failure", "95 confirmed n1 to a: driver-hears-nothing"],
    ),
    Story(
        "suspected before the API server goes away: still suspected, and the timer starts again",
        [
            (12, both(lose("n1"), driver(word={"n1": 0.0}))),
            (32, mend(sees=False)),
            (44, driver(word={"n1": 99.0})),
            (72, mend(sees=True)),
        ],
        [*ONLY_SUSPECTED, "95 confirmed n1 to a: driver-hears-nothing"],
    ),
    Story(
        "one look fails: no gap",
        [(12, lose("n1")), (22, mend(sees=False)), (27, mend(sees=True))],
        ["30 suspected n1: suspected-failure", "35 confirmed n1 to a: driver-hears-nothing"],
    ),
    Story(
        "kubelets are back before their nodes are Ready",
        [
            (12, lose("n1", "n2", "n3", "n4")),
            (62, change_all(4, ready="Unknown")),
            (100, restore("n1", "n2", "n3", "n4")),
        ],
        [
            *ALL_SUSPECTED,
            *(f"100 cleared n{number}: {CLEARED}" for number in (1, 2, 3, 4)),
            "100 released: cluster-answers",
        ],
        count=4,
        until=200.0,
    ),
    Story(
        "a gap in our own observation is no reason to let go",
        [
            (12, lose("n1", "n2", "n3", "n4")),
            (42, mend(sees=False)),
            (72, mend(sees=True)),
        ],
        ALL_SUSPECTED,
        count=4,
    ),
    Story(
        "a suspected node renews while the list of nodes is empty",
        [
            (12, machine("n1", kubelet=False)),
            (32, mend(empty_list=True)),
            (41, restore("n1")),
            (62, mend(empty_list=False)),
        ],
        [
            *ONLY_SUSPECTED,
            "35 held: all-nodes-lost",
            f"65 cleared n1: {CLEARED}",
            "65 released: cluster-answers",
        ],
    ),
    Story(
        "the list of nodes is empty for a while",
        [(32, mend(empty_list=True)), (52, mend(empty_list=False))],
        ["35 held: all-nodes-lost", "55 released: cluster-answers"],
    ),
]


@pytest.mark.parametrize("story", [*OURSELVES], ids=lambda story: story.name)
def test_what_may_be_our_own_blindness_is_no_loss(story: Story) -> None:
    check(story)


def test_whoever_takes_over_gives_every_node_a_full_period() -> None:
    world = cluster(6)
    world.pass_to(12)
    world.lose("n1")
    world.pass_to(100)
    assert told(follow(world, [], 140)) == [
        "120 suspected n1: suspected-failure",
        "120 confirmed n1 to a: driver-hears-nothing",
    ]


def looks(*moments: tuple[float, float], silent: str = "n1") -> list[str]:
    """Verdicts of looks (asked, answered) at which every lease but one has always changed."""
    node, state, found = detection_input.WatchedNode("uid"), NodeInventory(), list[str]()
    view = detection_input.WatchedApplication(frozenset({silent}), silent_seconds={silent: 99.0})
    for number, (asked_at, answered_at) in enumerate(moments):
        tokens = {"n1": str(number), "n2": str(number), silent: "0"}
        leases = detection_input.Leases(tokens, asked_at, answered_at)
        observation = detection_input.Observation(leases, {"n1": node, "n2": node}, {"a": view})
        state, verdicts = node_detector.detect(state, observation, answered_at, RULES)
        found += told(verdicts)
    return found


def test_what_a_slow_request_says_is_as_old_as_the_request() -> None:
    # The last answer came 30 s after the change, but was asked for when 15 s had passed.
    assert looks((0, 0), (5, 5), (10, 10), (15, 21)) == []
    assert looks((0, 0), (5, 5), (10, 10), (15, 15), (20, 20)) == [
        "20 suspected n1: suspected-failure",
        "20 confirmed n1 to a: driver-hears-nothing",
    ]


def test_a_process_that_was_stopped_between_request_and_answer_starts_all_timers_again() -> None:
    assert looks((0, 0), (5, 5), (10, 10), (15, 15), (20, 50)) == []
    # The answer of 45 may be as old as 15, so the look after it follows a gap as well.
    moments = [(0, 0), (5, 5), (10, 10), (15, 45), (50, 50), (55, 55), (60, 60), (65, 65)]
    assert looks(*moments) == []
    assert looks(*moments, (70, 70)) == [
        "70 suspected n1: suspected-failure",
        "70 confirmed n1 to a: driver-hears-nothing",
    ]


def test_requests_that_take_long_each_time_are_no_gap() -> None:
    moments = [(11.0 * number, 11.0 * number + 6.0) for number in range(4)]
    assert looks(*moments)[-1] == "39 confirmed n1 to a: driver-hears-nothing"


def test_a_look_that_is_overtaken_by_a_newer_one_changes_nothing() -> None:
    assert looks((0, 0), (10, 10), (5, 11), (20, 20)) == looks((0, 0), (10, 10), (20, 20))

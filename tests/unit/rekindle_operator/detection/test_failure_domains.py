"""Failure domains: where a node is, and whether its losses speak against its domain."""

from dataclasses import dataclass

import pytest

from rekindle_operator.detection import failure_domains
from rekindle_operator.detection.detection_events import DetectionReason
from rekindle_operator.detection.failure_domains import Domain

ZONE, RACK = "topology.kubernetes.io/zone", "example.com/rack"


def place(**zones: int) -> dict[str, dict[str, str]]:
    """So many nodes per zone, named a1, a2, ..., two to a rack."""
    return {
        f"{zone}{number}": {ZONE: zone, RACK: f"{zone}-{(number + 1) // 2}"}
        for zone, count in zones.items()
        for number in range(1, count + 1)
    }


def lost(names: str, at: float = 1.0) -> dict[str, float]:
    """When each of these nodes was."""
    return dict.fromkeys(names.split(), at)


@pytest.mark.parametrize(
    ("labels", "keys", "expected"),
    [
        ({ZONE: "a", RACK: "r"}, (RACK, ZONE), Domain(RACK, "r")),
        ({ZONE: "a", RACK: "r"}, (ZONE, RACK), Domain(ZONE, "a")),
        ({ZONE: "a"}, (RACK, ZONE), Domain(ZONE, "a")),
        ({ZONE: "a", RACK: ""}, (RACK, ZONE), Domain(ZONE, "a")),
        ({ZONE: "a"}, (RACK,), None),
        ({}, (RACK, ZONE), None),
        ({ZONE: "a"}, (), None),
    ],
)
def test_a_node_is_in_the_domain_of_the_first_label_that_it_carries(
    labels: dict[str, str], keys: tuple[str, ...], expected: Domain | None
) -> None:
    assert failure_domains.of(labels, keys) == expected


def test_lost_nodes_are_grouped_by_domain_and_unknown_ones_kept_apart() -> None:
    nodes = place(a=2, b=1)
    assert failure_domains.group(nodes, ["b1", "a2", "a1", "x"], (ZONE,)) == {
        Domain(ZONE, "a"): ("a1", "a2"),
        Domain(ZONE, "b"): ("b1",),
        None: ("x",),
    }


@dataclass(frozen=True)
class Case:
    """Lost and arrived nodes of zones of four, and what is said of each zone that was hit."""

    name: str
    lost: str
    expected: dict[str, DetectionReason]
    arrived: str = ""
    zones: tuple[tuple[str, int], ...] = (("a", 4), ("b", 4), ("c", 4))


CASES = [
    Case("nothing is lost", "", {}),
    Case("all of a zone", "a1 a2 a3 a4", {"a": DetectionReason.DOMAIN_LOST}),
    Case("most of a zone", "a1 a2 a3", {"a": DetectionReason.DOMAIN_MOSTLY_LOST}),
    Case("half of a zone", "a1 a2", {"a": DetectionReason.DOMAIN_HOLDS}),
    Case(
        "one node, the only one of its zone",
        "d1",
        {"d": DetectionReason.DOMAIN_HOLDS},
        zones=(("a", 4), ("d", 1)),
    ),
    Case(
        "one zone and a node of another",
        "a1 a2 a3 a4 b1",
        {"a": DetectionReason.DOMAIN_LOST, "b": DetectionReason.DOMAIN_HOLDS},
    ),
    Case(
        "two of three zones",
        "a1 a2 a3 a4 b1 b2 b3",
        {"a": DetectionReason.DOMAIN_LOST, "b": DetectionReason.DOMAIN_MOSTLY_LOST},
    ),
    Case(
        "every zone: nowhere to turn to",
        "a1 a2 a3 a4 b1 b2 b3 c1 c2 c3",
        {
            "a": DetectionReason.NOWHERE_ELSE,
            "b": DetectionReason.NOWHERE_ELSE,
            "c": DetectionReason.NOWHERE_ELSE,
        },
    ),
    Case(
        "the only zone there is", "a1 a2 a3", {"a": DetectionReason.NOWHERE_ELSE}, zones=(("a", 4),)
    ),
    Case(
        "every zone, but one holds",
        "a1 a2 a3 a4 b1 b2 b3 c1",
        {
            "a": DetectionReason.DOMAIN_LOST,
            "b": DetectionReason.DOMAIN_MOSTLY_LOST,
            "c": DetectionReason.DOMAIN_HOLDS,
        },
    ),
    Case(
        "a node has come up there since",
        "a1 a2 a3",
        {"a": DetectionReason.DOMAIN_GIVES_NODES},
        arrived="a4",
    ),
    Case(
        "it came up and was lost again",
        "a1 a2 a3 a4",
        {"a": DetectionReason.DOMAIN_LOST},
        arrived="a4",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_losses_say_of_a_zone(case: Case) -> None:
    nodes = place(**dict(case.zones))
    found = failure_domains.judge(nodes, lost(case.lost), (ZONE,), lost(case.arrived))
    assert {item.domain.value: item.reason for item in found} == case.expected


def test_a_rack_may_be_impaired_in_a_zone_that_holds() -> None:
    found = failure_domains.judge(place(a=6, b=6), lost("a1 a2"), (ZONE, RACK))
    assert failure_domains.impaired(found) == (Domain(RACK, "a-1"),)


def test_the_racks_of_an_impaired_zone_are_not_named_beside_it() -> None:
    found = failure_domains.judge(place(a=6, b=6), lost("a1 a2 a3 a4"), (RACK, ZONE))
    assert failure_domains.impaired(found) == (Domain(ZONE, "a"),)


def test_of_two_labels_for_the_same_nodes_the_first_is_named() -> None:
    found = failure_domains.judge(place(a=2, b=2), lost("a1 a2"), (RACK, ZONE))
    assert failure_domains.impaired(found) == (Domain(RACK, "a-1"),)


def test_nodes_of_others_count_and_nodes_without_the_label_do_not() -> None:
    nodes = {**place(a=4, b=2), "plain1": {}, "plain2": {}}
    found = failure_domains.judge(nodes, lost("a1 a2 plain1"), (ZONE,))
    assert failure_domains.impaired(found) == ()
    assert [item.text for item in found] == [
        f"2 of 4 nodes of {ZONE}=a are lost: not avoided, at most half of the failure domain, or "
        "one node of it, is lost."
    ]


def test_a_node_that_came_before_the_newest_loss_of_its_zone_says_nothing_for_it() -> None:
    before = failure_domains.judge(
        place(a=6, b=6), lost("a1 a2 a3 a4", 2.0), (ZONE,), lost("a5", 1.0)
    )
    since = failure_domains.judge(
        place(a=6, b=6), lost("a1 a2 a3 a4", 2.0), (ZONE,), lost("a5", 2.0)
    )
    assert failure_domains.impaired(before) == (Domain(ZONE, "a"),)
    assert failure_domains.impaired(since) == ()


def test_domains_are_read_from_the_line_in_which_they_are_listed() -> None:
    found = (Domain(ZONE, "a"), Domain("kubernetes.io/hostname", "a1.example.com"))
    assert failure_domains.parse(failure_domains.listed(found)) == found
    assert failure_domains.parse("") == ()
    assert failure_domains.parse("nonsense,x=") == (Domain("x", ""),)

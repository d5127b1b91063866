"""The protocol: what is taken from outside, versions, places in the store, and who obeys whom."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle import protocol
from rekindle.coordination import directive_acceptance
from rekindle.coordination.directive_acceptance import ALONE_SECONDS, AcceptedDirectives
from rekindle.model.errors import InputError, RunError
from rekindle.protocol import store_paths
from rekindle.protocol.messages import Order

PROGRESS = {
    "kind": "progress",
    "generation": 1,
    "sequence": 4,
    "nodes": {"n1": {"incarnation": "a", "capacity_percent": 20}},
    "placement": {"p/0": "n1"},
    "live": ["p/0"],
}


def directive(sequence: int, order: Order, **fields: Any) -> protocol.Directive:
    common = {"generation": 3, "plan_epoch": 5, "after": 0, "reason": "node-back", "text": ""}
    return protocol.Directive(sequence=sequence, order=order, **{**common, **fields})


def plan(builds_on: int) -> protocol.PlanOrder:
    return protocol.PlanOrder(query_partitions=(), placement={}, builds_on=builds_on)


def test_a_report_is_read_with_fields_that_this_version_does_not_know() -> None:
    data = json.dumps({**PROGRESS, "mood": "good"}).encode()
    report = protocol.decode(data, protocol.ProgressReport, "report")
    assert (report.sequence, report.nodes["n1"].capacity_percent) == (4, 20.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sequence": -1}, "sequence"),
        ({"generation": 0}, "generation"),
        ({"placement": {"p/0": 7}}, "placement"),
        ({"nodes": {"n1": {"incarnation": "", "capacity_percent": 1}}}, "nodes"),
        ({"nodes": {"n1": {"incarnation": "a", "capacity_percent": float("inf")}}}, ""),
        ({"buffering": "maybe"}, "buffering"),
        ({"kind": "gossip"}, "kind"),
    ],
)
def test_a_malformed_report_is_refused_with_the_field(change: dict[str, Any], words: str) -> None:
    data = json.dumps({**PROGRESS, **change}).encode()
    with pytest.raises(InputError) as refused:
        protocol.decode(data, protocol.ProgressReport, "report")
    assert refused.value.where == "report"
    assert words in refused.value.what


@given(st.binary(max_size=200))
def test_whatever_comes_is_a_message_or_an_input_error(data: bytes) -> None:
    with suppress(InputError):
        protocol.decode(data, protocol.ProgressReport, "report")


def test_a_message_beyond_the_limit_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(InputError, match="are the limit"):
        protocol.decode(
            b" " * (protocol.MESSAGE_BYTES_MAX + 1), protocol.StatisticsReport, "report"
        )


def test_the_schema_names_every_message() -> None:
    names = set(protocol.schema()["$defs"])
    assert {"ProgressReport", "Directive", "Acknowledgement", "Handshake"} <= names
    assert protocol.Report.__name__ not in names


@pytest.mark.parametrize(
    ("theirs", "own", "version"),
    [((1, 1), (1, 1), 1), ((1, 3), (2, 2), 2), ((2, 5), (1, 3), 3), ((1, 2), (2, 4), 2)],
)
def test_two_sides_speak_the_newest_version_that_both_know(
    theirs: tuple[int, int], own: tuple[int, int], version: int
) -> None:
    assert protocol.agree(*theirs, own=own) == version


@pytest.mark.parametrize("theirs", [(1, 1), (5, 6), (3, 2)])
def test_sides_that_know_no_version_in_common_say_so(theirs: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="the other side speaks versions"):
        protocol.agree(*theirs, own=(2, 4))


@given(st.integers(0, 3), st.integers(0, 200))
def test_a_record_is_the_same_after_it_has_been_split(whole: int, rest: int) -> None:
    data = b"x" * (whole * store_paths.PIECE_BYTES + rest)
    parts = store_paths.split(data)
    assert all(len(part) <= store_paths.PIECE_BYTES for part in parts)
    head = store_paths.head(data)
    assert len(store_paths.pieces(head)) == len(parts)
    assert store_paths.join(head, parts, "record") == data


def test_pieces_that_do_not_belong_to_their_head_are_noticed() -> None:
    data = b"y" * (store_paths.PIECE_BYTES + 1)
    with pytest.raises(RunError, match="do not match its checksum"):
        store_paths.join(store_paths.head(data), [b"z", b"y"], "record")


def test_a_record_that_was_not_split_names_no_pieces() -> None:
    assert store_paths.pieces(b'{"kind": "progress"}') == ()


@pytest.mark.parametrize(
    "name", ["flights", "a/b/c", "/b", "a/", "a/..", "a b/c", "ä/b", "a/" + "x" * 201]
)
def test_what_is_no_name_of_an_application_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        store_paths.place(name)


def test_directives_sort_as_they_count() -> None:
    names = [store_paths.numbered(number) for number in (2, 10, 1_000)]
    assert names == sorted(names)
    assert store_paths.numbers([*names, store_paths.GUARD]) == [2, 10, 1_000]


def test_a_plan_is_taken_once_and_only_on_the_plan_that_it_builds_on() -> None:
    driver = AcceptedDirectives(3, plan_epoch=4)
    taken, why = directive_acceptance.take(driver, directive(7, plan(4)))
    assert (taken.plan_epoch, taken.directive, why) == (5, 7, "")
    again, why = directive_acceptance.take(taken, directive(7, plan(4)))
    assert again == taken
    assert "looked at before" in why


def test_a_plan_that_does_not_know_of_the_drivers_own_is_refused() -> None:
    alone = directive_acceptance.planned(AcceptedDirectives(3, plan_epoch=4), 5)
    after, why = directive_acceptance.take(alone, directive(7, plan(4), plan_epoch=6))
    assert (after.plan_epoch, after.directive) == (5, 7)
    assert "it builds on plan 4, the newest is 5" in why


def test_orders_of_before_a_plan_are_refused_and_those_with_it_are_taken() -> None:
    driver = AcceptedDirectives(3, plan_epoch=5)
    order = protocol.BufferingOrder(mode="on")
    assert "is behind" in directive_acceptance.take(driver, directive(1, order, plan_epoch=4))[1]
    assert directive_acceptance.take(driver, directive(1, order, plan_epoch=5))[1] == ""


def test_a_directive_for_another_generation_changes_nothing() -> None:
    driver = AcceptedDirectives(4, plan_epoch=5)
    after, why = directive_acceptance.take(driver, directive(9, plan(5), plan_epoch=6))
    assert after == driver
    assert "for generation 3" in why


def test_a_directive_waits_for_the_one_before_it() -> None:
    driver = AcceptedDirectives(3, directive=5)
    assert directive_acceptance.is_early(driver, directive(7, plan(0), after=6))
    assert not directive_acceptance.is_early(driver, directive(6, plan(0), after=5))
    assert not directive_acceptance.is_early(driver, directive(9, plan(0), after=8, generation=2))


def test_a_directive_behind_one_that_could_not_be_read_is_no_longer_early() -> None:
    driver = AcceptedDirectives(3, directive=5)
    later = directive(7, plan(0), after=6)
    assert directive_acceptance.is_early(driver, later)
    assert not directive_acceptance.is_early(directive_acceptance.passed(driver, 6), later)


def test_a_driver_is_alone_without_a_store_and_after_a_long_silence() -> None:
    assert directive_acceptance.is_alone(AcceptedDirectives(1), now=0.0)
    led = directive_acceptance.contacted(AcceptedDirectives(1, contact_at=0.0), now=50.0)
    assert not directive_acceptance.is_alone(led, now=50.0 + ALONE_SECONDS)
    assert directive_acceptance.is_alone(led, now=50.1 + ALONE_SECONDS)
    assert directive_acceptance.is_alone(
        directive_acceptance.contacted(led, now=51.0, led=False), now=51.0
    )

"""Why a query is not back, and what would bring it."""

import re
from dataclasses import replace

import pytest
from standing_world import NODES, Desk, phases, running, short_of_capacity

from rekindle.coordination.application_status import Phase
from rekindle.model.errors import InputError
from rekindle.protocol import (
    NodeSeen,
)


def test_a_waiting_query_is_explained_by_what_it_misses_and_what_would_bring_it() -> None:
    found = short_of_capacity().explain("busiest")
    text = " ".join(found.sentences)
    assert [item.partition for item in found.missing] == ["counts/0", "counts/1"]
    assert [item.steady_percent for item in found.missing] == [60.0, 60.0]
    assert all(item.catching_up_percent > 60.0 for item in found.missing)
    assert found.free is not None
    assert sum(found.free.values()) == pytest.approx(10.0)
    assert found.next_plan == ()
    assert found.more_nodes == 2
    assert found.requests is not None
    assert sum(request.count for request in found.requests.values()) == 3
    assert "busiest waits, with 2 partitions not running that it needs: counts/0, counts/1." in text
    assert "With 2 more nodes of 100 % CPU busiest would be in the next plan." in text
    assert "Requested: 3 nodes. (correlated-failure)" in text
    assert "(no-capacity)" in text


def test_why_it_waits_while_a_lesser_one_runs_is_one_sentence() -> None:
    desk = running(priorities={"busiest": 9.5, "ranking": 1.0})
    keep = {desk.placement["tops/0"], desk.placement["source/0"]}
    desk.lose(*[node for node in NODES if node not in keep])
    desk.settle()
    desk.all_live()
    (why,) = [one for one in desk.explain("busiest").sentences if " waits while " in one]
    assert why == (
        "busiest (priority 9.5) waits while ranking (priority 1) runs: it needs 96 % of a core and "
        "30 % is left, and what runs is not stopped for it."
    )


def test_a_query_that_waits_for_a_more_important_one_has_no_such_sentence() -> None:
    sentences = short_of_capacity().explain("busiest").sentences
    assert not [one for one in sentences if " waits while " in one]


def test_as_many_nodes_as_the_explanation_says_bring_the_query_back() -> None:
    desk = short_of_capacity()
    more = desk.explain("busiest").more_nodes
    assert more is not None
    for index in range(more):
        assert phases(desk.stands())["busiest"] is not Phase.CATCHING_UP
        desk.nodes[f"m{index}"] = NodeSeen(incarnation="b", capacity_percent=100.0)
        desk.settle()
    assert phases(desk.stands())["busiest"] is Phase.CATCHING_UP


def test_more_important_queries_that_are_not_back_either_come_first() -> None:
    desk = running()
    desk.lose(*[node for node in NODES if node != desk.placement["counts/0"]])
    desk.report()
    assert desk.explain("busiest").first == ("ranking",)
    assert desk.explain("ranking").first == ()


def test_a_query_in_the_next_plan_needs_no_more_nodes() -> None:
    desk = running()
    desk.lose(desk.placement["tops/0"])
    desk.report()
    found = desk.explain("ranking")
    assert (found.next_plan, found.more_nodes) == (("ranking/0",), 0)
    assert "ranking is in the next plan." in found.sentences


def test_at_a_first_start_nothing_is_to_be_brought_back() -> None:
    desk = Desk()
    del desk.nodes["n1"]
    desk.settle()
    said = " ".join(desk.explain("ranking").sentences)
    assert "A plan made now would start nothing: 3 of 4 nodes are up. (waiting-for-nodes)" in said
    assert not re.search(r"back|[Ll]ost", said), said


def test_a_query_that_fits_once_others_have_caught_up_is_told_so() -> None:
    desk = running(catch_up_cost_ratio=10.0, catch_up_seconds=1.0)
    desk.checkpoint(1)
    desk.now += 100
    desk.lose(*[node for node in NODES if node != desk.placement["counts/1"]])
    for node in ("m1", "m2"):
        desk.nodes[node] = NodeSeen(incarnation="b", capacity_percent=100.0)
    desk.settle()
    by_phase = {phase: name for name, phase in phases(desk.stands()).items()}
    assert set(by_phase) == {Phase.CATCHING_UP, Phase.WAITING}
    sentences = desk.explain(by_phase[Phase.WAITING]).sentences
    expected = f"{by_phase[Phase.WAITING]} fits as soon as those that catch up have caught up."
    assert expected in sentences


def test_a_query_that_is_back_or_on_its_way_is_explained_in_a_sentence() -> None:
    desk = running()
    assert desk.explain("ranking").sentences == ("ranking is live: nothing is missing.",)
    desk.lose(desk.placement["tops/0"])
    desk.settle()
    first = desk.explain("ranking").sentences[0]
    assert first == "ranking is placed and catches up: 0 of 1 query partition is live."


def test_a_query_that_has_stopped_is_explained_by_the_function_that_raises() -> None:
    desk = running()
    desk.placement.pop("tops/0")
    desk.report(stopped={"ranking/0": "step tops: raised ValueError: bad, at epoch 7"})
    desk.decide()
    assert desk.explain("ranking").sentences == (
        "ranking goes on when a driver starts with the function mended: "
        "0 of 1 query partition is live.",
        "ranking has stopped: step tops: raised ValueError: bad, at epoch 7 (query-stopped)",
    )
    assert "ranking" not in " ".join(desk.explain("busiest").sentences)


def test_a_query_of_a_driver_that_is_gone_is_explained_by_that() -> None:
    desk = running()
    desk.reading = replace(desk.reading, heartbeat=None, driver_gone=True)
    desk.decide()
    text = " ".join(desk.explain("busiest").sentences)
    assert "The driver is gone; another one is asked for. (driver-lost)" in text
    assert "No node is up." in text


def test_an_unknown_query_is_refused_with_near_ones() -> None:
    with pytest.raises(InputError, match="'bussiest': is no query of a/b; name one of: busiest"):
        running().explain("bussiest")
    with pytest.raises(InputError, match="name one of: busiest, ranking"):
        running().explain("x")

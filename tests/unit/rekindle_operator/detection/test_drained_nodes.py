"""Losses that had been announced, each judged once in its incident."""

from types import SimpleNamespace
from typing import Any

from rekindle.model.incidents import Incident, IncidentKind
from rekindle.protocol.store_paths import Place
from rekindle_operator.controller.effects import DrainedNodes

PLACE = Place("shop", "flights")


def incident(number: int) -> Incident:
    return Incident(
        number, IncidentKind.INDEPENDENT, 0.0, 0.0, 0.0, nodes_wanted=2, lost=("10.0.0.1",)
    )


def test_what_was_announced_in_one_incident_says_nothing_of_the_next() -> None:
    state = SimpleNamespace(leaving={"n1"}, gone={}, suspects=set())
    judge: Any = SimpleNamespace(
        state=state,
        known=SimpleNamespace(registry=SimpleNamespace(nodes={})),
        hosts_ever=lambda _: {"10.0.0.1": "n1"},
    )
    departures = DrainedNodes(judge)
    assert departures.of(PLACE, incident(1)) == {"n1"}
    state.leaving.clear()
    assert departures.of(PLACE, incident(1)) == {"n1"}
    assert departures.of(PLACE, incident(2)) == frozenset()
    state.leaving.add("n1")  # what is said after a loss says that somebody else has noticed
    assert departures.of(PLACE, incident(2)) == frozenset()

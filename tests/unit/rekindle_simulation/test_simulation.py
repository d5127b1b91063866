"""The simulation of the coordination: seeds hold, sabotage is found, a seed is always the same."""

import pytest

from rekindle.protocol import Heartbeat, Orders, encode
from rekindle_simulation import simulated_store, simulation_run
from rekindle_simulation.simulation_sabotage import SimulationSabotage

# Each of these broke something once: the pipeline, the faults and their order are in the seed.
FOUND_SOMETHING = {
    1: "executors that had come back were dropped as those that were lost",
    3: "a superseded driver with nothing to commit never learned of the newer one",
    15: "a coordinator that was started anew did not wait for arrivals to settle",
    37: "a new driver that had planned alone took a plan that did not know of it",
    80: "priorities that people had set looked like news to a coordinator started anew",
    1132: "a pause outlasted its end, which was refused for its plan epoch",
    639: "costs that the store has lost, and only one coordinator still knows",
    669: "a sidecar knew that nobody leads, and did not say so without its store",
    3745: "queries that waited for all nodes did not know that an announced one stays",
    2251: "orders that waited for the store were given in another order",
    3194: "a lost plan was given up, and only a restarted coordinator looked at what had been done",
    500333: "a plan relied on a drop that was refused for its plan epoch",
    370004694: "a coordinator without its record took the nodes that were left for all there were",
    370974869: "a plan was held to costs that its coordinator could not know",
    503408: "priorities that changed while a coordinator was away were no news to it",
    11574: "a simulated coordinator that had died wrote by what its next start had read",
    20393: "a clock was set back, and a simulated coordinator started anew cannot know how far",
    56062: "moves of one order filled a node before others had made room there",
}


@pytest.mark.parametrize("seed", FOUND_SOMETHING, ids=str)
def test_what_a_seed_has_found_stays_mended(seed: int) -> None:
    outcome = simulation_run.run(seed)
    assert outcome.broken is None, "\n".join(outcome.trace)


@pytest.mark.parametrize("first", range(5_000, 5_100, 10))
def test_every_invariant_holds_whatever_happens(first: int) -> None:
    for seed in range(first, first + 10):
        outcome = simulation_run.run(seed)
        assert outcome.broken is None, f"seed {seed}\n" + "\n".join(outcome.trace)


@pytest.mark.parametrize("sabotage", list(SimulationSabotage), ids=str)
def test_each_sabotage_is_found_within_ten_seeds(sabotage: SimulationSabotage) -> None:
    assert any(simulation_run.run(seed, sabotage).broken for seed in range(1, 11))


def test_a_seed_always_gives_the_same_run() -> None:
    assert simulation_run.run(7) == simulation_run.run(7)


def test_a_transaction_writes_all_or_nothing() -> None:
    store = simulated_store.SimulatedStore()
    store.put("/a", encode(Orders()))
    with pytest.raises(simulated_store.SimulatedConflict):
        store.transact({"/a": 7}, {"/a": b"x", "/b": b"y"}, None)
    assert store.get("/b") is None
    assert store.get("/a") == (encode(Orders()), 1)


def test_records_of_a_session_go_with_it() -> None:
    store = simulated_store.SimulatedStore()
    session = store.open(now=0.0)
    store.put("/heartbeat", encode(Heartbeat(generation=1, since=0.0)), session)
    store.expire(now=simulated_store.SESSION_SECONDS)
    assert store.get("/heartbeat") is not None
    store.expire(now=simulated_store.SESSION_SECONDS + 0.1)
    assert store.get("/heartbeat") is None


def test_no_session_ends_while_the_store_is_away() -> None:
    store = simulated_store.SimulatedStore()
    session = store.open(now=0.0)
    store.reachable = False
    store.expire(now=60.0)
    store.reachable = True
    store.expire(now=61.0)
    store.touch(session, now=61.0)

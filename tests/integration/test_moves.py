"""Partitions that move while everything runs: no query misses an epoch, and no row changes.

They move where load is uneven, and off nodes that are slow.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

from application import Application, placement_after

from rekindle_local import processes
from rekindle_spark.stragglers import NEW_SECONDS

Prepare = Callable[..., Application]


def await_even_load(application: Application, *, after: int) -> int:
    """Number of events when every node has partitions and no move is owed any more."""
    nodes = {node.name for node in application.cluster.nodes}

    def is_even() -> bool:
        moves = application.happened("moved", after=after)
        owed = moves[-1]["waiting"] if moves else None
        return owed == 0 and set(application.placement().values()) == nodes

    application.await_condition("load is spread over all nodes", is_even)
    return application.seen


def assert_no_epoch_missed(application: Application, first: int, last: int) -> None:
    """Each epoch from the first to the last was committed at once for all partitions."""
    partitions = set(application.placement())
    ran: dict[int, set[str]] = {}
    for record in application.commits():
        together = {end for _, end, _ in record["finished"].values()}
        for name, (_, end, _) in record["finished"].items():
            if first <= end <= last:
                assert together == {end}, f"epoch {end} was not run by all in one job"
                ran.setdefault(end, set()).add(name)
    assert set(ran) == set(range(first, last + 1))
    assert all(names == partitions for names in ran.values())


def test_after_lost_nodes_are_back_load_is_spread_again_and_no_query_misses_an_epoch(
    prepare: Prepare,
) -> None:
    # large nodes: what is left holds everything, so that those that come back are empty
    application = prepare(runtime={"rows_per_second": 1_500, "node_cpu_percent": 400})
    application.start_and_recover()
    measured = application.await_event("statistics", after=application.seen)
    assert all(measured["state_bytes"][name] for name in ("by-hour/0", "by-hour/1"))
    victims = [node.name for node in application.cluster.nodes[:2]]
    begin = application.seen
    application.cluster.kill(victims)
    for victim in victims:
        application.await_event("confirmed", after=begin, node=victim)
    application.await_event("recovered", after=begin)
    for victim in victims:
        application.cluster.start_worker(victim)
        application.await_event("joined", after=begin, node=victim)
    back = application.await_event("incident-closed", after=begin)
    # moves may be on their way already: the first node may have been back for long
    until = application.events[: application.events.index(back)]
    assert set(placement_after(until).values()).isdisjoint(victims), "it was even at once"
    first = 1 + max(event["epoch"] for event in until if event["kind"] == "cut")
    end = await_even_load(application, after=begin)
    for event in application.happened("moved", after=begin):
        assert event["reason"] == "uneven-load"
        assert event["at"] > back["at"]
    application.await_event("checkpoint", after=end)
    assert not application.happened("confirmed", after=application.events.index(back))
    last = max(event["epoch"] for event in application.happened("ran"))
    assert_no_epoch_missed(application, first, last)
    application.finish()


def test_a_node_lost_while_partitions_move_changes_no_row(prepare: Prepare) -> None:
    application = prepare(runtime={"rows_per_second": 1_500})
    application.start_and_recover()
    victim = application.cluster.nodes[0].name
    begin = application.seen
    application.cluster.kill([victim])
    application.await_event("recovered", after=begin)
    application.cluster.start_worker(victim)
    application.await_event("moved", after=begin)
    begin = application.seen
    application.cluster.kill([victim])
    application.await_event("confirmed", after=begin, node=victim)
    application.await_event("recovered", after=begin)
    application.cluster.start_worker(victim)
    application.await_event("joined", after=begin, node=victim)
    application.finish()


@contextmanager
def standing_still_most_of_the_time(application: Application, node: str) -> Iterator[None]:
    """Its processes are stopped for nine tenths of the time: for half a second each time, which is
    far too short to be called silent, and more than others take where they have to wait."""
    executor = application.executors()[node]
    over = threading.Event()

    def stop_and_go() -> None:
        while not over.is_set():
            processes.signal_all(executor, signal.SIGSTOP)
            time.sleep(0.45)
            processes.signal_all(executor, signal.SIGCONT)
            over.wait(0.05)

    thread = threading.Thread(target=stop_and_go, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def epoch_seconds(application: Application, *, after: int) -> list[float]:
    """From the cut of each epoch since then to its commit."""
    cut = {event["epoch"]: event["at"] for event in application.happened("cut", after=after)}
    commits = {event["epoch"]: event["at"] for event in application.happened("commit", after=after)}
    return [at - cut[epoch] for epoch, at in sorted(commits.items()) if epoch in cut]


def test_a_slow_node_loses_its_partitions_with_the_reason_and_epochs_are_short_again(
    prepare: Prepare,
) -> None:
    # short epochs, so that what one node holds up is more than they may take
    application = prepare(
        runtime={"rows_per_second": 700, "node_cpu_percent": 400, "epoch_seconds": 0.2}
    )
    application.start_and_recover()
    victim = min(application.placement().values())
    # executors are new for a while, in which being slow says nothing
    recovered_at = application.await_event("recovered")["at"]
    application.await_condition(
        "its executors are not new any more",
        lambda: application.happened("cut")[-1]["at"] > recovered_at + NEW_SECONDS,
    )
    with standing_still_most_of_the_time(application, victim):
        begin = application.seen
        application.await_event("slow", after=begin, nodes=[victim])
        application.await_event("node-slow", after=begin, reason="slow-node")
        slowed = epoch_seconds(application, after=begin)
        application.await_event("moved", after=begin, reason="slow-node")
        application.await_condition(
            "nothing is left on it", lambda: victim not in application.placement().values()
        )
        end = application.seen
        application.await_condition(
            "epochs are run without it", lambda: len(epoch_seconds(application, after=end)) > 10
        )
        assert median(epoch_seconds(application, after=end)) < median(slowed)
        for kind in ("confirmed", "state-lost", "plan"):
            assert not application.happened(kind, after=begin)
        application.finish()


def test_by_domain_what_important_queries_share_is_on_one_node_and_its_loss_changes_no_row(
    prepare: Prepare,
) -> None:
    # each node is a failure domain, as none is known; each could hold everything
    application = prepare(
        policy={"placement": "domains"}, runtime={"rows_per_second": 1_500, "node_cpu_percent": 400}
    )
    application.start_and_recover()

    def homes() -> set[str]:
        """Of all that the most important queries of readings need."""
        operators = ("readings", "by-hour", "most-readings")
        return set[str]().union(*(application.nodes_of(name) for name in operators))

    application.await_condition("they are on one node", lambda: len(homes()) == 1)
    orders = application.happened("moving")
    assert all(event["reason"] in ("survival", "uneven-load") for event in orders)
    (victim,) = homes()
    begin = application.seen
    application.cluster.kill([victim])
    application.await_event("confirmed", after=begin, node=victim)
    application.await_event("recovered", after=begin)
    application.cluster.start_worker(victim)
    application.await_event("joined", after=begin, node=victim)
    application.finish()

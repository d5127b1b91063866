"""Partitions that move while everything runs: no query misses an epoch, and no row changes.

Here they move where load is uneven; `test_moves_slow` and `test_faults_drivers` have other reasons.
"""

from collections.abc import Callable

from application import LASTING, Application, placement_after
from harms import all_nodes, lose, meet, start_workers

Prepare = Callable[..., Application]


def test_after_losses_load_is_spread_again_and_no_query_misses_an_epoch_and_no_row_changes(
    prepare: Prepare,
) -> None:
    # large nodes: what is left holds everything, so that those that come back are empty
    application = prepare(runtime={**LASTING, "node_cpu_percent": 400})
    application.start_and_recover()
    meet(
        application,
        after_lost_nodes_are_back_load_is_spread_again_and_no_query_misses_an_epoch,
        a_node_is_lost_while_partitions_move,
    )
    application.finish()


def await_even_load(application: Application, *, after: int) -> int:
    """Number of events when every node has partitions and no move is owed any more."""
    nodes = set(all_nodes(application))

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


def after_lost_nodes_are_back_load_is_spread_again_and_no_query_misses_an_epoch(
    application: Application,
) -> None:
    measured = application.await_event("statistics", after=application.seen)
    assert all(measured["state_bytes"][name] for name in ("by-hour/0", "by-hour/1"))
    victims = all_nodes(application)[:2]
    begin = lose(application, victims)
    application.await_event("recovered", after=begin)
    start_workers(application, *victims, after=begin)
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


def a_node_is_lost_while_partitions_move(application: Application) -> None:
    victim = all_nodes(application)[0]
    begin = lose(application, [victim])
    application.await_event("recovered", after=begin)
    application.cluster.start_worker(victim)
    application.await_event("moved", after=begin)
    begin = lose(application, [victim])
    application.await_event("recovered", after=begin)
    start_workers(application, victim, after=begin)

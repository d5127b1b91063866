"""Partitions that move while everything runs: no query misses an epoch, and no row changes."""

from collections.abc import Callable

from application import Application

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
    application = prepare(runtime={"rows_per_second": 900, "node_cpu_percent": 400})
    application.start_and_recover()
    application.await_event("statistics")
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
    assert set(application.placement().values()).isdisjoint(victims), "it was even at once"
    first = 1 + max(event["epoch"] for event in application.happened("cut"))
    end = await_even_load(application, after=begin)
    for event in application.happened("moved", after=begin):
        assert event["reason"] == "uneven-load"
        assert event["at"] > back["at"]
    application.await_event("checkpoint", after=end)
    assert not application.happened("confirmed", after=application.events.index(back))
    last = max(event["epoch"] for event in application.happened("commit"))
    assert_no_epoch_missed(application, first, last)
    application.finish()


def test_a_node_lost_while_partitions_move_changes_no_row(prepare: Prepare) -> None:
    application = prepare(runtime={"rows_per_second": 900})
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

"""A real Spark driver on a real API server: two nodes with its executors are lost.

The pods there stay Running, for nobody who could say otherwise is left. Once the loss is confirmed,
as many new ones are Pending as were lost, which is what makes autoscalers act.
"""

import time
from collections.abc import Callable

import pytest
from application import Application
from spark_on_kubernetes import NODES, SHAPE, Cluster

from rekindle import protocol
from rekindle.protocol import ProgressReport, tree
from rekindle_cli import store_access
from testbed.nodes import Fate

Start = Callable[..., tuple[Cluster, Application]]
LOST = 2
# Spark alone looks every 30 s; how long it takes is printed, and 5 s on a machine of its own.
PENDING_SECONDS_MAX = 20.0
# An executor says every second that it is there, and a report may be as old as 5 s.
SILENT_SECONDS_MAX = 3.0
# So long that no test waits for it.
LONG_SECONDS = 300


def progress(application: Application) -> ProgressReport:
    """The driver's newest report, as the coordination store has it."""
    control = application.control
    assert control is not None
    with store_access.opened(control.zookeeper.connect_string, None) as connection:
        found = connection.get(control.place.path(tree.PROGRESS))
    assert found is not None
    return protocol.decode(found[0], ProgressReport, "progress")


def bring_new_nodes(cluster: Cluster, application: Application, begin: int) -> None:
    """What an autoscaler does about Pending pods; executors come up there, and all is live."""
    cluster.simulated.add(LOST, SHAPE)
    application.await_condition(
        "new executors", lambda: len(application.happened("joined", after=begin)) == LOST
    )
    application.await_event("recovered", after=begin)


@pytest.mark.parametrize("fate", [Fate.FREEZE, Fate.DIE], ids=lambda fate: str(fate.value))
def test_as_many_pods_are_pending_as_were_lost_and_the_rows_are_right(
    start: Start, fate: Fate
) -> None:
    # A connection that is reset tells the driver at once; of a frozen one only silence does.
    cluster, application = start(silent_seconds=15 if fate is Fate.FREEZE else LONG_SECONDS)
    begin = application.seen
    confirmed_at = cluster.lose(application, cluster.names[:LOST], fate)
    seconds = cluster.await_pending(LOST, confirmed_at)
    print(f"  {LOST} pods Pending after {seconds:.1f} s")
    assert seconds < PENDING_SECONDS_MAX
    bring_new_nodes(cluster, application, begin)
    application.finish()


def test_a_driver_that_is_told_drops_lost_executors_at_once_and_names_their_nodes(
    start: Start,
) -> None:
    cluster, application = start(led=True, silent_seconds=LONG_SECONDS)
    begin = application.seen
    lost = cluster.names[:LOST]
    addresses = {pod.status.pod_ip: pod.spec.node_name for pod in cluster.executors()}
    seen = progress(application).nodes
    assert {name: node.cluster_node for name, node in seen.items()} == addresses
    assert len(seen) == NODES
    assert all(0 <= (node.silent_seconds or 0) < SILENT_SECONDS_MAX for node in seen.values())
    confirmed_at = cluster.lose(application, lost, Fate.FREEZE)
    told = {
        node.cluster_node: node.silent_seconds or 0.0
        for node in progress(application).nodes.values()
    }
    seconds = cluster.await_pending(LOST, confirmed_at)
    application.await_condition(
        "both are dropped", lambda: len(application.happened("confirmed", after=begin)) == LOST
    )
    dropped = time.monotonic() - confirmed_at
    print(f"  {LOST} pods Pending after {seconds:.1f} s, both dropped within {dropped:.1f} s")
    assert seconds < PENDING_SECONDS_MAX
    assert not any(one["silent"] for one in application.happened("confirmed", after=begin))
    assert all(told.get(name, 0.0) >= SILENT_SECONDS_MAX for name in lost if name in told)
    assert all(told[name] < SILENT_SECONDS_MAX for name in cluster.names[LOST:])
    bring_new_nodes(cluster, application, begin)
    application.finish()

"""A real Spark driver that nobody leads, on a real API server: nodes with its executors are lost.

The pods there stay Running, for nobody who could say otherwise is left. Once the loss is confirmed,
as many new ones are Pending as were lost, which is what makes autoscalers act.
"""

from collections.abc import Callable

from application import Application
from spark_on_kubernetes import LOST, Cluster

from testbed.simulated_kubelets import Fate

Start = Callable[..., tuple[Cluster, Application]]
SILENT_SECONDS = 8


def test_as_many_pods_are_pending_as_were_lost_and_the_rows_are_right(start: Start) -> None:
    """One node freezes, of which only silence tells; one dies, of which the driver knows at once,
    for its connections are reset."""
    cluster, application = start(silent_seconds=SILENT_SECONDS)
    begin, (frozen, dead, *_) = application.seen, cluster.names
    (killed,) = cluster.executors_on([dead])
    confirmed_at = cluster.lose(application, {frozen: Fate.FREEZE, dead: Fate.DIE})
    cluster.await_pending(confirmed_at)
    cluster.replace_lost(application, begin)
    confirmed = {
        one["node"]: one["silent"] for one in application.happened("confirmed", after=begin)
    }
    assert len(confirmed) == LOST
    assert confirmed[killed.status.pod_ip] is False
    application.finish()

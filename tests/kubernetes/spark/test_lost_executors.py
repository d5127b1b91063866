"""A real Spark driver that nobody leads, on a real API server: nodes with its executors are lost.

The pods there stay Running, for nobody who could say otherwise is left. Once the loss is confirmed,
as many new ones are Pending as were lost, which is what makes autoscalers act.
"""

from collections.abc import Callable

from application import Application
from spark_on_kubernetes import LOST, Cluster

from testbed.nodes import Fate

Start = Callable[..., tuple[Cluster, Application]]
SILENT_SECONDS = 8


def test_as_many_pods_are_pending_as_were_lost_and_the_rows_are_right(start: Start) -> None:
    """Of a frozen connection only silence tells; of one that is reset the driver knows at once."""
    cluster, application = start(silent_seconds=SILENT_SECONDS)
    for lost, fate in ((cluster.names[:LOST], Fate.FREEZE), (cluster.names[LOST:], Fate.DIE)):
        begin = application.seen
        confirmed_at = cluster.lose(application, lost, fate)
        cluster.await_pending(confirmed_at)
        cluster.replace_lost(application, begin)
        confirmed = application.happened("confirmed", after=begin)
        assert len(confirmed) == LOST
        assert fate is Fate.FREEZE or not any(one["silent"] for one in confirmed)
    application.finish()

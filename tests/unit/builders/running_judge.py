"""Detection's runner of an application whose driver has reported all its executors."""

from dataclasses import replace

from operator_benchmark import cluster_layout
from operator_benchmark.benchmark_drivers import driver
from operator_benchmark.cluster_layout import ClusterSize
from rekindle.coordination.session import ApplicationReading
from rekindle.protocol import TopologyReport
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.pods import pod_seen
from rekindle_operator.detection.detection_runner import DetectionRunner

SPARK = cluster_layout.applications(ClusterSize(nodes=25, pods=100, policies=1))[0]
LOST = SPARK.executors[4]
ADDRESSES = [item.address for item in SPARK.executors]


def judge_of_a_running_application() -> tuple[DetectionRunner, ApplicationReading]:
    """Its driver has reported all executors, and has lost one node, as detection says."""
    known, body = ClusterView(), cluster_layout.driver_pod(SPARK)
    executors = [cluster_layout.executor_pod(SPARK, item, "uid-0") for item in SPARK.executors]
    for pod, address in ((body, ""), *zip(executors, ADDRESSES, strict=True)):
        pod["metadata"]["uid"] = f"uid-{pod['metadata']['labels'].get('spark-exec-id', 0)}"
        pod["status"] = {"phase": "Running", "podIP": address}
        seen = pod_seen(pod)
        assert seen is not None
        known.registry.see_pod(seen)
    member = driver(SPARK, 1).member
    topology = member.beginning()[0]
    assert isinstance(topology, TopologyReport)
    reading = ApplicationReading(topology=topology, progress=member.progress())
    judge = DetectionRunner(known)
    judge.hear(SPARK.place, reading, now=0.0)
    judge.state = replace(judge.state, told={LOST.node: frozenset({str(SPARK.place)})})
    judge.avoidance.note(judge.state, 0.0, judge.rules)
    judge._heard.clear()  # the driver hears nothing of it
    return judge, reading

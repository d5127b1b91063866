"""Case 07: the driver's pod has a log shipper before the container that runs Spark.

A pod template gave it: its first container is Spark's, called main, and Spark puts that one last.
"""

import verdicts

from rekindle_operator.cluster.pods import pod_seen
from rekindle_operator.webhook import pod_patch

CONTAINERS = [
    {"name": "log-shipper", "image": "fluent-bit"},
    {
        "name": "main",
        "image": "spark",
        "args": ["driver"],
        "resources": {"limits": {"cpu": "2"}},
    },
]
POD = {
    "metadata": {
        "name": "app-driver",
        "namespace": "flights",
        "uid": "u",
        "labels": {"spark-role": "driver", "rekindle.dev/inject": "true"},
    },
    "spec": {"restartPolicy": "Never", "containers": CONTAINERS},
    "status": {
        "phase": "Running",
        "containerStatuses": [
            {"name": "log-shipper", "state": {"terminated": {"exitCode": 1}}, "restartCount": 3},
            {"name": "main", "state": {"running": {}}, "restartCount": 0},
        ],
    },
}


def main() -> None:
    chosen = CONTAINERS[pod_patch.spark_container(POD)]["name"]
    seen = pod_seen(POD)
    print("container that gets the sidecar's socket and variables:", chosen)
    print("the pod as the operator sees it:", seen)
    has_ended = getattr(seen, "ended", True)
    verdicts.end(
        chosen == "main" and not has_ended,
        "the container with Spark (arguments 'driver' or 'executor'), which runs",
    )


if __name__ == "__main__":
    main()

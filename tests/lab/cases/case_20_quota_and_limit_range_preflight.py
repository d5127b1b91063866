"""Case 20: preflight on files with a quota on limits and a LimitRange's minimum.

The driver's sidecar asks for 20m of CPU and has no CPU limit; the quota is on limits.cpu and on
limits.ephemeral-storage; the LimitRange's minimum is 100m.
"""

import subprocess
import sys
from pathlib import Path

import verdicts

OBJECTS = """
apiVersion: v1
kind: LimitRange
metadata: {name: lr, namespace: f}
spec: {limits: [{type: Container, min: {cpu: 100m, memory: 128Mi}}]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: q, namespace: f}
spec: {hard: {HARD}}
---
apiVersion: sparkoperator.k8s.io/v1beta2
kind: SparkApplication
metadata: {name: app, namespace: f}
spec:
  type: Python
  restartPolicy: {type: Always}
  driver: {cores: 1, memory: 1g, labels: {rekindle.dev/inject: "true"}}
  executor: {instances: 3, cores: 2, memory: 1g}
"""
LIMITS = 'limits.cpu: "20", limits.memory: 40Gi, requests.cpu: "20", limits.ephemeral-storage: 10Gi'
NAMES = ("limits.cpu", "LimitRange", "ephemeral")


def preflight(hard: str) -> str:
    Path("application.yaml").write_text(OBJECTS.replace("HARD", hard))
    program = Path(sys.executable).with_name("kubectl-rekindle")
    command = [program, "preflight", "--offline", "-f", "application.yaml"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    print(ended.stdout, ended.stderr, f"exit code {ended.returncode}")
    return ended.stdout + ended.stderr


def main() -> None:
    control = preflight('pods: "1"')
    found = preflight(LIMITS)
    verdicts.end(
        "quota-exceeded" in control and any(name in found for name in NAMES),
        "reports the quota on limits and the LimitRange, for the API server refuses such pods",
    )


if __name__ == "__main__":
    main()

"""What the API server writes down of requests.

These are those of the accounts that the chart makes, and each time that an account lists pods, as
Spark's drivers do. One line for each, in a file that grows from test to test.
"""

import json
from datetime import datetime
from pathlib import Path

__all__ = ["OPERATOR", "flags", "lists_of_pods"]

OPERATOR = "system:serviceaccount:rekindle:rekindle-operator"
WEBHOOK = "system:serviceaccount:rekindle:rekindle-webhook"
ACCOUNTS = "system:serviceaccounts"
PODS = {"group": "", "resources": ["pods"]}
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "users": [OPERATOR, WEBHOOK]},
        {"level": "Metadata", "userGroups": [ACCOUNTS], "verbs": ["list"], "resources": [PODS]},
        {"level": "None"},
    ],
}


def flags(log: Path) -> list[str]:
    """Arguments of an API server that writes to this file; its policy lies beside it."""
    policy = log.with_suffix(".json")
    policy.write_text(json.dumps(POLICY))
    return [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]


def lists_of_pods(log: Path, namespace: str, account: str) -> list[float]:
    """The moments at which an account has listed pods, in seconds since 1970."""
    user = f"system:serviceaccount:{namespace}:{account}"
    events = map(json.loads, log.read_bytes().rpartition(b"\n")[0].splitlines())
    return [
        datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
        for event in events
        if event["user"]["username"] == user and event["verb"] == "list"
        if event["objectRef"]["resource"] == "pods"
    ]

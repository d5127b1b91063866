"""What the API server writes down of requests: those of the accounts that the chart makes.

One line for each, in a file that grows from test to test.
"""

import json
from pathlib import Path

__all__ = ["OPERATOR", "flags"]

OPERATOR = "system:serviceaccount:rekindle:rekindle-operator"
WEBHOOK = "system:serviceaccount:rekindle:rekindle-webhook"
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [OPERATOR, WEBHOOK]}, {"level": "None"}],
}


def flags(log: Path) -> list[str]:
    """Arguments of an API server that writes to this file; its policy lies beside it."""
    policy = log.with_suffix(".json")
    policy.write_text(json.dumps(POLICY))
    return [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]

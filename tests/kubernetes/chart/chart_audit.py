"""What the installed operator was seen to ask, in the audit log of the API server."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chart_commands import NAMESPACE, pick
from chart_rights import OPERATOR as OPERATORS
from chart_rights import Right, rights

__all__ = ["Audit", "arguments_here", "pairs"]

FORBIDDEN = 403
Pairs = set[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Audit:
    """What an account of the chart has asked since the log was so long (bytes)."""

    log: Path
    since: int = 0
    account: str = OPERATORS

    @staticmethod
    def begin(log: Path, account: str = OPERATORS) -> "Audit":
        """From now on."""
        return Audit(log, log.stat().st_size if log.exists() else 0, account)

    def asked(self) -> list[tuple[Right, int]]:
        """What it has asked about objects, and the status of each answer."""
        found = []
        user = f"system:serviceaccount:{NAMESPACE}:{self.account}"
        for line in self.log.read_bytes()[self.since :].rpartition(b"\n")[0].splitlines():
            event = json.loads(line)
            target = event.get("objectRef")
            if event["user"]["username"] == user and target:
                group, part = target.get("apiGroup", ""), target.get("subresource", "")
                resource = f"{target['resource']}.{group}".rstrip(".") + (
                    f"/{part}" if part else ""
                )
                right = Right(target.get("namespace", ""), resource, "", event["verb"])
                found.append((right, event["responseStatus"]["code"]))
        return found

    def refused(self) -> set[Right]:
        """For what it had no right."""
        return {right for right, status in self.asked() if status == FORBIDDEN}

    def used(self) -> Pairs:
        """Resources and verbs, wherever they are."""
        return {(right.resource, right.verb) for right, _ in self.asked()}


def pairs(objects: list[dict[str, Any]], account: str = OPERATORS) -> Pairs:
    """Resources and verbs of the rights that rendered roles give to an account."""
    return {(right.resource, right.verb) for right in rights(objects, account)}


def arguments_here(objects: list[dict[str, Any]], name: str = OPERATORS) -> list[str]:
    """Those of a Deployment of the chart, but for ports, which are this machine's."""
    deployment = pick(objects, "Deployment", name)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    ports = ("--port=", "--health-port=")
    return [word for word in container["args"] if not word.startswith(ports)]

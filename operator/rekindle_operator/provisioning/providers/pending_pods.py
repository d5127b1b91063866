"""Reports pending pods and their causes; requests nothing.

Executor pods that nobody has room for make every autoscaler act, so this provider needs no
requests, and where it is the only one a person still wants to know why nothing comes. The
scheduler's own words say it. `kubectl rekindle explain` calls it.
"""

from collections import Counter
from collections.abc import Iterable

from rekindle_operator.api.custom_resources import clipped
from rekindle_operator.cluster.json_access import Body, condition, moment, text

REASONS_MAX = 3
REASON_LENGTH_MAX = 150


def describe(pods: Iterable[Body], now: float) -> str:
    """One or two sentences on the executor pods that wait for a node; empty when none does."""
    waiting = [pod for pod in pods if _waits(pod)]
    if not waiting:
        return ""
    created = [moment(text(pod, "metadata", "creationTimestamp")) for pod in waiting]
    oldest = max((now - at for at in created if at is not None), default=0.0)
    number = f"{len(waiting)} executor pod{'s' if len(waiting) > 1 else ''}"
    verb = "wait" if len(waiting) > 1 else "waits"
    reasons = Counter(_reason(pod) for pod in waiting)
    return f"{number} {verb} for a node, the oldest for {max(0.0, oldest):.0f} s: {_told(reasons)}."


def _told(reasons: Counter[str]) -> str:
    """The most frequent reasons, each once."""
    told = [
        reason if len(reasons) == 1 else f"{reason} ({number})"
        for reason, number in reasons.most_common(REASONS_MAX)
    ]
    more = len(reasons) - len(told)
    return "; ".join([*told, f"and {more} more reasons"] if more > 0 else told)


def _waits(pod: Body) -> bool:
    """Whether it is no node's yet, and not on its way out."""
    return (
        text(pod, "status", "phase") == "Pending"
        and not text(pod, "spec", "nodeName")
        and not text(pod, "metadata", "deletionTimestamp")
    )


def _reason(pod: Body) -> str:
    found = condition(pod, "PodScheduled")
    if found is None:
        return "the scheduler has not looked at it yet"
    said = found.message or found.reason or "the scheduler says no more"
    return clipped(said.rstrip("."), REASON_LENGTH_MAX)

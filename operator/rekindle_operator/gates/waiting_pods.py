"""Pods that wait at our scheduling gate, and the gate lifted from them.

    pods ──► those with our gate ──► a patch of each ──► lifted
                                                     ──► changed meanwhile: look at it again
                                                     ──► refused, with why
                                                     ──► gone: passed over

`gate_release` and `kubectl rekindle release` use it, each with its own client. They list pods and
send the patches. A pod of which a change is refused keeps no other waiting.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rekindle_operator.cluster import json_access
from rekindle_operator.cluster.pods import has_gate, without_gate

# The field selector of a list. A pod with a gate is Pending, whatever its labels are.
PENDING = "status.phase=Pending"
NOT_FOUND, CONFLICT = 404, 409

Body = dict[str, Any]
Why = TypeVar("Why")
# Sends a patch of a pod (namespace, name). It returns the status of HTTP and the reason of a
# refusal, or None.
PatchPod = Callable[[str, str, Body], tuple[int, Why] | None]


@dataclass(slots=True)
class Lifted(Generic[Why]):
    """What has become of pods that waited. `changed` and `refused` keep their gate."""

    lifted: list[Body] = field(default_factory=list)
    changed: list[tuple[Body, Why]] = field(default_factory=list)
    refused: list[tuple[Body, Why]] = field(default_factory=list)


def waiting(pods: Iterable[Body]) -> Iterator[Body]:
    """Pods that wait at our gate. One that is being deleted gets no node any more."""
    for pod in pods:
        if not json_access.is_deleting(pod) and has_gate(pod["spec"].get("schedulingGates")):
            yield pod


def lift(pods: Iterable[Body], patch: PatchPod[Why]) -> Lifted[Why]:
    """Take our gate off each pod. What `patch` raises ends it."""
    found: Lifted[Why] = Lifted()
    for pod in pods:
        metadata = pod["metadata"]
        refusal = patch(metadata["namespace"], metadata["name"], without_gate(metadata["uid"]))
        if refusal is None:
            found.lifted.append(pod)
            continue
        status, why = refusal
        if status == CONFLICT:
            found.changed.append((pod, why))
        elif status != NOT_FOUND:
            found.refused.append((pod, why))
    return found

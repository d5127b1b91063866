"""Input of a round of detection as values, and its rules.

Reads nothing: a shell makes these from lists, watches and the reports of drivers. It keeps the
value of a node that has not changed (the same object costs no second look). `node_detector` and
`lease_timers` read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rekindle.coordination import Driver

READY = "True"
# What announces that a node goes on purpose, emptied first. Not among them: taints of spot notices
# (the machine goes whether it is empty or not, and a spot pool that goes is a failure), and
# DeletionCandidateOfClusterAutoscaler (only a candidate).
PLANNED_TAINTS = frozenset(
    {"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"}
)
# The documentation has it as the reason of Ready, the kubelet writes it into the message.
SHUTTING_DOWN = "node is shutting down"


@dataclass(frozen=True, slots=True)
class Rules:
    """How patient detection is; seconds by our own clock.

    A node is silent when its lease has not changed for `lease_intervals` intervals.
    `lease_seconds` is the shortest interval that a lease is granted, whatever it says of itself. A
    driver's word counts for `word_seconds_max`. A gap of more than `gap_seconds` in our own
    observation starts all timers again: with a look every 5 s one failed look is no gap, two are.
    `renewal_slack` is how much later than after an interval a healthy kubelet may renew, as a share
    of it (kubelets add up to 4 %, and the request takes its time). `notice_seconds` (source ->
    seconds) are the deadlines of notices that say none.
    """

    lease_seconds: float = 10.0
    lease_intervals: int = 2
    driver_silence_seconds: float = 15.0
    word_seconds_max: float = 10.0
    gap_seconds: float = 12.0
    renewal_slack: float = 0.1
    planned_taints: frozenset[str] = PLANNED_TAINTS
    notice_seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def period_seconds(self) -> float:
        """How long nothing is confirmed after all timers have started."""
        return self.lease_seconds * self.lease_intervals


@dataclass(frozen=True, slots=True)
class Leases:
    """All leases of `kube-node-lease`, from one list that was complete.

    `tokens` (node -> resourceVersion or renewTime) are compared, never read: a node's clock does
    not matter. `asked_at` and `answered_at` are when the request went out and when its answer was
    there: what it says is as old as the first, and was news to us only at the second. `intervals`
    (node -> seconds) are of the leases that are renewed at other intervals than configured, that
    is, a quarter of their leaseDurationSeconds.
    """

    tokens: Mapping[str, str]
    asked_at: float
    answered_at: float
    intervals: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeNotice:
    """A Node says that it will go: `source` is one of `loss_notices`, `by` what says so in a
    person's words. `at` is when, where that is said, `begun` since when it is said (both in seconds
    since 1970)."""

    source: str
    by: str
    at: float | None = None
    begun: float | None = None


@dataclass(frozen=True, slots=True)
class WatchedNode:
    """A Node object. `ready`, `reason` and `message` are of its condition Ready ("True", "False",
    "Unknown"), `taints` the keys of its taints; `notice` is what says that it will go."""

    uid: str
    ready: str = READY
    reason: str = ""
    message: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    unschedulable: bool = False
    notice: NodeNotice | None = None


@dataclass(frozen=True, slots=True)
class WatchedApplication:
    """An application: the nodes with its executors, and what its driver says of them.

    `silent_seconds` (node -> seconds) is how long the driver had had no result and no heartbeat
    from the executors there when it said so, `said_seconds_ago`; of an executor that it has never
    heard of, as long as it has been waiting for one. Only time in which the driver listened counts.
    A node that is left out is one of which the driver has said nothing. A driver that is silent
    itself may still be there: nothing is confirmed for it.
    """

    executors: frozenset[str]
    driver: Driver = Driver.THERE
    silent_seconds: Mapping[str, float] = field(default_factory=dict)
    said_seconds_ago: float = 0.0


@dataclass(frozen=True, slots=True)
class Observation:
    """All that is known at a moment; None is what was not read this time or could not be.

    `nodes` (name -> node) are all nodes of the cluster, `applications` ("namespace/name" -> ...)
    all that have not ended in order. Nobody changes these mappings afterwards.
    """

    leases: Leases | None = None
    nodes: Mapping[str, WatchedNode] | None = None
    applications: Mapping[str, WatchedApplication] = field(default_factory=dict)


def announcement(node: WatchedNode, rules: Rules) -> str | None:
    """What announces that a node goes on purpose, in a person's words; None when nothing does.

    A cordon alone does not: a cordoned node may run executors for days, and fail.
    """
    for taint in node.taints:
        if taint in rules.planned_taints:
            return f"the taint {taint}"
    if SHUTTING_DOWN in f"{node.reason} {node.message}".lower():
        return f'"{SHUTTING_DOWN}"'
    return None

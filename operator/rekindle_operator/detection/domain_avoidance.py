"""Where new executors should not be: domains that have lost most of their nodes, and silent nodes.

A node is *missing* here when it is lost to some application, or when it is silent alone: suspected,
and others have renewed when it ought to have. Nothing is confirmed of the latter while nobody runs
there, but no kubelet there starts a pod either, and the scheduler takes it for sound for a while
yet. A missing node counts from when its lease was due, however late that was confirmed: a node that
came after that shows that its domain gives nodes.

Used by the judge alone, which tells it of each round.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.pods import moment
from rekindle_operator.detection import failure_domains, lease_timers, node_detector
from rekindle_operator.detection.detection_input import READY, Rules
from rekindle_operator.detection.failure_domains import HOSTNAME, Domain
from rekindle_operator.detection.node_detector import NodeInventory

__all__ = ["Avoidance"]

# Every new executor names them all. Of more the longest missing are named, beside those that its
# application has lost: executors that come to others are made anew once their driver misses them.
SILENT_NODES_MAX = 100


@dataclass(slots=True)
class Avoidance:
    """What is kept of missing nodes: their `labels`, which outlive their Node objects, and since
    when (seconds since 1970) each has been missing. `silent` are those that are suspected, and were
    silent alone at least once."""

    known: ClusterView
    labels: dict[str, Mapping[str, str]] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()
    _since: dict[str, float] = field(default_factory=dict)
    _impaired: dict[tuple[str, ...], tuple[Domain, ...]] = field(default_factory=dict)

    def note(self, state: NodeInventory, now: float, rules: Rules) -> bool:
        """After a round of detection at `now` (`time.monotonic`); whether something else is avoided
        than before it. A silent node stays one until it is heard of, also while we have not looked
        for long enough to say it anew."""
        silent, impaired = self.silent, dict(self._impaired)
        known = self.silent & state.suspects.keys()
        self.silent = known | node_detector.silent_nodes(state, now, rules)
        missing = state.told.keys() | self.silent
        for name in missing:
            if name not in self._since:
                silence = lease_timers.overdue_seconds(state.timers, name, now, rules)
                self._since[name] = self._missing_since(name, time.time() - silence)
            node = self.known.registry.nodes.get(name)
            if node is not None:
                self.labels[name] = node.judged.labels
        for kept in (self.labels, self._since):
            for name in kept.keys() - missing:
                del kept[name]
        self._impaired.clear()
        otherwise = any(self.impaired(keys) != domains_ for keys, domains_ in impaired.items())
        return otherwise or self.silent != silent

    def _missing_since(self, name: str, due_at: float) -> float:
        """From when its lease was due, in whole seconds as Nodes have their moments; what had
        happened before we looked, Kubernetes has said by Ready."""
        node = self.known.registry.nodes.get(name)
        said_at = moment(node.ready_since) if node and node.judged.ready != READY else 0
        return min(int(due_at), said_at or int(due_at))

    def impaired(self, keys: tuple[str, ...]) -> tuple[Domain, ...]:
        """The domains by these labels that have lost most of their nodes."""
        if not self._since:
            return ()
        if keys not in self._impaired:  # the same for all applications until the next round
            nodes = self.known.registry.nodes
            labels = {
                **{name: self.labels.get(name, {}) for name in self._since},
                **{name: node.judged.labels for name, node in nodes.items()},
            }
            up = {
                name: moment(node.created_at)
                for name, node in nodes.items()
                if node.judged.ready == READY
            }
            self._impaired[keys] = failure_domains.impaired(
                failure_domains.judge(labels, self._since, keys, up)
            )
        return self._impaired[keys]

    def hosts(self, lost: frozenset[str]) -> tuple[Domain, ...]:
        """The nodes that an application which has lost these should avoid, one by one."""
        longest = sorted(self.silent, key=lambda name: (self._since[name], name))
        named = lost.union(longest[:SILENT_NODES_MAX])
        return tuple(Domain(HOSTNAME, name) for name in sorted(named))

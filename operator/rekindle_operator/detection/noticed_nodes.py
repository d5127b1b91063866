"""The nodes that are announced to go, each with its deadline, from round to round.

    notices of Nodes, evictions ──► noticed ──deadline──► due ──not Ready, or gone──► overdue

`loss_notices` reads a notice from a Node. Here is what one look does not show: since when a notice
is known, that a drain goes on, and that a Node is gone before its loss is confirmed.
`detection_runner` keeps one of these, and asks it in each round.
"""

import math
from dataclasses import dataclass, field, replace

from rekindle.coordination.coordination_events import LossNotice
from rekindle.protocol.store_paths import Place
from rekindle_operator.cluster.application_matching import MatchedApplication
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.detection import loss_notices
from rekindle_operator.detection.detection_input import READY, Rules

# A notice is of no use so long after its deadline.
KEPT_SECONDS = 600.0
# What a drain is called in records.
DRAINED = loss_notices.DRAIN


@dataclass(frozen=True, slots=True)
class NoticedNode:
    """A node that says that it will go. It is `due` when that moment has passed, not longer ago
    than `KEPT_SECONDS`; a drained node is not, for its machine may stay. It is `overdue` when it is
    due and its object is gone or not Ready. One that is `off` is out of service, whatever else
    holds; one that `stays` is Ready longer than that after the moment. The deadline is `counted`
    where nobody has said a moment."""

    uid: str
    notice: LossNotice
    due: bool = False
    overdue: bool = False
    off: bool = False
    stays: bool = False
    counted: bool = True


@dataclass(slots=True)
class Notices:
    """What nodes say of their own end, and what their executors show of it: nodes of an application
    on which executors are being `evicted`, and on which others are `standing`. A deletion without
    eviction is no drain: a batch that ends, dynamic allocation and `pod_eviction` delete as well.
    """

    known: ClusterView
    noticed: dict[str, NoticedNode] = field(default_factory=dict)
    evicted: dict[Place, frozenset[str]] = field(default_factory=dict)
    standing: dict[Place, frozenset[str]] = field(default_factory=dict)
    # by machine and what says so: since when it is known, and the deadline that was recorded
    _since: dict[tuple[str, str], float] = field(default_factory=dict)
    _recorded: dict[tuple[str, str], float] = field(default_factory=dict)

    def observe(self, place: Place, application: MatchedApplication | None) -> None:
        """An application has changed, or is gone."""
        pods = () if application is None else application.executors
        there = [pod for pod in pods if pod.node and not pod.ended]
        evicted = frozenset(pod.node for pod in there if pod.deleting_at and pod.evicted)
        standing = frozenset(pod.node for pod in there if not pod.deleting_at)
        for kept, nodes in ((self.evicted, evicted), (self.standing, standing)):
            if nodes:
                kept[place] = nodes
            else:
                kept.pop(place, None)

    def recall(self, node: str, recorded: LossNotice) -> None:
        """A deadline was recorded before: an operator that has started since then, and counts from
        when it first saw the notice, makes it no later."""
        item = self.noticed.get(node)
        if item is None or not item.counted or item.notice.source != recorded.source:
            return
        if recorded.until < item.notice.until:
            self._recorded[item.uid, item.notice.source] = recorded.until
            notice = replace(item.notice, until=recorded.until)
            self.noticed[node] = replace(item, notice=notice)

    def refresh(self, now: float, rules: Rules) -> frozenset[str]:
        """Look again at `now` (seconds since 1970); the nodes for which something else holds."""
        leaving = self.known.registry.leaving_nodes
        if not leaving and not self.noticed:
            return frozenset()
        # where nothing stands any more, there is nothing to save
        drained = leaving.intersection(frozenset().union(*self.evicted.values()))
        drained &= frozenset().union(*self.standing.values()) if drained else drained
        found: dict[str, NoticedNode] = {}
        for name in leaving:
            item = self._noticed(name, now, rules, drains=name in drained)
            if item is not None:
                found[name] = item
        found |= self._gone(now)
        changed = {
            name
            for name in found.keys() | self.noticed.keys()
            if found.get(name) != self.noticed.get(name)
        }
        self.noticed = found
        kept = {(item.uid, item.notice.source) for item in found.values()}
        self._since = {key: at for key, at in self._since.items() if key in kept}
        self._recorded = {key: at for key, at in self._recorded.items() if key in kept}
        return frozenset(changed)

    def _gone(self, now: float) -> dict[str, NoticedNode]:
        """Nodes whose object is gone: their notices hold until their loss is told."""
        nodes = self.known.registry.nodes
        return {
            name: replace(item, overdue=item.overdue or now >= item.notice.until)
            for name, item in self.noticed.items()
            if name not in nodes and now < item.notice.until + KEPT_SECONDS
        }

    def _noticed(self, name: str, now: float, rules: Rules, *, drains: bool) -> NoticedNode | None:
        node = self.known.registry.nodes[name].judged
        before = self.noticed.get(name)
        # an executor that is gone ends no drain; taking the cordon away does
        drains |= before is not None and (before.uid, before.notice.source) == (node.uid, DRAINED)
        said = loss_notices.of_drain(node, evicts_executor=drains)
        if said is None:
            return None
        key = node.uid, said.by
        until = loss_notices.deadline(said, self._since.setdefault(key, now), rules.notice_seconds)
        if said.at is None:
            until = min(until, self._recorded.get(key, math.inf))
        is_due = until <= now < until + KEPT_SECONDS and said.source != DRAINED
        return NoticedNode(
            uid=node.uid,
            notice=LossNotice(said.by, until),
            due=is_due,
            overdue=is_due and node.ready != READY,
            off=said.source == loss_notices.OUT_OF_SERVICE,
            counted=said.at is None,
            stays=now >= until + KEPT_SECONDS and node.ready == READY,
        )

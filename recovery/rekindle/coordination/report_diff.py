"""A driver's report into the events that it means for the coordinator.

Reports say how things are; events say what has changed against what the coordinator knows. So a
report that comes twice, late or after others have been lost means what it should: observing the
same one again gives no event that changes anything. Pure; `session` and the driver call it.
"""

from collections.abc import Collection, Iterator, Mapping

from rekindle.coordination import announced_losses
from rekindle.coordination import coordination_events as happened
from rekindle.coordination.coordination_events import LossNotice
from rekindle.coordination.coordination_state import (
    CoordinationState,
    NodeStatus,
    NodeView,
    announced,
    with_status,
)
from rekindle.protocol import CheckpointReport, NodeSeen, ProgressReport, StatisticsReport

Observed = ProgressReport | StatisticsReport | CheckpointReport


def located(state: CoordinationState, domains: Mapping[str, str]) -> dict[str, str]:
    """Nodes that we know, in another failure domain than we knew (node -> domain)."""
    return {
        node: domains[node]
        for node, view in state.nodes.items()
        if node in domains and domains[node] != view.domain
    }


def named(state: CoordinationState, report: ProgressReport) -> dict[str, str]:
    """Nodes that are there, with what the cluster calls them where we knew another name, or none
    (node -> name)."""
    found: dict[str, str] = {}
    for node, seen in report.nodes.items():
        view = state.nodes.get(node)
        if seen.cluster_node is None or view is None or view.status is NodeStatus.LOST:
            continue
        if view.incarnation == seen.incarnation and view.cluster_node != seen.cluster_node:
            found[node] = seen.cluster_node
    return found


def notices_differ(state: CoordinationState, notices: Mapping[str, LossNotice]) -> bool:
    """Whether other nodes are announced to go than we know, from another source or to another
    moment."""
    known = announced(state)
    there = with_status(state, NodeStatus.UP, NodeStatus.SUSPECTED)
    said = {node: notices[node] for node in there if node in notices}
    if known.keys() != said.keys():
        return True
    return any(announced_losses.differs(notice, said[node]) for node, notice in known.items())


def observe(
    state: CoordinationState, report: Observed, domains: Mapping[str, str]
) -> tuple[happened.Event, ...]:
    """The events of a report, in the order in which they have to be told. `domains` (node ->
    failure domain) go before what the driver says of them."""
    match report:
        case StatisticsReport():
            event = happened.StatisticsReported(
                report.costs, report.state_bytes, overhead_percent=report.overhead_percent
            )
            return (event,)
        case CheckpointReport():
            known = state.last_checkpoint
            news = known is None or report.epoch > known
            return (happened.CheckpointCompleted(report.epoch),) if news else ()
        case ProgressReport():
            return tuple(_progress(state, report, domains))


def heard_again(
    state: CoordinationState, report: ProgressReport, gone: Collection[str]
) -> tuple[happened.Event, ...]:
    """Nodes that count as lost and have the executor that they had: nobody has told the driver to
    drop it, and it is heard. `gone` are those that the node provider still says are lost."""
    back = [
        happened.NodeBack(node, seen.capacity_percent, seen.domain, seen.incarnation)
        for node, seen in sorted(report.nodes.items())
        if node not in gone and not seen.suspected and _is_same(state.nodes.get(node), seen)
    ]
    if not back:
        return ()
    return (*back, _placed(report))


def _is_same(view: NodeView | None, seen: NodeSeen) -> bool:
    lost = view is not None and view.status is NodeStatus.LOST
    return lost and view is not None and view.incarnation == seen.incarnation


def _progress(
    state: CoordinationState, report: ProgressReport, domains: Mapping[str, str]
) -> Iterator[happened.Event]:
    lost = [node for node, view in sorted(state.nodes.items()) if _is_gone(view, report, node)]
    if lost:
        yield happened.NodesLost(tuple(lost))
    for node, seen in sorted(report.nodes.items()):
        if _is_news(state.nodes.get(node), seen):
            domain = domains.get(node, seen.domain)
            yield happened.NodeBack(node, seen.capacity_percent, domain, seen.incarnation)
        if seen.suspected:
            yield happened.NodeSuspected(node)
        known = state.nodes.get(node)
        if seen.slow != (known is not None and known.slow):
            yield happened.NodePaced(node, seen.slow)
    placed = _placed(report)
    yield placed
    if state.unacknowledged is None:
        for query in sorted(state.catching_up):
            if state.closures[query] <= placed.live:
                yield happened.QueryCaughtUp(query)


def _placed(report: ProgressReport) -> happened.PlacementReported:
    return happened.PlacementReported(
        report.placement,
        frozenset(report.live),
        report.resident,
        report.plan_epoch,
        report.moving,
        report.stopped,
        report.buffering,
    )


def _is_gone(view: NodeView, report: ProgressReport, node: str) -> bool:
    """Whether a node that counted as there has no executor any more, or another one."""
    if view.status is NodeStatus.LOST:
        return False
    seen = report.nodes.get(node)
    return seen is None or seen.incarnation != view.incarnation


def _is_news(view: NodeView | None, seen: NodeSeen) -> bool:
    """Whether a node is there that was not, or with another capacity, or no longer silent.

    An executor that is lost as far as we know stays so until the driver has another one there: the
    driver may simply not have heard of it yet.
    """
    if view is None:
        return True
    if view.status is NodeStatus.LOST:
        return seen.incarnation != view.incarnation
    cleared = view.status is NodeStatus.SUSPECTED and not seen.suspected
    return cleared or (seen.incarnation, seen.capacity_percent) != (
        view.incarnation,
        view.capacity_percent,
    )

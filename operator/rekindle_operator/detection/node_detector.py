"""Lost nodes from observations: `detect(state, observation, now, rules)`, a round at a time.

A node is suspected when its lease has stopped, for everybody. That it is lost is confirmed for one
application at a time: its driver, where it is alive, has had nothing from its executors there, or,
with the driver dead, the node is not Ready. For a kubelet may stop while executors run on, and no
healthy executor may be killed. When every node of the cluster looks lost it is we who cannot see:
nothing is confirmed until a lease that had stopped changes or a node is Ready. Then, as after a gap
in our own observation, all timers start again.

Pure: the moment is an argument, a round may be repeated, and a state that begins anew errs towards
patience. docs/detection.md has the time line. The operator's shell calls it, and acts on verdicts.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from rekindle.coordination import Driver
from rekindle.model.reasons import Reason
from rekindle_operator.detection import lease_timers, node_inventory
from rekindle_operator.detection.detection_events import (
    DetectionEvent,
    DetectionKind,
    DetectionReason,
    Word,
)
from rekindle_operator.detection.detection_input import (
    READY,
    Observation,
    Rules,
    WatchedApplication,
    WatchedNode,
)
from rekindle_operator.detection.node_inventory import Gone, NodeInventory

Verdicts = tuple[DetectionEvent, ...]


def detect(
    state: NodeInventory, observation: Observation, now: float, rules: Rules
) -> tuple[NodeInventory, Verdicts]:
    """The state after an observation at `now` (seconds), and what it has shown, in order.

    A round comes with each look at the leases, and may come in between with what drivers say.
    """
    before = state
    timers, stirred = lease_timers.read(state.timers, observation.leases, rules)
    state = node_inventory.take_in(replace(state, timers=timers), observation, now, rules)
    if timers is not before.timers:
        ready = _ready_without_lease(state)
        state = replace(state, timers=lease_timers.watch(state.timers, ready, timers.answered_at))
        stirred |= ready
    state, heard = _hear(state, stirred, now)
    silent = lease_timers.silent(state.timers, rules)
    state, suspected = _suspect(state, silent, now, rules)
    if state.held_at is None:
        state, turned = _hold(state, silent, now, rules)
    else:
        stopped = lease_timers.silent(before.timers, rules) | before.suspects.keys()
        state, turned = _release(
            state, silent, rules, now, stirs=bool(stopped & stirred & state.nodes.keys())
        )
    lost: Verdicts = ()
    if state.held_at is None and lease_timers.steady(state.timers, now, rules):
        state, deleted = (state, ()) if observation.nodes is None else _judge_gone(state, now)
        state, silenced = _judge_silent(state, now, rules)
        lost = (*deleted, *silenced)
    return node_inventory.forget_told(state), (*heard, *suspected, *turned, *lost)


def silent_nodes(
    state: NodeInventory, now: float, rules: Rules, among: Iterable[str] | None = None
) -> frozenset[str]:
    """Nodes of the list, ours or not, that are suspected and singled out; of `among`, where not all
    are asked about. What runs there may well go on, but nothing new can start there."""
    if state.held_at is not None or not lease_timers.steady(state.timers, now, rules):
        return frozenset()
    return frozenset(
        name
        for name in (state.suspects if among is None else among)
        if name in state.suspects
        and lease_timers.is_silent(state.timers, name, rules)
        and lease_timers.singled_out(state.timers, name, rules)
    )


def late_nodes(
    state: NodeInventory, now: float, rules: Rules, among: Iterable[str]
) -> frozenset[str]:
    """Those of `among` whose lease has missed one renewal while others were renewed. That says
    something only of nodes of which it is announced that they are gone by now."""
    if state.held_at is not None or not lease_timers.steady(state.timers, now, rules):
        return frozenset()
    return frozenset(
        name
        for name in among
        if name in state.timers.since and lease_timers.singled_out(state.timers, name, rules)
    )


def looks_lost(
    state: NodeInventory, now: float, rules: Rules, among: Iterable[str] | None = None
) -> frozenset[str]:
    """The silent nodes that are not Ready, or lost to some application: they count as lost without
    a driver's word. For whoever has to know whether a driver is gone with its node."""
    return frozenset(
        name
        for name in silent_nodes(state, now, rules, among)
        if state.nodes[name].ready != READY or state.told.get(name)
    )


def _ready_without_lease(state: NodeInventory) -> frozenset[str]:
    """Nodes that never had a lease and are Ready: that is the only sign of life they can give."""
    return frozenset(
        name
        for name in state.nodes.keys() - state.timers.tokens.keys()
        if state.nodes[name].ready == READY
    )


def _hear(
    state: NodeInventory, stirred: frozenset[str], now: float
) -> tuple[NodeInventory, Verdicts]:
    """Nodes with a sign of life: the suspicion is over, and who had lost them has them back."""
    known = state.suspects.keys() | state.leaving.keys() | state.told.keys()
    names = known & stirred & state.nodes.keys()
    if not names:
        return state, ()
    verdicts = []
    for name in sorted(names):
        uid = state.nodes[name].uid
        if name in state.suspects:
            text = f"Node {name} has been heard of again after {now - state.suspects[name]:.0f} s."
            reason = Reason.SUSPICION_CLEARED
            verdicts.append(DetectionEvent(DetectionKind.CLEARED, reason, now, text, name, uid=uid))
        for application in _addressees(state.told.get(name)):
            text = f"Node {name} is back{_whom('for', application)}."
            back = DetectionEvent(
                DetectionKind.RETURNED, Reason.NODE_BACK, now, text, name, application, uid
            )
            verdicts.append(back)
    suspects = {name: at for name, at in state.suspects.items() if name not in names}
    leaving = {name: what for name, what in state.leaving.items() if name not in names}
    told = {name: those for name, those in state.told.items() if name not in names}
    return replace(state, suspects=suspects, leaving=leaving, told=told), tuple(verdicts)


def _suspect(
    state: NodeInventory, silent: frozenset[str], now: float, rules: Rules
) -> tuple[NodeInventory, Verdicts]:
    """Nodes whose lease has stopped, except those of which that was announced."""
    fresh = silent - state.suspects.keys() - state.leaving.keys()
    if not fresh:
        return state, ()
    verdicts = []
    suspects, leaving = dict(state.suspects), dict(state.leaving)
    for name in sorted(fresh):
        node = state.nodes[name]
        departure = node_inventory.departure(state, name, node, state.applications, rules)
        if departure is not None:
            leaving[name] = departure
            continue
        suspects[name] = now
        text = f"The lease of node {name} has not changed for {_silence(state, name)}."
        reason = Reason.SUSPECTED_FAILURE
        verdicts.append(
            DetectionEvent(DetectionKind.SUSPECTED, reason, now, text, name, uid=node.uid)
        )
    return replace(state, suspects=suspects, leaving=leaving), tuple(verdicts)


def _hold(
    state: NodeInventory, silent: frozenset[str], now: float, rules: Rules
) -> tuple[NodeInventory, Verdicts]:
    """Hold when every node is out: silent, suspected, gone, or not Ready and not renewing."""
    accidents = [item for item in state.gone.values() if item.departure is None]
    if not (accidents or silent & state.suspects.keys()) or not _all_out(state, silent, rules):
        return state, ()
    count = len(state.timers.since) + len(accidents)
    text = f"All nodes of the cluster ({count}) look lost: it may be us, so nothing is confirmed."
    held = DetectionEvent(DetectionKind.HELD, Reason.ALL_NODES_LOST, now, text)
    return replace(state, held_at=now), (held,)


def _release(
    state: NodeInventory, silent: frozenset[str], rules: Rules, now: float, *, stirs: bool
) -> tuple[NodeInventory, Verdicts]:
    """Let go when a lease that had stopped has changed (`stirs`), or a node is there again."""
    assert state.held_at is not None
    if not stirs and _all_out(state, silent, rules):
        return state, ()
    text = f"The cluster answers after {now - state.held_at:.0f} s: all timers start again."
    state = replace(state, timers=lease_timers.restart(state.timers, now), held_at=None)
    return state, (
        DetectionEvent(DetectionKind.RELEASED, DetectionReason.CLUSTER_ANSWERS, now, text),
    )


def _all_out(state: NodeInventory, silent: frozenset[str], rules: Rules) -> bool:
    """Whether no node shows a sign of life: a renewed lease is one, whatever Ready says."""
    return all(
        name in silent
        or name in state.suspects
        or (
            state.nodes[name].ready != READY and not lease_timers.renewed(state.timers, name, rules)
        )
        for name in state.timers.since
    )


def _judge_gone(state: NodeInventory, now: float) -> tuple[NodeInventory, Verdicts]:
    """Machines whose Node object is gone: departed as announced, or lost to all who used them."""
    asked_at = state.timers.asked_at
    assert asked_at is not None
    due = {name: item for name, item in state.gone.items() if item.due_at <= asked_at}
    if not due:
        return state, ()
    verdicts: list[DetectionEvent] = []
    told = dict(state.told)
    for name, item in sorted(due.items()):
        known = told.get(name)
        told[name] = (known or frozenset()) | item.applications
        if known is not None and item.applications <= known:
            continue
        for application in _addressees(item.applications - (known or frozenset())):
            verdicts.append(_gone(name, item, application, now))
    gone = {name: item for name, item in state.gone.items() if name not in due}
    suspects = {
        name: at for name, at in state.suspects.items() if name not in due or name in state.nodes
    }
    return replace(state, gone=gone, suspects=suspects, told=told), tuple(verdicts)


def _gone(name: str, item: Gone, application: str | None, now: float) -> DetectionEvent:
    uid = None if item.node is None else item.node.uid
    if item.departure is not None:
        text = f"Node {name} has gone, announced by {item.departure}."
        reason = DetectionReason.DEPARTURE_ANNOUNCED
        return DetectionEvent(DetectionKind.DEPARTED, reason, now, text, name, application, uid)
    replaced = item.reason is DetectionReason.NODE_REPLACED
    why = "another machine has its name" if replaced else "it was deleted without announcement"
    text = f"Node {name} is lost{_whom('to', application)}: {why}."
    return DetectionEvent(DetectionKind.CONFIRMED, item.reason, now, text, name, application, uid)


def _judge_silent(state: NodeInventory, now: float, rules: Rules) -> tuple[NodeInventory, Verdicts]:
    """Silent nodes for which each application has evidence of its own.

    Only those singled out: others made a renewal that these missed.
    """
    candidates = frozenset(
        name
        for name in lease_timers.silent(state.timers, rules)
        if lease_timers.singled_out(state.timers, name, rules)
    )
    if not candidates:
        return state, ()
    verdicts: list[DetectionEvent] = []
    for application, view in sorted(state.applications.items()):
        for name in sorted(view.executors & candidates):
            if application not in state.told.get(name, ()):
                verdicts.extend(_silenced(state, name, application, view, now, rules))
    told = dict(state.told)
    for verdict in verdicts:
        assert verdict.node is not None
        assert verdict.application is not None
        told[verdict.node] = told.get(verdict.node, frozenset()) | {verdict.application}
    return replace(state, told=told), tuple(verdicts)


def _silenced(
    state: NodeInventory,
    name: str,
    application: str,
    view: WatchedApplication,
    now: float,
    rules: Rules,
) -> Verdicts:
    node = state.nodes[name]
    evidence = _evidence(name, node, view, rules)
    if evidence is None:
        return ()
    reason, why = evidence
    departure = state.leaving.get(name)
    if departure is not None:
        text = f"Node {name} has gone, announced by {departure}: {why}."
        kind, reason = DetectionKind.DEPARTED, DetectionReason.DEPARTURE_ANNOUNCED
    else:
        still = f"its lease has not changed for {_silence(state, name)}"
        text = f"Node {name} is lost to {application}: {still}, and {why}."
        kind = DetectionKind.CONFIRMED
    return (DetectionEvent(kind, reason, now, text, name, application, node.uid),)


def _evidence(
    name: str, node: WatchedNode, view: WatchedApplication, rules: Rules
) -> tuple[Word, str] | None:
    """What beside its lease says that a node is lost to an application, as reason and in words."""
    if view.driver is Driver.THERE and view.said_seconds_ago <= rules.word_seconds_max:
        seconds = view.silent_seconds.get(name, 0.0)
        if seconds >= rules.driver_silence_seconds:
            why = f"the driver has had nothing from its executors there for {seconds:.0f} s"
            return DetectionReason.DRIVER_HEARS_NOTHING, why
    if view.driver is Driver.GONE and node.ready != READY:
        return (
            DetectionReason.NODE_NOT_READY,
            f"Ready is {node.ready} and there is no driver to ask",
        )
    return None


def _silence(state: NodeInventory, name: str) -> str:
    assert state.timers.asked_at is not None
    return f"{state.timers.asked_at - state.timers.since[name]:.0f} s"


def _addressees(applications: Collection[str] | None) -> tuple[str | None, ...]:
    """To whom a verdict goes: each application, or nobody in particular; to none without any."""
    if applications is None:
        return ()
    return tuple(sorted(applications)) or (None,)


def _whom(word: str, application: str | None) -> str:
    return "" if application is None else f" {word} {application}"

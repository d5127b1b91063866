"""Runs rounds of detection, and keeps which nodes are lost to which application.

    leases, nodes, executors, drivers' words ──► detection ──► lost nodes, sightings, domains

Keeps the state that detection hands back; both operators do, so that whoever takes over knows at
once what the other one knew. All answers are about how things are now, never about what has just
happened. Used by the deciding thread alone; asks nobody.
"""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from rekindle.coordination.coordination_events import LossNotice
from rekindle.coordination.session import ApplicationReading, Case, Driver
from rekindle.protocol import Heartbeat, ProgressReport
from rekindle.protocol.store_paths import Place
from rekindle_operator.api.recovery_class import Detection
from rekindle_operator.cluster.application_matching import MatchedApplication
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.pods import PodSeen, moment
from rekindle_operator.detection import (
    failure_domains,
    lease_timers,
    node_detector,
    node_inventory,
)
from rekindle_operator.detection.detection_events import DetectionEvent
from rekindle_operator.detection.detection_input import READY, Leases, Observation, Rules
from rekindle_operator.detection.detection_input import WatchedApplication as Observed
from rekindle_operator.detection.failure_domains import HOSTNAME, Domain
from rekindle_operator.detection.node_inventory import NodeInventory
from rekindle_operator.detection.noticed_nodes import DRAINED, Notices
from rekindle_operator.policies.effective_policy import Effective
from rekindle_operator.recovery import lost_nodes
from rekindle_operator.recovery.recovery_inputs import NodeObservation, lost_hosts

# What was heard on a node where no executor is any more is of no use after that.
KEPT_SECONDS = 600.0


# What a driver has said of the executors on each node, and how long it has heard nothing there.
#
# A driver reports the executors that it knows, each with how long it has been silent. One that it
# has dropped, or has never heard of, is in no report, though its pod may stand there as Running
# for ever. A node is as silent as the least silent executor that was ever reported there; where
# none was, since the first report that lacked the one that is there. So one that is put on a lost
# node, in place of another that was deleted, is no sign of life. Pure.
#
# Why: docs/decisions/0035-a-node-is-as-silent-as-its-executors.md.


@dataclass(frozen=True, slots=True)
class DriverSilence:
    """What the newest report of a driver says. `said_at` (seconds, our clock) is when it was news;
    `heard_at` (node -> moment) since when a node has been silent; `silent_seconds` (node ->
    seconds) is that of nodes with executors, as of `said_at`, `reported_seconds` the same of the
    executors in the report alone."""

    generation: int
    said_at: float
    heard_at: Mapping[str, float] = field(default_factory=dict)
    silent_seconds: Mapping[str, float] = field(default_factory=dict)
    reported_seconds: Mapping[str, float] = field(default_factory=dict)

    def hears(self, node: str, seconds: float) -> bool:
        """Whether the driver had heard of an executor on a node within so many seconds."""
        return self.reported_seconds.get(node, seconds) < seconds


def hear(
    before: DriverSilence | None, progress: ProgressReport, executors: Iterable[PodSeen], now: float
) -> DriverSilence:
    """After a report that came at `now`; `executors` are the pods of the driver that reports.

    A driver that was started anew has never heard of anybody: all its patience begins again.
    """
    there = [pod for pod in executors if pod.node and not pod.ended]
    located = node_inventory.locate(progress.nodes, there)
    reported = {pod.uid: progress.nodes[name] for name, pod in located.pods.items()}
    same = before is not None and before.generation == progress.generation
    known = before.heard_at if before is not None and same else {}
    heard_at = {node: at for node, at in known.items() if now - at < KEPT_SECONDS}
    reporting: dict[str, float] = {}
    for pod in there:
        seen = reported.get(pod.uid)
        if seen is None:
            continue
        last = now - (seen.silent_seconds or 0.0)
        heard_at[pod.node] = max(heard_at.get(pod.node, last), last)
        if seen.silent_seconds is not None:
            seconds = seen.silent_seconds
            reporting[pod.node] = min(reporting.get(pod.node, seconds), seconds)
    for pod in there:
        heard_at.setdefault(pod.node, now)  # where none was ever reported
    silent = {pod.node: now - heard_at[pod.node] for pod in there}
    return DriverSilence(progress.generation, now, heard_at, silent, reporting)


# Where new executors should not be: domains that have lost most of their nodes, and silent nodes.
#
# A node is *missing* here when it is lost to some application, or when it is silent alone:
# suspected, and others have renewed when it ought to have. Nothing is confirmed of the latter
# while nobody runs there, but no kubelet there starts a pod either, and the scheduler takes it for
# sound for a while yet. A missing node counts from when its lease was due, however late that was
# confirmed: a node that came after that shows that its domain gives nodes.

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
    # the nodes that have been silent longest, the longest first
    _longest: dict[str, Domain] = field(default_factory=dict)

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
        ordered = sorted(self.silent, key=lambda name: (self._since[name], name))
        # the same objects as before, as a thousand applications avoid them
        self._longest = {
            name: self._longest.get(name) or Domain(HOSTNAME, name)
            for name in ordered[:SILENT_NODES_MAX]
        }
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
        """The nodes that an application which has lost these should avoid, one by one: its own
        first, as a list that is too long is cut."""
        more = sorted(lost - self._longest.keys())
        return (*(Domain(HOSTNAME, name) for name in more), *self._longest.values())


ROUND_SECONDS = 0.5
# What a driver has heard from so recently is there, whatever was judged before.
HEARD_SECONDS = 5.0


@dataclass(slots=True)
class DetectionRunner:
    """Moments are of `time.monotonic` unless said otherwise. `_doubted` are applications whose
    drivers hear from nodes that they have lost: they are looked at again with the next round.
    `_decided` are the newest cases, `_lost` the Nodes that their open incidents have lost."""

    known: ClusterView
    avoidance: Avoidance = field(init=False)
    announced: Notices = field(init=False)
    state: NodeInventory = field(default_factory=NodeInventory)
    sightings: dict[Place, dict[str, NodeObservation]] = field(default_factory=dict)
    _decided: dict[Place, Case] = field(default_factory=dict)
    _lost: dict[Place, frozenset[str]] = field(default_factory=dict)
    _heard: dict[Place, DriverSilence] = field(default_factory=dict)
    _readings: dict[Place, ApplicationReading] = field(default_factory=dict)
    _observed: dict[str, Observed] = field(default_factory=dict)
    _drivers: dict[Place, str] = field(default_factory=dict)
    _hosts: dict[Place, dict[str, tuple[str, str]]] = field(default_factory=dict)
    _hosts_for: dict[Place, tuple[ProgressReport, MatchedApplication]] = field(default_factory=dict)
    _told: Mapping[str, frozenset[str]] = field(default_factory=dict)
    _told_to: dict[str, list[str]] = field(default_factory=dict)
    _doubted: set[Place] = field(default_factory=set)
    _leases: Leases | None = None
    _round_at: float = 0.0
    _rules: tuple[tuple[Detection, ...], Rules] = field(default_factory=lambda: ((), Rules()))
    _verdicts: list[tuple[DetectionEvent, float | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.avoidance = Avoidance(self.known)
        self.announced = Notices(self.known)

    @property
    def rules(self) -> Rules:
        """How patient detection is: as the most patient class says."""
        wanted = tuple(class_.spec.detection for class_ in list(self.known.classes.values()))
        known, rules = self._rules
        if wanted == known:
            return rules
        rules = (
            Rules(
                lease_seconds=max(float(item.lease_seconds) for item in wanted),
                lease_intervals=max(item.lease_intervals for item in wanted),
                driver_silence_seconds=max(float(item.driver_silence_seconds) for item in wanted),
                notice_seconds=_soonest(wanted),
            )
            if wanted
            else Rules()
        )
        self._rules = wanted, rules
        return rules

    def hear(self, place: Place, reading: ApplicationReading, now: float) -> None:
        """An application's records have changed. Of one without objects nothing is kept: it is
        heard again once they are there."""
        application, progress = self.known.application(place), reading.progress
        if application is None:
            return
        before = self._readings.get(place)
        self._readings[place] = reading
        if progress is None:
            return
        if before is None or before.progress is not progress:
            heard = self._heard.get(place)
            self._heard[place] = hear(heard, progress, application.executors, now)
            self.hosts(place)
        self._observe(place)

    def note_decision(self, place: Place, case: Case) -> None:
        """A case was decided about. Its record also tells of losses before this operator began."""
        self._decided[place] = case
        incident = case.incident
        lost = {} if incident is None else lost_hosts(incident, self.hosts_ever(place))
        self._lost[place] = frozenset(lost.values())

    def forget_decisions(self) -> None:
        """Another one decides from now on."""
        self._decided.clear()
        self._lost.clear()

    def forget(self, place: Place) -> None:
        """An application that is gone."""
        for kept in (self._heard, self._readings, self.sightings, self._drivers, self._hosts):
            kept.pop(place, None)
        self._decided.pop(place, None)
        self._lost.pop(place, None)
        self._hosts_for.pop(place, None)
        self._doubted.discard(place)
        self._observed.pop(str(place), None)

    def judge(
        self, changed: Iterable[Place], leases: Leases | None, now: float
    ) -> frozenset[Place]:
        """After changes of some applications, and perhaps a new list of leases: those for which
        something is otherwise now."""
        for place in changed:
            self._observe(place)
        noticed = self.announced.refresh(time.time(), self.rules)
        stirred = self._places_on(noticed) if noticed else frozenset()
        fresh = leases if leases is not self._leases else None
        waiting = bool(self.state.suspects or self.state.gone) or self.state.held_at is not None
        if fresh is None and not (waiting and now - self._round_at >= ROUND_SECONDS):
            return stirred
        self._leases, self._round_at = leases, now
        before = self.state
        nodes = {name: node.judged for name, node in self.known.registry.nodes.items()}
        observation = Observation(fresh, nodes, self._views(now))
        self.state, verdicts = node_detector.detect(before, observation, now, self.rules)
        otherwise = self.avoidance.note(self.state, now, self.rules)
        self._verdicts += [(item, before.suspects.get(item.node or "")) for item in verdicts]
        # a driver's word ages, which is no news to anybody else
        touched, self._doubted = stirred | self._doubted, set()
        late = self._late(self.announced.noticed)
        if late:  # what a driver says of them counts from now on
            touched |= self._places_on(late)
        if otherwise:
            touched |= {_place(name) for those in self.state.told.values() for name in those}
            touched |= {place for place, lost in self._lost.items() if lost}
        return touched | (self._sight(verdicts, now) if verdicts else frozenset())

    def lost_nodes(self, place: Place) -> frozenset[str]:
        """Nodes that are lost to an application, by their names in Kubernetes. Without those that
        its driver hears, for which it is looked at again with the next round."""
        if self._told is not self.state.told:
            self._told, self._told_to = self.state.told, {}
            for node, those in self._told.items():
                for name in those:
                    self._told_to.setdefault(name, []).append(node)
        told = [node for node in self._told_to.get(str(place), ()) if self._is_same(place, node)]
        told += [node for node in self._overdue(place) if node not in told]
        told += sorted(self._recorded_losses(place) - set(told))
        lost = frozenset(node for node in told if not self._is_heard(place, node))
        if len(lost) < len(told):
            self._doubted.add(place)
        return lost

    def notices(
        self, place: Place, recorded: Mapping[str, LossNotice] = MappingProxyType({})
    ) -> dict[str, LossNotice] | None:
        """What the driver calls nodes, of those that say that they will go; None while it is not
        known what the driver's nodes are.

        A drain that is `recorded` goes on while its node is cordoned: an operator that has started
        since then may find the evicted executor gone. A deadline that is recorded holds where this
        one would count a later one, from when it first saw the notice.
        """
        reading = self._readings.get(place)
        if reading is None or reading.progress is None or self.known.application(place) is None:
            return None
        noticed = self.announced.noticed
        drained = {name: item for name, item in recorded.items() if item.source == DRAINED}
        if not noticed and not drained:
            return {}
        nodes, found = self.known.registry.nodes, dict[str, LossNotice]()
        for name, node in self.hosts(place).items():
            if node in noticed:
                if name in recorded:
                    self.announced.recall(node, recorded[name])
                found[name] = noticed[node].notice
            elif name in drained and node in nodes and nodes[node].judged.unschedulable:
                found[name] = LossNotice(DRAINED, drained[name].until)
        return found

    @property
    def announced_nodes(self) -> dict[str, LossNotice]:
        """Nodes of the cluster that say that they will go, but for those that stay long after the
        moment that they named: something holds them back, as a disruption budget does."""
        noticed = self.announced.noticed.items()
        return {name: item.notice for name, item in noticed if not item.stays}

    @property
    def overdue_nodes(self) -> frozenset[str]:
        """Nodes whose announced end has come, as far as can be seen: they are gone, not Ready, or
        silent."""
        return self._ended(self.announced.noticed)

    def looks_lost(self, among: Iterable[str] | None = None) -> frozenset[str]:
        """Nodes that count as lost without a driver's word; of `among`, where that is given."""
        return node_detector.looks_lost(self.state, time.monotonic(), self.rules, among)

    @property
    def nodes_lost(self) -> frozenset[str]:
        """Nodes that are lost to some application."""
        recorded = frozenset[str]().union(*self._lost.values())
        return frozenset(self.state.told) | (self.looks_lost(recorded) if recorded else recorded)

    @property
    def knows_silence(self) -> bool:
        """Whether a node that does not look lost is not silent either."""
        return lease_timers.knows_silence(self.state.timers, time.monotonic(), self.rules)

    def gone_nodes(self, place: Place) -> frozenset[str]:
        """The same, as the driver's report calls them."""
        lost = self.lost_nodes(place)
        if not lost:
            return frozenset()
        return frozenset(name for name, node in self.hosts(place).items() if node in lost)

    def hosts(self, place: Place) -> dict[str, str]:
        """The Node (value) that the driver means by a node of its report (key).

        An executor's pod on a lost node is deleted before the driver has dropped it: what was known
        of it holds as long as the driver speaks of the same one.
        """
        reading, application = self._readings.get(place), self.known.application(place)
        if application is None or reading is None or reading.progress is None:
            return {}
        nodes, before = reading.progress.nodes, self._hosts.get(place, {})
        found_for, known_for = (reading.progress, application), self._hosts_for.get(place)
        if known_for is not None and known_for[0] is found_for[0] and known_for[1] is application:
            return {name: node for name, (_, node) in before.items()}
        located = node_inventory.locate(nodes, application.executors)
        known = {
            name: (nodes[name].incarnation, pod.node)
            for name, pod in located.pods.items()
            if pod.node
        }
        for name in nodes.keys() & before.keys() - known.keys():
            if before[name][0] == nodes[name].incarnation:
                known[name] = before[name]
        self._hosts[place], self._hosts_for[place] = known, found_for
        return {name: node for name, (_, node) in known.items()}

    def hosts_ever(self, place: Place) -> dict[str, str]:
        """The same, with nodes of which the driver has ceased to speak: by the record of the
        application, or, where that does not say it, by the pods that are left."""
        case, hosts = self._decided.get(place), self.hosts(place)
        views = {} if case is None or case.state is None else case.state.nodes
        named = {name: view.cluster_node for name, view in views.items() if view.cluster_node}
        application = self.known.application(place)
        known = named.keys() | hosts.keys()
        nameless = {name: view for name, view in views.items() if name not in known}
        if nameless and application is not None:
            left = application.executors or application.earlier_executors
            pods = node_inventory.locate(nameless, left).pods.items()
            named |= {name: pod.node for name, pod in pods if pod.node}
        return {**named, **hosts}

    def driver_gone(self, place: Place, heartbeat: Heartbeat | None) -> bool:
        """Whether the newest driver has certainly ended, or its node is lost.

        One that never had a pod in this cluster may run outside of it: nothing is known of it.
        """
        application = self.known.application(place)
        driver = application.driver if application is not None else None
        if driver is None:
            return place in self._drivers or (application is not None and application.had_driver)
        if driver.ended:
            return True
        if self.looks_lost([driver.node]):
            return True
        return heartbeat is not None and _is_earlier(heartbeat, driver)

    def drivers_node(self, place: Place) -> str:
        """Where the newest driver's pod is; "" where there is none."""
        application = self.known.application(place)
        driver = application.driver if application is not None else None
        return driver.node if driver is not None else ""

    def domains(self, place: Place) -> dict[str, str]:
        """The failure domains of what the driver calls nodes, by the labels that the policy names;
        empty without a policy."""
        held = self.known.held(place)
        if held is None:
            return {}
        found = {name: self._domain(node, held) for name, node in self.hosts(place).items()}
        return {name: domain for name, domain in found.items() if domain is not None}

    def impaired(self, place: Place, held: Effective) -> tuple[Domain, ...]:
        """The failure domains that replacements should avoid."""
        return self._impaired(held) if self.lost_nodes(place) else ()

    def avoided(self, place: Place, held: Effective) -> tuple[Domain, ...]:
        """Where nothing new of an application that has lost nodes should be: impaired domains, and
        lost and silent nodes, which a scheduler takes for sound for a while yet."""
        lost = self.lost_nodes(place)
        if not lost:
            return ()
        hosts = self.avoidance.hosts(lost)
        impaired = self._impaired(held)
        return (*(item for item in impaired if item.key != HOSTNAME or item not in hosts), *hosts)

    def _impaired(self, held: Effective) -> tuple[Domain, ...]:
        return self.avoidance.impaired(tuple(held.failure_domain_keys))

    def take_verdicts(self) -> list[tuple[DetectionEvent, float | None]]:
        """Verdicts since the last call, each with since when its node was suspected."""
        taken, self._verdicts = self._verdicts, []
        return taken

    def expires_at(self) -> float:
        """When the next lease will count as silent unless it is renewed; infinite without one."""
        timers, rules, shortest = self.state.timers, self.rules, self.rules.period_seconds
        moments = [
            at + max(shortest, timers.intervals.get(name, 0.0) * rules.lease_intervals)
            for name, at in timers.since.items()
            if name not in self.state.suspects and name not in self.state.leaving
        ]
        return min(moments, default=math.inf)

    def settle(self, place: Place) -> None:
        """A recovery has ended: what it has lost is no loss of the next one."""
        application = self.known.application(place)
        nodes = frozenset() if application is None else application.all_nodes
        left = lost_nodes.settled(self.sightings.pop(place, {}), nodes)
        if left:
            self.sightings[place] = left

    def _overdue(self, place: Place) -> list[str]:
        """Nodes with executors of an application whose announced end has come. One that has missed
        a single renewal of its lease is among them once the driver misses it as well."""
        noticed = self.announced.noticed
        application = self.known.application(place) if noticed else None
        if application is None:
            return []
        there = application.nodes & noticed.keys()
        late = (name for name in self._late(there) if self._is_missed(place, name))
        return sorted(self._ended(there).union(late))

    def _ended(self, among: Iterable[str]) -> frozenset[str]:
        """The announced nodes of `among` whose end has come, whatever a driver says. While
        everything is held, that a node is not Ready says nothing."""
        held, noticed = self.state.held_at is not None, self.announced.noticed
        items = {name: noticed[name] for name in among}
        due = [name for name, item in items.items() if item.due]
        now = time.monotonic()
        silent = node_detector.silent_nodes(self.state, now, self.rules, due) if due else ()
        ended = (name for name, it in items.items() if it.off or (it.overdue and not held))
        return frozenset(ended).union(silent)

    def _late(self, among: Iterable[str]) -> frozenset[str]:
        """The announced nodes of `among` whose moment has passed, and that have missed a renewal of
        their lease."""
        due = [name for name in among if self.announced.noticed[name].due]
        if not due:
            return frozenset()
        return node_detector.late_nodes(self.state, time.monotonic(), self.rules, due)

    def _is_missed(self, place: Place, node: str) -> bool:
        """Whether the driver has had nothing from its executors on a node for long enough."""
        heard, rules = self._heard.get(place), self.rules
        if heard is None or time.monotonic() - heard.said_at > rules.word_seconds_max:
            return False
        return heard.silent_seconds.get(node, 0.0) >= rules.driver_silence_seconds

    def _places_on(self, nodes: frozenset[str]) -> frozenset[Place]:
        """The applications with executors on any of these nodes."""
        return frozenset(
            application.place
            for application in self.known.applications()
            if not nodes.isdisjoint(application.nodes)
        )

    def _is_heard(self, place: Place, node: str) -> bool:
        """Whether the driver hears executors on a node that was lost: it is back, which the leases
        will say with the next look. The last word of a driver that is gone says nothing of now."""
        heard, rules, reading = self._heard.get(place), self.rules, self._readings.get(place)
        if heard is None or time.monotonic() - heard.said_at > rules.word_seconds_max:
            return False
        if reading is None or reading.heartbeat is None:
            return False
        return heard.hears(node, min(HEARD_SECONDS, rules.driver_silence_seconds))

    def _recorded_losses(self, place: Place) -> frozenset[str]:
        """Nodes that the open incident has lost and that look lost now. One on which pods of now
        are is judged by these: it is back, or another machine of that name."""
        application = self.known.application(place)
        in_use = frozenset[str]() if application is None else application.nodes
        return self.looks_lost(self._lost.get(place, frozenset()) - in_use)

    def _is_same(self, place: Place, name: str) -> bool:
        """Whether no other machine has the lost one's name by now."""
        node, sighting = (
            self.known.registry.nodes.get(name),
            self.sightings.get(place, {}).get(name),
        )
        lost = None if sighting is None else sighting.uid
        return node is None or lost is None or node.judged.uid == lost

    def _observe(self, place: Place) -> None:
        application = self.known.application(place)
        self.announced.observe(place, application)
        if application is None:
            self._observed.pop(str(place), None)
            return
        if application.driver is not None and not application.driver.ended:
            self._drivers[place] = application.driver.uid
        self._observed[str(place)] = Observed(
            executors=application.nodes, driver=self._driver(place)
        )

    def _driver(self, place: Place) -> Driver:
        """As the store and the pod say; one outside of the store is only as good as its pod."""
        reading = self._readings.get(place)
        if reading is not None:
            generation = reading.topology.generation
            progress, heartbeat = reading.progress, reading.heartbeat
            if progress is not None and progress.generation == generation and progress.finished:
                return Driver.FINISHED
            if heartbeat is not None and heartbeat.generation == generation:
                return Driver.THERE
        if self.driver_gone(place, None):
            return Driver.GONE
        return Driver.SILENT

    def _views(self, now: float) -> dict[str, Observed]:
        """With the drivers' words, where any node is silent."""
        suspects = self.state.suspects.keys() | self.state.leaving.keys()
        if not suspects:
            return dict(self._observed)
        views = dict(self._observed)
        for name, view in self._observed.items():
            place = _place(name)
            driver = self.drivers_node(place)
            if suspects.isdisjoint(view.executors) and driver not in suspects:
                continue
            heard, driver_now = self._heard.get(place), self._driver(place)
            views[name] = (
                Observed(view.executors, driver_now)
                if heard is None
                else Observed(view.executors, driver_now, heard.silent_seconds, now - heard.said_at)
            )
        return views

    def _sight(self, verdicts: tuple[DetectionEvent, ...], now: float) -> frozenset[Place]:
        """Keep what verdicts say of each application's nodes."""
        offset = time.time() - now
        touched: dict[str | None, list[DetectionEvent]] = {}
        for verdict in verdicts:
            touched.setdefault(verdict.node, []).append(verdict)
        places: set[Place] = set()
        for application in self.known.applications():
            place = application.place
            before, stands_on = self.sightings.get(place, {}), application.all_nodes
            # those of one node stay in order, and those of different nodes have nothing in common
            mine = [item for name in stands_on | before.keys() for item in touched.get(name, ())]
            if not mine and None not in touched:
                continue
            nodes = self._unsighted(application, stands_on & touched.keys())
            self.sightings[place] = lost_nodes.sighted(before, mine, str(place), nodes, offset)
            places.add(place)
        return frozenset(places)

    def _unsighted(
        self, application: MatchedApplication, names: Iterable[str]
    ) -> dict[str, NodeObservation]:
        """Nodes of an application with what is known of them, without moments."""
        driver = application.driver
        held = self.known.held(application.place)
        found: dict[str, NodeObservation] = {}
        for name in names:
            node = self.known.registry.nodes.get(name)
            found[name] = NodeObservation(
                uid=node.judged.uid if node is not None else None,
                domain=None if held is None else self._domain(name, held),
                driver=driver is not None and driver.node == name,
            )
        return found

    def _domain(self, name: str, held: Effective) -> str | None:
        """The failure domain of a node of the cluster, also of one that is not there any more."""
        node = self.known.registry.nodes.get(name)
        labels = node.judged.labels if node is not None else self.avoidance.labels.get(name, {})
        domain = failure_domains.of(labels, held.failure_domain_keys)
        return None if domain is None else domain.value


def _soonest(wanted: Iterable[Detection]) -> dict[str, float]:
    """The deadlines that all classes can live with: what is moved early does no harm."""
    found: dict[str, float] = {}
    for item in wanted:
        for source, seconds in item.notice_seconds.by_source.items():
            found[source] = min(seconds, found.get(source, seconds))
    return found


def _place(name: str) -> Place:
    """The place of an application that detection knows as `namespace/name`."""
    return Place(*name.split("/", 1))


def _is_earlier(heartbeat: Heartbeat, driver: PodSeen) -> bool:
    """Whether the newest heartbeat was of a driver whose pod has been replaced by this one."""
    another = bool(heartbeat.host) and heartbeat.host != driver.name
    return another and heartbeat.since < driver.created_at

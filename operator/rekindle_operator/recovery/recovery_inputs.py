"""The state of an application at a moment, as values from which the status is built.

    core      the decision on what the driver and the store say, as `rekindle.coordination` has it
    terms     what policy, class and people say of this recovery
    cluster   what detection, fencing and failure domains say of its nodes
    requests  what the providers say of nodes on their way

Moments are seconds since 1970, as the core's; in the object they are texts, to the millisecond.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from rekindle.coordination.application_status import ApplicationView
from rekindle.coordination.coordination_state import CoordinationState
from rekindle.coordination.session import Decision, Driver
from rekindle.model.incidents import Incident
from rekindle.protocol import Acknowledgement, Directive, PlanOrder, ProgressReport
from rekindle_operator.api.recovery_class import Certainty
from rekindle_operator.api.recovery_resource import NodeRequest
from rekindle_operator.policies.effective_policy import ReachedLimit
from rekindle_operator.recovery.recovery_reasons import Word

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Danger = tuple[Word, str]


@dataclass(frozen=True, slots=True)
class NodeObservation:
    """A node of the application as detection sees it. `driver`: the application's driver was there;
    `heard_at` is when a node that was suspected or lost was heard of again, or went on purpose."""

    suspected_at: float | None = None
    confirmed_at: float | None = None
    heard_at: float | None = None
    uid: str | None = None
    domain: str | None = None
    driver: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether its loss was confirmed, and it was not heard of since."""
        return self.confirmed_at is not None and not self._is_heard

    @property
    def is_suspected(self) -> bool:
        """Whether it is silent, and its loss was not confirmed."""
        return self.suspected_at is not None and self.confirmed_at is None and not self._is_heard

    @property
    def _is_heard(self) -> bool:
        newest = max(self.suspected_at or -math.inf, self.confirmed_at or -math.inf)
        return self.heard_at is not None and self.heard_at >= newest


@dataclass(frozen=True, slots=True)
class RecoveryTerms:
    """What holds for the recovery. `approved` is what a person has set in its spec; `limit`
    is the one of its policy or class that keeps it waiting."""

    paused: bool = False
    dry_run: bool = False
    approval_needed: bool = False
    approved: bool = False
    limit: ReachedLimit | None = None


@dataclass(frozen=True, slots=True)
class Fenced:
    """The driver's lost node was fenced, and what made it certain that it ran nothing."""

    at: float
    certainty: Certainty


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What is known of the application's nodes.

    `sightings` (Node's name -> sighting) is None as long as detection has not looked for a full
    period: what was suspected before is then still. `hosts` (the driver's word for a node -> Node's
    name) has nodes that have left the driver's report as well; what is not
    in it is on no node that anybody knows, and with None both are the same. `held`: detection
    confirms nothing. `driver` is the Node of the newest driver's pod, "" where nobody knows of one.
    `left` are Nodes of which it was announced that they go, as by a drain, before the open incident
    lost what ran there. `domains_impaired` is None where nobody has judged them; then those of the
    core's incident count. New executors keep out of `domains_avoided`.
    """

    sightings: Mapping[str, NodeObservation] | None = field(default_factory=dict)
    hosts: Mapping[str, str] | None = None
    held: bool = False
    driver: str = ""
    left: frozenset[str] = frozenset()
    domains_impaired: tuple[str, ...] | None = None
    domains_avoided: tuple[str, ...] = ()
    fencing: Fenced | None = None

    def host(self, node: str) -> str | None:
        """The Node that the driver means, None where nobody knows."""
        return node if self.hosts is None else self.hosts.get(node)

    def lost_hosts(self, incident: Incident) -> dict[str, str]:
        """The Nodes (value) on which an incident has lost executors (key), as far as is known."""
        return lost_hosts(incident, self.hosts)


def lost_hosts(incident: Incident, hosts: Mapping[str, str] | None) -> dict[str, str]:
    """The Nodes (value) on which an incident has lost executors (key): as they were called when it
    lost them, for their addresses may be others' by now, or else as in `hosts`."""
    called = incident.cluster_nodes
    found = {
        node: called.get(node) or (node if hosts is None else hosts.get(node))
        for node in incident.lost
    }
    return {node: host for node, host in found.items() if host is not None}


@dataclass(frozen=True, slots=True)
class RecoveryInputs:
    """All that is known about `incident` of an application.

    `view` is what the store held before `decision` was written: its plan is the newest before those
    of the decision. A look without a decision has one with the view's case and nothing else.
    `earlier` are other plans that the store still holds, with `answers` to them: whoever is started
    anew gives them once, for more than one may not have been told. `requests` is None where
    providers make no objects: the core's own requests are told then, as `provider`'s. `generation`
    is the Recovery's.
    """

    incident: int
    view: ApplicationView
    decision: Decision
    terms: RecoveryTerms = field(default_factory=RecoveryTerms)
    cluster: ClusterFacts = field(default_factory=ClusterFacts)
    earlier: tuple[Directive, ...] = ()
    answers: tuple[Acknowledgement, ...] = ()
    requests: tuple[NodeRequest, ...] | None = None
    provider: str = "pending-pods"
    dangers: tuple[Danger, ...] = ()
    generation: int = 0

    @property
    def state(self) -> CoordinationState:
        """The core's, after the decision."""
        state = self.decision.case.state
        assert state is not None, "a decision has a state"
        return state

    @property
    def driver(self) -> Driver:
        """How the driver is."""
        return self.decision.case.driver

    @property
    def open(self) -> Incident | None:
        """The incident while it lasts."""
        found = self.state.incident
        return found if found is not None and found.number == self.incident else None

    @property
    def begun(self) -> bool:
        """Whether the core has ever counted this incident: before, there are suspicions only."""
        return self.state.incidents >= self.incident

    @property
    def progress(self) -> ProgressReport | None:
        """Of the driver that is there now."""
        progress = self.view.reading.progress
        same = progress is not None and progress.generation == self.decision.case.generation
        return progress if same else None

    @property
    def stored(self) -> tuple[Directive, ...]:
        """Plans that the store held before the decision, in order."""
        return _plans(*self.earlier, self.view.plan)

    @property
    def plans(self) -> tuple[Directive, ...]:
        """Plans that are known word by word, in order: the store's, and the decision's."""
        return _plans(*self.stored, *self.decision.directives)

    def answer(self, directive: Directive) -> Acknowledgement | None:
        """What the driver that it was for has answered to a directive, as far as it is known."""
        key = (directive.sequence, directive.generation)
        known = (self.view.answer, *self.answers)
        return next(
            (item for item in known if item and (item.sequence, item.generation) == key), None
        )


def moment(seconds: float) -> datetime:
    """A moment of the core's as the object holds it: to the millisecond, never later."""
    return EPOCH + timedelta(milliseconds=math.floor(seconds * 1_000))


def _plans(*directives: Directive | None) -> tuple[Directive, ...]:
    found = {
        item.plan_epoch: item
        for item in directives
        if item is not None and isinstance(item.order, PlanOrder)
    }
    return tuple(found[number] for number in sorted(found))

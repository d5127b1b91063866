"""A coordinator that tells its story, a driver that does as it is told, and what each leaves.

The store keeps case and directives, the API server keeps statuses; everything else dies with the
operator, which `Kill` says when. Decisions are the core's own. Time is in seconds since 1970.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import yaml

from rekindle.coordination import directive_acceptance, session
from rekindle.coordination.application_status import ApplicationView
from rekindle.coordination.coordination_events import LossNotice
from rekindle.coordination.directive_acceptance import AcceptedDirectives
from rekindle.coordination.session import ApplicationReading, Case, Decision
from rekindle.model import topology as graph
from rekindle.model.settings import Policy
from rekindle.model.topology import Query, Topology, TopologyOperator
from rekindle.protocol import (
    Acknowledgement,
    CheckpointReport,
    Directive,
    Heartbeat,
    MoveOrder,
    NodeSeen,
    Orders,
    PlanOrder,
    ProgressReport,
    StatisticsReport,
    TopologyReport,
)
from rekindle_operator.api.recovery_resource import ENDED, NodeRequest, RecoveryStatus, to_status
from rekindle_operator.recovery import kubernetes_events, lost_nodes, status_builder
from rekindle_operator.recovery.kubernetes_events import KubernetesEvent, ObjectReference
from rekindle_operator.recovery.recovery_inputs import (
    ClusterFacts,
    NodeObservation,
    RecoveryInputs,
    RecoveryTerms,
)

ROOT = Path(__file__).parents[3]
RECOVERY = ObjectReference(
    "rekindle.dev/v1alpha1", "Recovery", "departures-1-abcde", "flights", "r"
)
APPLICATION = ObjectReference(
    "sparkoperator.k8s.io/v1beta2", "SparkApplication", "departures", "flights", "a"
)
TOPOLOGY = Topology(
    operators=(
        TopologyOperator("source", 1),
        TopologyOperator("counts", 2),
        TopologyOperator("tops", 1),
    ),
    edges=(("source", "counts"), ("source", "tops")),
    queries=(
        Query("busiest", "counts", 4),
        Query("ranking", "tops", 9),
        Query("landed", "source", 1),
    ),
)
COSTS = {"source/0": 10.0, "counts/0": 60.0, "counts/1": 60.0, "tops/0": 60.0}
NODES = ("n1", "n2", "n3", "n4")


class Kill(StrEnum):
    """When the operator dies in a step, to be started again at once."""

    NEVER = "never"
    BEFORE_STORE = "before the decision is written"
    BEFORE_STATUS = "between decision and status"
    AFTER_STATUS = "after the status is written"


class World:
    """One application."""

    def __init__(self, **policy: Any) -> None:
        self.now = 1_000.0
        self.case, self.record = Case(), b""
        self.plans: list[Directive] = []
        self.answers: list[Acknowledgement] = []
        self.objects: dict[int, dict[str, Any]] = {}
        self.announced: dict[str, KubernetesEvent] = {}
        self.told: list[tuple[int, RecoveryStatus]] = []
        self.terms, self.cluster = RecoveryTerms(), ClusterFacts(sightings={})
        self.requests: tuple[NodeRequest, ...] | None = None
        self.dangers: tuple[tuple[Any, str], ...] = ()
        self.policy = Policy(**{"solver": "best-density", **policy})
        self.up = set(NODES)
        self.starts = dict.fromkeys(NODES, 0)
        self.pending: list[Directive] = []
        self.deaf = False
        self.moves = False
        self.leaving: dict[str, LossNotice] = {}
        self.checkpoint = 0
        self.start_driver(resumed=False)

    # The driver

    def start_driver(self, *, resumed: bool = True) -> None:
        """A driver starts, with nothing placed."""
        self.generation = getattr(self, "generation", 0) + 1
        self.following = AcceptedDirectives(self.generation, contact_at=0.0)
        self.nodes: dict[str, NodeSeen] = {}
        self.placement: dict[str, str] = {}
        self.resident: dict[str, str] = {}
        self.live: tuple[str, ...] = ()
        self.stopped: dict[str, str] = {}
        self.sequence, self.alive = 0, True
        self.pending.clear()
        self.reading = ApplicationReading(
            topology=TopologyReport(
                generation=self.generation,
                sequence=0,
                program="p",
                topology=TOPOLOGY,
                policy=self.policy,
                nodes_expected=len(NODES),
                resumed=resumed,
            ),
            statistics=StatisticsReport(generation=self.generation, sequence=0, costs=COSTS),
            heartbeat=Heartbeat(generation=self.generation, since=self.now),
            orders=Orders(),
        )
        for node in sorted(self.up):
            self.join(node)

    def join(self, node: str) -> None:
        """An executor starts on a node."""
        self.starts[node] += 1
        incarnation = f"{self.generation}.{self.starts[node]}"
        self.nodes[node] = NodeSeen(incarnation=incarnation, capacity_percent=100.0, domain="a")

    def lose(self, *nodes: str) -> None:
        """Nodes go, with what ran there; what needs that stops."""
        self.up -= set(nodes)
        for node in nodes:
            self.nodes.pop(node, None)
        held = {name: node for name, node in self.placement.items() if node not in nodes}
        kept = {name: node for name, node in self.resident.items() if node not in nodes}
        runs = graph.runnable(TOPOLOGY, held)
        self.placement = {name: node for name, node in held.items() if name in runs}
        self.resident = kept | {name: node for name, node in held.items() if name not in runs}
        self.live = tuple(name for name in self.live if name in self.placement)

    def announce(self, *nodes: str, seconds: float = 120.0) -> None:
        """Nodes say that they will go; those that said so before stay."""
        notices = {node: LossNotice("spot", self.now + seconds) for node in nodes}
        self.leaving = {node: self.leaving.get(node, notice) for node, notice in notices.items()}

    def restore(self, *nodes: str) -> None:
        """Nodes come back, empty."""
        for node in nodes:
            self.up.add(node)
            if self.alive and node not in self.nodes:
                self.join(node)

    def catch_up(self) -> None:
        """All that is placed joins the epochs of the others."""
        self.live = tuple(self.placement)

    def complete_checkpoint(self) -> None:
        """A checkpoint becomes global, where everything is live, or has stopped."""
        if self.alive and (self.stopped or len(self.live) == len(COSTS)):
            self.checkpoint += 1
            report = CheckpointReport(
                generation=self.generation,
                sequence=self.checkpoint,
                epoch=self.checkpoint,
                at=self.now,
            )
            self.reading = replace(self.reading, checkpoint=report)

    def kill_driver(self) -> None:
        """The driver ends with all executors; nobody knows for sure."""
        self.alive = False
        self.reading = replace(self.reading, heartbeat=None)

    def bury_driver(self) -> None:
        """Now everybody knows."""
        self.kill_driver()
        self.reading = replace(self.reading, driver_gone=True)

    def report(self, **fields: Any) -> None:
        if not self.alive:
            return
        self.sequence += 1
        common = {
            "generation": self.generation,
            "sequence": self.sequence,
            "nodes": dict(self.nodes),
            "placement": dict(self.placement),
            "live": self.live,
            "resident": dict(self.resident),
            "stopped": dict(self.stopped),
            "plan_epoch": self.following.plan_epoch,
            "directive": self.following.directive,
            "moving": {} if self.moves else None,
        }
        self.reading = replace(self.reading, progress=ProgressReport(**{**common, **fields}))

    def obey(self, directives: Iterable[Directive]) -> None:
        self.pending += directives
        if self.deaf or not self.alive:
            return
        for directive in self.pending:
            if directive_acceptance.is_early(self.following, directive):
                continue
            self.following, why = directive_acceptance.take(self.following, directive)
            if directive.generation == self.generation:
                self.answers.append(self._answer(directive, why))
            if not why and isinstance(directive.order, PlanOrder):
                self._place(directive.order)
            if not why and isinstance(directive.order, MoveOrder):
                self.placement |= directive.order.placement
        self.pending.clear()

    def _answer(self, directive: Directive, why: str) -> Acknowledgement:
        return Acknowledgement(
            sequence=directive.sequence,
            generation=directive.generation,
            outcome="refused" if why else "done",
            epoch=0,
            plan_epoch=self.following.plan_epoch,
            text=why,
        )

    def _place(self, order: PlanOrder) -> None:
        for name, node in order.placement.items():
            if node in self.nodes:
                self.placement[name] = node
                self.resident.pop(name, None)
        runs = graph.runnable(TOPOLOGY, self.placement)
        self.placement = {name: node for name, node in self.placement.items() if name in runs}

    # The operator

    def step(self, kill: Kill = Kill.NEVER, seconds: float = 1.0) -> Decision:
        """The driver reports; the operator decides, writes, tells, writes; the driver obeys."""
        self.now += seconds
        self.report()
        if kill is Kill.BEFORE_STORE:
            self.decide()
            self.restart()
        before, stored = self.case, tuple(self.plans)
        decision = self.decide()
        self.write(decision)
        ordered = decision.directives
        if kill is Kill.BEFORE_STATUS:
            self.restart()
            before, stored = self.case, tuple(self.plans)
            again = self.decide()
            self.write(again)
            self.tell(before, stored, again)
            ordered += again.directives
        else:
            self.tell(before, stored, decision)
        if kill is Kill.AFTER_STATUS:
            self.restart()
            news = self.tell(self.case, tuple(self.plans), self.decide())
            assert not news, "a status that was read back is told anew"
        self.obey(ordered)
        return decision

    def decide(self) -> Decision:
        approved = self.terms.approved or not self.terms.approval_needed
        plan = approved and not self.terms.paused and self.terms.limit is None
        reading = replace(self.reading, notices=dict(self.leaving))
        return session.decide(self.case, reading, self.now, clock=float, plan=plan)

    def write(self, decision: Decision) -> None:
        self.case = decision.case
        if decision.changed:
            self.record = session.to_record(decision.case)
        self.plans += [item for item in decision.directives if isinstance(item.order, PlanOrder)]

    def restart(self) -> None:
        self.case = session.from_record(self.record, "case") if self.record else Case()

    def scene(
        self, incident: int, before: Case, stored: tuple[Directive, ...], decision: Decision
    ) -> RecoveryInputs:
        view = ApplicationView(
            application="flights/departures",
            case=before,
            reading=self.reading,
            plan=stored[-1] if stored else None,
            answer=self.answers[-1] if self.answers else None,
        )
        return RecoveryInputs(
            incident=incident,
            view=view,
            decision=decision,
            terms=self.terms,
            cluster=self.cluster,
            earlier=stored,
            answers=tuple(self.answers),
            requests=self.requests,
            dangers=self.dangers,
            generation=1,
        )

    def tell(self, before: Case, stored: tuple[Directive, ...], decision: Decision) -> bool:
        """Tell of every recovery that is not over; whether there was any news."""
        assert decision.case.state is not None
        number = status_builder.subject(decision.case.state, self.cluster)
        opened = {item for item in self.objects if self.status(item).phase not in ENDED}
        news = False
        for incident in sorted(opened | ({number} if number else set())):
            status = self.status(incident)
            scene = self.scene(incident, before, stored, decision)
            told = status_builder.tell(status, scene, self.now)
            later = status_builder.tell(status, scene, self.now + 3)
            names = {item.name for item in self.announcements(incident, status, told.status)}
            again = {item.name for item in self.announcements(incident, status, later.status)}
            assert names == again, "what is told again after a while has other names"
            if told.news:
                self.publish(incident, status, told.status)
            repeated = status_builder.tell(told.status, scene, self.now + 100)
            assert not repeated.news, "what was told once is told again"
            news = news or told.news
            if told.status.phase in ENDED and self.cluster.sightings is not None:
                left = lost_nodes.settled(self.cluster.sightings, self.cluster.sightings)
                self.cluster = replace(self.cluster, sightings=left)
        return news

    def publish(self, incident: int, before: RecoveryStatus, after: RecoveryStatus) -> None:
        for item in self.announcements(incident, before, after):
            self.announced.setdefault(item.name, item)
        self.objects[incident] = to_status(after)
        self.told.append((incident, after))

    def announcements(
        self, incident: int, before: RecoveryStatus, after: RecoveryStatus
    ) -> tuple[KubernetesEvent, ...]:
        about = replace(RECOVERY, name=f"departures-{incident}-abcde")
        return kubernetes_events.of_recovery(about, APPLICATION, before, after)

    def status(self, incident: int = 1) -> RecoveryStatus:
        """As the API server has it."""
        return msgspec.convert(self.objects.get(incident, {}), RecoveryStatus)

    # Whole stretches

    def settle(self, steps: int = 4) -> None:
        for _ in range(steps):
            self.step()
            self.catch_up()

    def sight(self, **nodes: NodeObservation) -> None:
        """What detection says, besides what it has said before."""
        self.cluster = replace(self.cluster, sightings={**(self.cluster.sightings or {}), **nodes})


def running(**policy: Any) -> World:
    """An application that runs, and nothing has happened to it."""
    world = World(**policy)
    world.settle()
    assert set(world.live) == set(COSTS)
    world.complete_checkpoint()
    world.step()
    assert not world.objects
    return world


def status_schema() -> Mapping[str, Any]:
    """Of a Recovery's status, from crds/."""
    record = yaml.safe_load((ROOT / "crds" / "recoveries.yaml").read_text())
    (version,) = record["spec"]["versions"]
    schema: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    return schema


def breaches(schema: Mapping[str, Any], value: Any, path: str = "status") -> list[str]:
    """Where a value breaks a schema, as the API server would say."""
    found = []
    for limit, broken in (
        ("maxLength", lambda most: len(value) > most),
        ("minLength", lambda least: len(value) < least),
        ("maxItems", lambda most: len(value) > most),
        ("maximum", lambda most: value > most),
        ("minimum", lambda least: value < least),
        ("enum", lambda words: value not in words),
    ):
        if limit in schema and broken(schema[limit]):
            found.append(f"{path}: {value!r:.60} breaks {limit} {schema[limit]}")
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}
    if schema["type"] in kinds and not isinstance(value, kinds[schema["type"]]):
        return [*found, f"{path}: {value!r:.60} is no {schema['type']}"]
    for index, item in enumerate(value if schema["type"] == "array" else ()):
        found += breaches(schema["items"], item, f"{path}[{index}]")
    if schema["type"] == "object":
        found += [f"{path}: no {name}" for name in schema.get("required", ()) if name not in value]
        for name, item in value.items():
            if name not in schema["properties"]:
                found.append(f"{path}.{name}: is not known")
            else:
                found += breaches(schema["properties"][name], item, f"{path}.{name}")
    return found

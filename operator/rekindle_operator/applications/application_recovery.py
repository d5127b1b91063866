"""Runs incidents of policies that recover whole applications: gates lifted, Recoveries written.

    lost or announced nodes ──► incident ──► buckets whose new pods wait (to `webhook_upkeep`)
    waiting pods, free CPU ──► plan ──► gates lifted, nodes wanted (to `node_provisioner`)
                                    ──► Recovery objects and events

Called by the deciding thread again and again; writes are errands. What is kept is no more than the
open Recoveries say, so another operator that begins to act goes on with them. The gate of a pod
that is in no incident here is lifted, whenever it was added.

Why: docs/decisions/0054-whole-applications-wait-at-a-gate.md.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec

from rekindle.coordination.application_status import named
from rekindle.coordination.coordination_events import LossNotice
from rekindle.coordination.directives import NodeRequestOrder
from rekindle.model.reasons import Reason
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.api.custom_resources import identity
from rekindle_operator.api.recovery_policy import ApplicationNeed, RecoveryPolicy
from rekindle_operator.api.recovery_resource import (
    ApplicationReference,
    NodeRequest,
    Phase,
    RecoverySpec,
    RecoveryStatus,
    recovery_name,
)
from rekindle_operator.applications import (
    application_incident,
    displacement_runner,
    wanted_nodes,
)
from rekindle_operator.applications.application_incident import (
    ApplicationLook,
    IncidentNow,
    OpenStory,
)
from rekindle_operator.applications.application_plan import (
    ApplicationPlan,
    PlanSolver,
    plan,
    upstream,
)
from rekindle_operator.applications.application_writer import ApplicationWriter
from rekindle_operator.applications.cluster_room import ClusterRoom
from rekindle_operator.applications.displacement import Displacement, NotInTime
from rekindle_operator.applications.displacement_runner import DisplacementRunner
from rekindle_operator.applications.progress_reader import ProgressReader
from rekindle_operator.cluster import api_client, application_matching, cluster_view, work_queue
from rekindle_operator.cluster.pods import PodSeen
from rekindle_operator.detection.detection_runner import DetectionRunner
from rekindle_operator.policies.effective_policy import Effective
from rekindle_operator.provisioning import ExecutorShape, NodeDemand, NodeIncident, limits_of
from rekindle_operator.recovery import status_builder
from rekindle_operator.recovery.recovery_reasons import RecoveryReason

REFRESH_SECONDS = 0.5
PAUSE_FACTOR = 10.0
# A gate whose removal was left so long ago and that is still seen is lifted again.
LIFT_SECONDS = 10.0
# Where no class says how many Recoveries are kept.
RECOVERIES_KEPT = 20
APPLICATIONS = "Applications"
PRIORITY = 1.0


@dataclass(slots=True)
class ApplicationRecovery:
    """`reference` names an application as a Recovery does; `shape` gives an executor of one, which
    `measure` has read, once for each driver; `rows` (by incident) are requests for nodes and what
    became of them. `demands` are for nodes, `buckets` of applications whose new pods wait.
    """

    known: cluster_view.ClusterView
    judge: DetectionRunner
    api: api_client.Api
    errands: work_queue.WorkQueue
    log: Log
    identity: str
    reference: Callable[[application_matching.MatchedApplication], ApplicationReference]
    shape: Callable[[Place], ExecutorShape | None]
    measure: Callable[[Place, PodSeen], None]
    rows: Callable[[Place], Mapping[int, tuple[NodeRequest, ...]]]
    progress: ProgressReader
    demands: tuple[NodeDemand, ...] = ()
    buckets: frozenset[str] = frozenset()
    displacing: DisplacementRunner = field(init=False)
    _writer: ApplicationWriter = field(init=False)
    _room: ClusterRoom = field(init=False)
    _stories: dict[Place, OpenStory] = field(default_factory=dict)
    _samples: dict[Place, tuple[PodSeen, ...]] = field(default_factory=dict)
    _lifted: dict[str, float] = field(default_factory=dict)
    # that a Recovery has ended comes back with a watch, later
    _ended: set[tuple[Place, int]] = field(default_factory=set)
    # replaced as a whole: errands read it on threads of their own
    _there: frozenset[Place] = frozenset()
    # nodes that are announced to go, in this turn
    _notices: Mapping[str, LossNotice] = field(default_factory=dict)
    # of each policy: the newest plan, and its input
    _planned: dict[str, tuple[object, "_Decided"]] = field(default_factory=dict)
    _due: float = 0.0

    def __post_init__(self) -> None:
        self.displacing = DisplacementRunner(self.known, self.api, self.errands, self.log)
        self._writer = ApplicationWriter(self.known, self.api, self.log, self.identity)
        self._room = ClusterRoom(self.known, self.judge)

    def refresh(self) -> bool:
        """Look again, if it is time to; whether other nodes are wanted than before."""
        now, registry = time.monotonic(), self.known.registry
        if now < self._due:
            return False
        policies = [
            name
            for name, policy in self.known.policies.items()
            if policy.spec.recovers == APPLICATIONS
        ]
        self._forget_gone()
        demands: list[NodeDemand] = []
        waiting: set[str] = set()
        buckets: set[str] = set()
        if policies and self.judge.state.held_at is None and self.judge.knows_silence:
            self._notices = self.judge.announced_nodes
            lost = self._lost_now
            for name in sorted(policies):
                turn = self._turn(name, lost)
                demands += turn.demands
                waiting |= turn.waiting
                buckets |= turn.buckets
        elif policies:
            self._hold(policies)
            self._due = now + REFRESH_SECONDS
            return False
        self.progress.keep_only([at for at, it in self._stories.items() if it.has_pods_back])
        self._give_up([place for place, it in self._stories.items() if it.policy not in policies])
        self._end_leftovers(frozenset(policies))
        self._release([pod for uid, pod in registry.gated_pods.items() if uid not in waiting])
        self._lifted = {uid: at for uid, at in self._lifted.items() if uid in registry.gated_pods}
        other, self.demands = tuple(demands) != self.demands, tuple(demands)
        self.buckets = frozenset(buckets)
        self._due = now + max(REFRESH_SECONDS, PAUSE_FACTOR * (time.monotonic() - now))
        return other

    def lost_nodes(self, place: Place) -> frozenset[str]:
        """Nodes that an application in an incident has lost by what is seen of them alone: without
        a sidecar there is no driver's word."""
        story = self._stories.get(place)
        if story is None:
            return frozenset()
        lost = self._lost_now
        return frozenset(row.name for row in story.status.lost_nodes if row.name in lost)

    @property
    def _lost_now(self) -> frozenset[str]:
        return self.judge.looks_lost() | self.judge.overdue_nodes

    def has_told(self, place: Place, incident: int) -> bool:
        """Whether the end of a Recovery is written here: its story goes on, or has just ended."""
        story = self._stories.get(place)
        told = story is not None and story.spec.incident == incident
        return told or (place, incident) in self._ended

    def forget(self) -> None:
        """Another one acts: what it does is to be read again."""
        self._drop([*self._stories])
        self._lifted.clear()
        self._ended.clear()
        self._planned.clear()
        self.progress.clear()
        self.demands, self.buckets = (), frozenset()

    def _forget_gone(self) -> None:
        """Keep nothing of applications that are gone, nor of ends that are seen by now."""
        self._there = self.known.registry.places()
        self._samples = {place: it for place, it in self._samples.items() if place in self._there}
        self._ended = {ended for ended in self._ended if not self._is_settled(*ended)}

    def _is_settled(self, place: Place, incident: int) -> bool:
        known = self.known.recoveries.get(place, {}).values()
        if not known and place not in self._there:
            return True
        return any(item.spec.incident == incident and item.status.has_ended for item in known)

    def _drop(self, places: Iterable[Place]) -> None:
        """Have nothing to do with their Recoveries any more: no further executor is deleted."""
        for place in places:
            self._stories.pop(place).leaving = None

    def _hold(self, policies: Iterable[str]) -> None:
        """Nothing is confirmed or planned: waiting pods go on waiting, an hour at most, where their
        policy still wants it, and so do pods that are made in its incident. An operator that has
        just begun does not know yet which nodes are silent: it would give them to what matters
        less."""
        acting = {name for name in policies if self._acts(name)}
        idle = [story for story in self._stories.values() if story.policy not in acting]
        self.displacing.call_off(idle, time.time())
        gated, kept, buckets = self.known.registry.gated_pods, set[str](), set[str]()
        incidents = set(application_incident.holding_back(self.known.open_recoveries()))
        for place in self.known.registry.places():
            application = self.known.application(place)
            if application is None or application.policy not in acting:
                continue
            waiting = {
                pod.uid
                for pod in application_incident.pods_of(application)
                if pod.uid in gated
                and not application_incident.is_overdue(application, pod, time.time())
            }
            kept |= waiting
            if waiting or application.policy in incidents:
                buckets |= set(application_matching.pod_buckets(application))
        self._release([pod for uid, pod in gated.items() if uid not in kept])
        self.buckets = self.buckets | buckets if acting else frozenset()

    def _acts(self, name: str) -> bool:
        held = self.known.effective(name)
        return isinstance(held, Effective) and not (held.paused or held.dry_run)

    def _turn(self, name: str, lost: frozenset[str]) -> "_Turn":
        """One policy (namespace/name)."""
        held, policy = self.known.effective(name), self.known.policies[name]
        priorities = application_incident.priorities_of(held, time.time())
        looks = dict(self._looks(name, policy, priorities, lost))
        self._begin(name, policy, looks, acts=isinstance(held, Effective))
        open_ = {place: story for place, story in self._stories.items() if story.policy == name}
        self._give_up(open_.keys() - looks.keys())
        open_ = {place: story for place, story in open_.items() if place in looks}
        if not open_:
            self._planned.pop(name, None)
            self.displacing.forget(name)
            return _Turn()
        if not isinstance(held, Effective):
            self._tell_on(policy, looks, open_)
            return _Turn()
        return self._incident(policy, held, looks, open_)

    def _tell_on(
        self,
        policy: RecoveryPolicy,
        looks: Mapping[Place, ApplicationLook],
        open_: Mapping[Place, OpenStory],
    ) -> None:
        """Go on with what has begun under a class that the policy may not use any more: nothing is
        held back or asked for, and Recoveries end when their applications run."""
        now = time.time()
        self.displacing.call_off(open_.values(), now)
        class_name = policy.spec.class_name
        text = f"Its policy has no RecoveryClass {class_name} that it may use: no pod waits."
        scene = IncidentNow(
            now=now,
            plan=None,
            nodes={},
            lost_total=application_incident.lost_total(looks),
            lost_nodes_min=policy.spec.correlated.nodes_min,
            why=("Held", RecoveryReason.CLASS_WITHDRAWN, text),
            notices=self._notices,
            there=self.known.registry.nodes,
        )
        self._tell_all(looks, open_, scene, RECOVERIES_KEPT)

    def _looks(
        self,
        name: str,
        policy: RecoveryPolicy,
        priorities: Mapping[str, float],
        lost: frozenset[str],
    ) -> Iterator[tuple[Place, ApplicationLook]]:
        namespace = policy.metadata.namespace
        needs = {item.name: item for item in policy.spec.applications}
        nodes = self.known.registry.nodes
        for place in self.known.registry.places():
            application = self.known.application(place) if place.namespace == namespace else None
            if application is None or application.policy != name:
                continue
            if application_incident.end_of(application, time.time()) is not None:
                continue
            called, story = place.application, self._stories.get(place)
            its_nodes = application.all_nodes | (story.nodes if story else frozenset())
            found = application_incident.look_at(
                application,
                needs.get(called, ApplicationNeed(called)),
                float(priorities.get(called, PRIORITY)),
                {name for name in its_nodes if name in lost or name not in nodes},
                self._lifted,
                self._samples.get(place, ()),
                () if story is None else story.leaving or (),
                time.time() - application_incident.NODE_SECONDS_MAX,
                self._notices,
            )
            self._samples[place] = found.samples
            yield place, found

    def _begin(
        self,
        name: str,
        policy: RecoveryPolicy,
        looks: Mapping[Place, ApplicationLook],
        *,
        acts: bool,
    ) -> None:
        """Open what another operator has left open, and, where the policy `acts`, what has lost
        nodes or will; while an incident is open, what waits as well. Before anything was lost that
        is what has waited for a while: nearly all find room at once."""
        mine = {place for place, story in self._stories.items() if story.policy == name}
        for place, look in looks.items():
            if place in mine:
                continue
            left = next(
                (
                    item
                    for item in self.known.open_of(place).values()
                    if (place, item.spec.incident) not in self._ended
                ),
                None,
            )
            if left is not None and left.spec.policy_name == policy.metadata.name:
                self._stories[place] = OpenStory(
                    name, left.spec, left.status, left.status.displaced
                )
                self._recall(left.status)
                self.known.changed.add(place)  # its executors on lost nodes are to be deleted
                mine.add(place)
            elif (look.lost or look.announced) and acts:
                self._open(name, policy, place, look)
                mine.add(place)
        if mine and acts:
            calm = all(
                looks[place].is_calm and not self._stories[place].has_losses
                for place in mine & looks.keys()
            )
            made_before = time.time() - (application_incident.SETTLE_SECONDS if calm else 0.0)
            for place in looks.keys() - mine:
                if any(not calm or pod.created_at <= made_before for pod in looks[place].waiting):
                    self._open(name, policy, place, looks[place])

    def _recall(self, status: RecoveryStatus) -> None:
        """Deadlines that another operator has counted are made no later."""
        for row in status.announced_nodes:
            if not row.withdrawn:
                notice = LossNotice(row.by, row.until.timestamp())
                self.judge.announced.recall(row.name, notice)

    def _open(
        self, name: str, policy: RecoveryPolicy, place: Place, look: ApplicationLook
    ) -> OpenStory:
        known = self.known.recoveries.get(place, {}).values()
        numbers = {item.spec.incident for item in known}
        # one that has just ended may not be seen yet, and keeps its number
        numbers |= {incident for where, incident in self._ended if where == place}
        spec = RecoverySpec(
            self.reference(look.application),
            max(numbers, default=0) + 1,
            policy.metadata.name,
            policy.spec.class_name,
        )
        self.known.changed.add(place)
        return self._stories.setdefault(place, OpenStory(name, spec, RecoveryStatus()))

    def _incident(
        self,
        policy: RecoveryPolicy,
        held: Effective,
        looks: Mapping[Place, ApplicationLook],
        open_: Mapping[Place, OpenStory],
    ) -> "_Turn":
        application_incident.note_lacking(looks, open_, time.monotonic())
        nodes = self._room.free(looks, self._notices)
        why = self._held_by(policy, held, looks, open_)
        made, late, now = None, None, time.time()
        if why is None:
            decided = self._plan(identity(policy), held, looks, open_, nodes)
            made, now = decided.plan, time.time()
            self.displacing.run(looks, open_, now)
            if isinstance(decided.beside, Displacement):
                open_ = self._displace(policy, decided.beside, looks, open_, now)
            elif decided.beside is not None:
                late = decided.beside.by
        else:
            self.displacing.call_off(open_.values(), now)
        scene = IncidentNow(
            now=now,
            plan=made,
            nodes=nodes,
            lost_total=application_incident.lost_total(looks),
            lost_nodes_min=policy.spec.correlated.nodes_min,
            why=why,
            room_makers=displacement_runner.room_makers(open_),
            undecided=late,
            notices=self._notices,
            there=self.known.registry.nodes,
        )
        self._tell_all(looks, open_, scene, held.recoveries_kept_max)
        if made is None or self._stories.keys().isdisjoint(open_):
            return _Turn()
        leaving = {place for place, story in open_.items() if story.makes_room}
        if leaving:
            # the room is for pods that another one cannot do without
            admitted = made.admitted - made.further
        else:
            seen = wanted_nodes.seen_by_autoscalers(held, made, looks, open_, time.monotonic())
            admitted = made.admitted | seen
        waiting = {
            pod.uid
            for place, look in looks.items()
            for pod in look.waiting
            if (pod.uid not in admitted or place in leaving)
            and not application_incident.is_overdue(look.application, pod, now)
        }
        buckets = {
            key
            for place, look in looks.items()
            if place not in open_ or not open_[place].is_given_up(time.monotonic())
            for key in application_matching.pod_buckets(look.application)
        }
        demands = tuple(self._wanted(policy, held, made, looks, open_))
        if not any(story.holds_back(time.monotonic()) for story in open_.values()):
            return _Turn(demands)
        return _Turn(demands, frozenset(waiting), frozenset(buckets))

    def _displace(
        self,
        policy: RecoveryPolicy,
        decided: Displacement,
        looks: Mapping[Place, ApplicationLook],
        open_: Mapping[Place, OpenStory],
        now: float,
    ) -> dict[Place, OpenStory]:
        """Have the applications noted that make room; the open Recoveries, with theirs."""
        found = dict(open_)
        for place, look in looks.items():
            if place.application in decided.goes:
                if place not in found:
                    found[place] = self._open(identity(policy), policy, place, look)
                self.displacing.begin(found[place], look, decided, now)
        return found

    def _held_by(
        self,
        policy: RecoveryPolicy,
        held: Effective,
        looks: Mapping[Place, ApplicationLook],
        open_: Mapping[Place, OpenStory],
    ) -> tuple[Phase, Reason | RecoveryReason, str] | None:
        """Why nothing is held back and nothing is planned, with those that would make room
        otherwise; None where it is."""
        if held.paused:
            text = "Policy or class is paused: no pod waits for its turn."
            return "Held", Reason.PAUSED, text
        if held.dry_run:
            text = "Policy or class is a dry run: no pod waits for its turn."
            return "Held", Reason.PAUSED, text + self._would(policy, held, looks, open_)
        if held.approval_needed and not any(map(self.known.has_approval, open_)):
            text = "Somebody has to approve: no pod waits for its turn until spec.approved is true."
            text += self._would(policy, held, looks, open_)
            return "AwaitingApproval", RecoveryReason.APPROVAL_AWAITED, text
        return None

    def _would(
        self,
        policy: RecoveryPolicy,
        held: Effective,
        looks: Mapping[Place, ApplicationLook],
        open_: Mapping[Place, OpenStory],
    ) -> str:
        """Which applications would make room for which, as a sentence; "" for nothing. Pods that
        find no node would wait at the gate."""
        if held.displacement == "Never":
            return ""
        there = {
            place: replace(look, waiting=(*look.waiting, *look.pending), pending=())
            for place, look in looks.items()
        }
        nodes = self._room.free(there, self._notices)
        beside = self._plan(identity(policy), held, there, open_, nodes).beside
        if not isinstance(beside, Displacement):
            return ""
        return f" {named(tuple(sorted(beside.goes)))} would make room for {beside.by}."

    def _plan(
        self,
        name: str,
        held: Effective,
        looks: Mapping[Place, ApplicationLook],
        open_: Mapping[Place, OpenStory],
        nodes: Mapping[str, int],
    ) -> "_Decided":
        """The plan for now, and who makes room beyond it; made again only when something is
        otherwise than before."""
        solver = PlanSolver(time.monotonic, held.policy.solver, held.policy.solver_budget_seconds)
        moment = time.monotonic()
        affected = {
            place
            for place, story in open_.items()
            if not story.is_given_up(moment)
            and (not looks[place].is_calm or story.is_coming(moment))
        }
        demands = tuple(
            look.demand(affected=place in affected) for place, look in sorted(looks.items())
        )
        first = displacement_runner.comes_first(open_)
        before = None
        if held.displacement != "Never":
            before = self.displacing.before(looks, open_)
        basis = demands, dict(nodes), solver, first, before
        known = self._planned.get(name)
        again = before is not None and self.displacing.is_due(name, solver.clock())
        if known is None or known[0] != basis or again:
            made, beside = plan(demands, nodes, solver, first), None
            if before is not None:
                applications = {item.name: item for item in demands}
                by_name = {place.application: look for place, look in looks.items()}
                beside = self.displacing.choose(
                    name,
                    applications,
                    made,
                    before,
                    lambda called: self._room.may_run(
                        nodes, (by_name[other] for other in upstream(called, applications))
                    ),
                    solver,
                )
            known = self._planned[name] = basis, _Decided(made, beside)
        return known[1]

    def _wanted(
        self,
        policy: RecoveryPolicy,
        held: Effective,
        made: ApplicationPlan,
        looks: Mapping[Place, ApplicationLook],
        open_: Mapping[Place, OpenStory],
    ) -> Iterator[NodeDemand]:
        """Nodes for what waits, in the name of each application's Recovery."""
        by_priority = application_incident.ordered(looks.values())
        ordered = [look.application.place for look in by_priority]
        node_millis = self._room.largest_node()
        counts = wanted_nodes.nodes_wanted(
            made, (item.application for item in ordered), node_millis
        )
        instead = self._room.replacements(made, by_priority, self._notices)
        lacking = wanted_nodes.lacking(ordered, (counts, instead), open_)
        class_, now = self.known.classes[policy.spec.class_name], time.time()
        told = (one for at in ordered for one in self.known.recoveries.get(at, {}).values())
        losses = wanted_nodes.losses((story.status for story in open_.values()), told)
        for place in ordered:
            story, name = open_.get(place), place.application
            if story is None:
                continue
            waits = bool(counts.get(name)) or story.has_losses
            reason = Reason.NO_CAPACITY if waits else Reason.LOSS_ANNOUNCED
            name = recovery_name(story.spec.application, story.spec.incident)
            recovery = self.known.recoveries.get(place, {}).get(name)
            if recovery is None:
                continue
            look = looks[place]
            executors = [pod for pod in (*look.waiting, *look.going) if pod.role == "executor"]
            if executors:
                self.measure(place, executors[0])
            wanted_nodes.ask(story, lacking[place], losses, now)
            number = story.spec.incident
            order = NodeRequestOrder("nodes", reason, story.nodes_asked)
            yield NodeDemand(
                incident=NodeIncident.of(place, recovery),
                class_name=class_.metadata.name,
                limits=limits_of(held, class_.spec),
                requests={f"{number}-1": order} if story.nodes_asked else {},
                domain_keys=held.failure_domain_keys,
                missing=lacking[place],
                executor=self.shape(place),
                # a Recovery has the newest requests alone
                held=number not in self.rows(place) and bool(story.status.requests),
            )

    def _tell_all(
        self,
        looks: Mapping[Place, ApplicationLook],
        open_: Mapping[Place, OpenStory],
        scene: IncidentNow,
        kept: int,
    ) -> None:
        application_incident.note_losses(looks, open_)
        for place, story in open_.items():
            self._tell(place, story, looks[place], scene, kept)
            if story.status.has_ended:
                self._ended.add((place, self._stories.pop(place).spec.incident))

    def _give_up(self, places: Iterable[Place]) -> None:
        """End the Recoveries of these applications, which nobody tells of any more."""
        for place in places:
            self._end(place, self._stories.pop(place))

    def _end_leftovers(self, policies: Collection[str]) -> None:
        """End what another operator, or this one in an earlier term, has left open, and whose
        policy recovers the application no more. Those of applications that are gone `effects`
        ends."""
        for place, item in list(self.known.open_recoveries()):
            application, spec = self.known.application(place), item.spec
            if application is None or (place, spec.incident) in self._ended:
                continue
            policy = f"{place.namespace}/{spec.policy_name}"
            recovers = policy == application.policy and policy in policies
            end = application_incident.end_of(application, time.time())
            if (end is not None or not recovers) and application_incident.is_whole(item.status):
                self._end(place, OpenStory(policy, spec, item.status, item.status.displaced))

    def _end(self, place: Place, story: OpenStory) -> None:
        """End a Recovery early. A write of it that waits, maybe into a namespace that is gone,
        gives way to that."""
        now = time.time()
        self.displacing.call_off((story,), now)
        self._ended.add((place, story.spec.incident))
        status = msgspec.structs.replace(story.status, displaced=story.displaced)
        told = status_builder.abandon(status, *self._why_over(place), now)
        errand = partial(self._writer.end, place, story.spec, told.status)
        self.errands.leave(f"application {place} {story.spec.incident}", errand)

    def _why_over(self, place: Place) -> tuple[RecoveryReason, str]:
        application = self.known.application(place)
        said = application_incident.end_of(application, time.time())
        if application is None or said is not None:
            return RecoveryReason.APPLICATION_GONE, f"{place.application} {said}."
        other = self.known.policies.get(application.policy or "")
        if other is not None and other.spec.recovers == APPLICATIONS:
            text = f"Policy {other.metadata.name} recovers {place.application} from now on."
        else:
            text = f"No policy recovers {place.application} as a whole any more."
        return RecoveryReason.POLICY_GONE, text

    def _tell(
        self, place: Place, story: OpenStory, look: ApplicationLook, scene: IncidentNow, kept: int
    ) -> None:
        now = time.monotonic()
        calm = look.is_calm and not look.announced
        story.calm_since = (story.calm_since or now) if calm else None
        story.silent_since = (story.silent_since or now) if look.is_silent else None
        calm_seconds = 0.0 if story.calm_since is None else now - story.calm_since
        since = application_incident.pods_back_at(story, look, calm_seconds, scene.now)
        driver, caught_up = look.application.driver, None
        if since is not None and look.may_end and story.has_losses:
            caught_up = self.progress.catch_up(place, driver, story.lost_at, since)
        after = application_incident.tell(
            story.status,
            look,
            scene,
            pods_back=since,
            caught_up=caught_up,
            displaced=story.displaced,
            is_given_up=story.is_given_up(now),
        )
        requests = self.rows(place).get(story.spec.incident, story.status.requests)
        after = msgspec.structs.replace(after, requests=requests, lost_nodes_total=story.losses)
        if after != story.status:
            story.status = after
            errand = partial(self._write, place, story.spec, after, kept)
            self.errands.leave(f"application {place} {story.spec.incident}", errand)

    def _write(self, place: Place, spec: RecoverySpec, status: RecoveryStatus, kept: int) -> None:
        """An errand. What is refused as the application has gone, with its namespace, is left."""
        try:
            self._writer.write(place, spec, status, kept)
        except api_client.ApiRefused:
            if place in self._there:
                raise

    def _release(self, pods: Iterable[PodSeen]) -> None:
        """Have gates of ours lifted, soon."""
        now = time.monotonic()
        for pod in pods:
            if now - self._lifted.get(pod.uid, -LIFT_SECONDS) >= LIFT_SECONDS:
                self._lifted[pod.uid] = now
                self.errands.leave(f"gate {pod.uid}", partial(self._writer.lift, pod))


@dataclass(frozen=True, slots=True)
class _Decided:
    """A plan, and which executors make room for an application that it skips."""

    plan: ApplicationPlan
    beside: Displacement | NotInTime | None = None


@dataclass(frozen=True, slots=True)
class _Turn:
    """What one policy comes to; `waiting` are UIDs of pods whose gates stay."""

    demands: tuple[NodeDemand, ...] = ()
    waiting: frozenset[str] = frozenset()
    buckets: frozenset[str] = frozenset()

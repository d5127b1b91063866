"""Whole applications in an incident: what of each waits or runs, and the story of its Recovery.

    pods ──► ApplicationLook ──► the planner's demand, nodes in place of those that will go
                             ──► (announced) ──► lost ──► waits ──► admitted ──► runs
                                      └── stays ──► over        told as a RecoveryStatus

The pods of an application are back when its driver and its minimum have nodes and nothing of it
waits, for `SETTLE_SECONDS`; one that asks for fewer executors than that by itself, after
`QUIET_SECONDS`. From then on it holds nobody back. It is back when its queries have caught up too,
as far as that is known (`stream_progress`); one of which nothing was lost is over at once. Pure;
`application_recovery` calls it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from rekindle.coordination.application_status import named
from rekindle.coordination.coordination_events import LossNotice
from rekindle.model.plan_problem import DOES_NOT_FIT_A_NODE
from rekindle.model.reasons import Reason
from rekindle.model.sentences import counted
from rekindle.protocol.store_paths import Place
from rekindle_operator.api import custom_resources
from rekindle_operator.api.custom_resources import (
    RECOVERED,
    ConditionFinding,
    camel_case,
)
from rekindle_operator.api.recovery_policy import ApplicationNeed
from rekindle_operator.api.recovery_resource import (
    AnnouncedNode,
    Displaced,
    LostNode,
    Phase,
    PlanMade,
    QueryRecovery,
    Recovery,
    RecoverySpec,
    RecoveryStatus,
)
from rekindle_operator.applications.application_plan import (
    ApplicationDemand,
    ApplicationPlan,
    PodDemand,
    PodHeld,
)
from rekindle_operator.applications.stream_progress import CatchUp
from rekindle_operator.cluster.application_matching import MatchedApplication
from rekindle_operator.cluster.nodes import ClusterNode
from rekindle_operator.cluster.pods import Labels, PodSeen
from rekindle_operator.detection.detection_input import READY
from rekindle_operator.policies.effective_policy import Effective
from rekindle_operator.recovery import lost_nodes
from rekindle_operator.recovery.recovery_inputs import moment
from rekindle_operator.recovery.recovery_reasons import RecoveryReason

NO_NOTICES: Final[Mapping[str, LossNotice]] = MappingProxyType({})
NOTHING_LOST: Final[tuple[Phase, Reason, str]] = (
    "Abandoned",
    Reason.NOTICE_WITHDRAWN,
    "The nodes that were announced to go stay, or nothing of it was there at their end: nothing "
    "was lost.",
)
SETTLE_SECONDS: Final = 10.0
QUIET_SECONDS: Final = 120.0
# An application of which no new pod has come for so long keeps no place from others, and its next
# pods wait for none: nobody may make them any more, or somebody refuses pods that have our gate.
SILENT_SECONDS_MAX: Final = 600.0
# New pods of an application that has lost some are expected within so long: Spark looks at its
# executors each 30 s, and makes new ones then. An operator that restarts drivers may take longer.
COMING_SECONDS_MAX: Final = 60.0
# No pod waits longer at our gate, whatever the plan says; and of the time within which its operator
# wants it to start no more than this share, for it has to find a node then, and get its image.
WAIT_SECONDS_MAX: Final = 3_600.0
START_SHARE: Final = 0.5
# So long after it was made no node is awaited any more for an executor beyond the minimum. It may
# have been at the gate for most of the time, and an autoscaler takes minutes to bring a node.
NODE_SECONDS_MAX: Final = WAIT_SECONDS_MAX + SILENT_SECONDS_MAX
MILLIS_PER_CORE = 1_000
UNDECIDED: Final = (
    "Whether less important ones can make room for it was not found out within "
    "planning.solverBudgetSeconds; it is tried again."
)


@dataclass(frozen=True, slots=True)
class ApplicationLook:
    """An application as it is now. `waiting` pods are at the gate; `pending` may run and have no
    node yet; `placed` executors have one. Executors that are `leaving` make room for another
    application, and count no more. `lost` are its nodes that are lost (name -> whether its driver
    was there), `announced` those that are announced to go, and `going` is what it has there. `gone`
    are its lost nodes, and those that went together with its pods there. `samples` are the largest
    driver and executor that were seen: others like these may be made. For further executors that
    were made before `since` (seconds since 1970) no node is awaited any more."""

    application: MatchedApplication
    need: ApplicationNeed
    priority: float
    waiting: tuple[PodSeen, ...] = ()
    pending: tuple[PodSeen, ...] = ()
    placed: tuple[PodSeen, ...] = ()
    leaving: tuple[PodSeen, ...] = ()
    driver_runs: bool = False
    lost: Mapping[str, bool] = field(default_factory=dict)
    announced: Mapping[str, LossNotice] = field(default_factory=dict)
    going: tuple[PodSeen, ...] = ()
    gone: frozenset[str] = frozenset()
    samples: tuple[PodSeen, ...] = ()
    since: float = 0.0

    @property
    def running(self) -> int:
        """How many executors have a node."""
        return len(self.placed)

    @property
    def is_calm(self) -> bool:
        """Whether nothing of it is lost, leaves, waits, or looks for a node."""
        return self.driver_runs and not (self.lost or self.leaving or self.waiting or self.awaited)

    @property
    def awaited(self) -> tuple[PodSeen, ...]:
        """Pending pods whose nodes are awaited. An application may always ask for more executors
        than there is room for."""
        if self.running < self.need.minimum_executors:
            return self.pending
        return tuple(
            pod for pod in self.pending if pod.role == "driver" or pod.created_at >= self.since
        )

    @property
    def may_end(self) -> bool:
        """Whether its Recovery may end, once its pods were back: nothing of it is lost, leaves or
        waits for its turn. Executors beyond its minimum may still look for a node."""
        at_rest = self.driver_runs and not (self.lost or self.leaving or self.waiting)
        return self.is_calm or (at_rest and self.running >= self.need.minimum_executors)

    @property
    def lacks_pods(self) -> bool:
        """Whether there are fewer pods than its minimum, those that wait or look for a node
        included. Those of a lost node are deleted before Spark makes others."""
        has_driver, executors = self._counted((*self.waiting, *self.pending))
        return not has_driver or executors < self.need.minimum_executors

    @property
    def expected(self) -> tuple[PodSeen, ...]:
        """Pods that wait for their turn, and such as those that it lacks: their nodes count."""
        return (*self.waiting, *self.samples) if self.lacks_pods else self.waiting

    def _counted(self, pods: Collection[PodSeen]) -> tuple[bool, int]:
        """Whether there is a driver, and how many executors, with these pods beside those that have
        a node."""
        has_driver = self.driver_runs or any(pod.role == "driver" for pod in pods)
        return has_driver, self.running + sum(pod.role == "executor" for pod in pods)

    @property
    def is_silent(self) -> bool:
        """Whether it lacks pods, and no new ones have come."""
        return not (self.is_calm or self.leaving or self.waiting or self.pending)

    def demand(self, *, affected: bool) -> ApplicationDemand:
        """For the planner. One that has lost nothing and waits for nothing is as it wants to be."""
        driver = next((pod for pod in self.waiting if pod.role == "driver"), None)
        executors = [pod for pod in self.waiting if pod.role == "executor"]
        has_driver, running = self._counted(self.pending)
        content = not (affected or self.waiting)
        return ApplicationDemand(
            name=self.application.place.application,
            priority=self.priority,
            driver=None if driver is None else PodDemand(driver.uid, driver.cpu_millis),
            executors=tuple(PodDemand(pod.uid, pod.cpu_millis) for pod in executors),
            running=running,
            driver_runs=has_driver or content,
            minimum=0 if content else self.need.minimum_executors,
            depends_on=self.need.depends_on,
            driver_millis=self._millis("driver"),
            executor_millis=self._millis("executor"),
            held=tuple(PodHeld(pod.uid, pod.node, pod.held_millis) for pod in self.placed),
            keeps=self.need.minimum_executors,
        )

    def _millis(self, role: str) -> int:
        """CPU of a pod that has not been made yet, in thousandths of a core."""
        return max((pod.cpu_millis for pod in self.samples if pod.role == role), default=0)


@dataclass(slots=True)
class OpenStory:
    """The Recovery of an application while it lasts. `displaced` is in its status once that is
    written, and no executor is deleted before; `leaving` are then the UIDs of those that go.
    `calm_since`, `silent_since` and `lacking_since` are of `time.monotonic`. `nodes` are those of
    its pods at the last look, and `gone` those that were lost then; it had so many `losses`."""

    policy: str
    spec: RecoverySpec
    status: RecoveryStatus
    displaced: Displaced | None = None
    leaving: frozenset[str] | None = None
    calm_since: float | None = None
    silent_since: float | None = None
    lacking_since: float | None = None
    nodes_asked: int = 0
    nodes: frozenset[str] = frozenset()
    gone: frozenset[str] = field(init=False)
    losses: int = field(init=False)

    def __post_init__(self) -> None:
        self.gone = frozenset(row.name for row in self.status.lost_nodes)
        self.losses = self.status.lost_nodes_total

    @property
    def has_losses(self) -> bool:
        """Whether anything of it was lost, waited or made room; before that it is only announced
        that nodes will go."""
        return self.displaced is not None or any(row.lost_at for row in self.status.queries)

    @property
    def lost_at(self) -> datetime | None:
        """When something of it was lost or made room first. Its nodes may have been announced to go
        long before."""
        lost = (row.lost_at for row in self.status.queries if row.lost_at is not None)
        return min(lost, default=self.status.started_at)

    @property
    def has_pods_back(self) -> bool:
        """Whether all that is left to do is to catch up."""
        return self.status.pods_back_at is not None

    @property
    def makes_room(self) -> bool:
        """Whether executors of it still go, or will."""
        return self.displaced is not None and self.displaced.gone_at is None

    def holds_back(self, now: float) -> bool:
        """Whether new pods wait on its account, at this moment of `time.monotonic`: not where
        nobody knows when it comes back, or has caught up."""
        return not (self.is_given_up(now) or self.has_pods_back)

    def is_coming(self, now: float) -> bool:
        """Whether it has lost pods and somebody is about to make others."""
        if self.lacking_since is None or self.has_pods_back or not self.has_losses:
            return False
        return now - self.lacking_since < COMING_SECONDS_MAX

    def is_given_up(self, now: float) -> bool:
        """Whether no new pod has come for too long."""
        return self.silent_since is not None and now - self.silent_since >= SILENT_SECONDS_MAX


def look_at(
    application: MatchedApplication,
    need: ApplicationNeed,
    priority: float,
    lost_nodes: Collection[str],
    lifted: Collection[str],
    samples: Iterable[PodSeen] = (),
    leaving: Collection[str] = (),
    since: float = 0.0,
    notices: Mapping[str, LossNotice] = NO_NOTICES,
) -> ApplicationLook:
    """What of an application waits and runs. Gates of `lifted` pods (UIDs) are on their way off;
    `samples` are driver and executor as they were known before; pods that are `leaving` (UIDs)
    make room; `since` as in the look; `notices` are of nodes of the cluster."""
    pods = pods_of(application)
    there = [pod for pod in pods if not pod.ended]
    lost = {
        pod.node: any(other.role == "driver" and other.node == pod.node for other in there)
        for pod in there
        if pod.node in lost_nodes
    }
    on_living = [pod for pod in there if pod.node not in lost]
    alive = [pod for pod in on_living if not pod.deleting_at and pod.uid not in leaving]
    placed = [pod for pod in alive if pod.node]
    waiting = [pod for pod in alive if pod.gated and pod.uid not in lifted]
    pending = [pod for pod in alive if not pod.node and pod not in waiting]
    going = tuple(pod for pod in placed if pod.node in notices)
    return ApplicationLook(
        application=application,
        need=need,
        priority=priority,
        waiting=tuple(waiting),
        pending=tuple(pending),
        placed=tuple(sorted((pod for pod in placed if pod.role == "executor"), key=_age)),
        leaving=tuple(pod for pod in on_living if pod.uid in leaving),
        driver_runs=any(pod.role == "driver" for pod in placed),
        lost=lost,
        announced={pod.node: notices[pod.node] for pod in going},
        going=going,
        gone=frozenset(lost) | (frozenset(lost_nodes) - application.all_nodes),
        samples=tuple(_samples(pods, tuple(samples))),
        since=since,
    )


def pods_of(application: MatchedApplication) -> tuple[PodSeen, ...]:
    """Its driver and that one's executors."""
    driver = application.driver
    return (*((driver,) if driver is not None else ()), *application.executors)


def is_overdue(application: MatchedApplication, pod: PodSeen, now: float) -> bool:
    """Whether a pod has waited at the gate for as long as it may."""
    wait_seconds, resource = WAIT_SECONDS_MAX, application.resource
    if resource is not None and resource.start_seconds_max is not None:
        wait_seconds = min(wait_seconds, START_SHARE * resource.start_seconds_max)
    return now - pod.created_at >= wait_seconds


def _samples(pods: Iterable[PodSeen], known: Collection[PodSeen]) -> Iterator[PodSeen]:
    """The largest pod of each role; of one without a pod, that which was known before."""
    for role in ("driver", "executor"):
        found = [pod for pod in pods if pod.role == role]
        found = found or [pod for pod in known if pod.role == role]
        yield from sorted(found, key=lambda pod: -pod.cpu_millis)[:1]


def _age(pod: PodSeen) -> tuple[int, str]:
    """The oldest first."""
    return pod.created_at, pod.uid


def note_lacking(
    looks: Mapping[Place, ApplicationLook], open_: Mapping[Place, OpenStory], now: float
) -> None:
    """Enter since when applications lack pods, at this moment of `time.monotonic`."""
    for place, story in open_.items():
        lacks = looks[place].lacks_pods
        story.lacking_since = (story.lacking_since or now) if lacks else None


def note_losses(looks: Mapping[Place, ApplicationLook], open_: Mapping[Place, OpenStory]) -> None:
    """Count the nodes that were lost since the look before; one that comes again under its name and
    is lost again counts again."""
    for place, story in open_.items():
        look = looks[place]
        story.losses += len(look.gone - story.gone)
        story.gone, story.nodes = look.gone, look.application.all_nodes


def may_leave(look: ApplicationLook) -> frozenset[str]:
    """UIDs of the executors that go when it goes whole: of those that are not at the gate."""
    pending = (pod for pod in look.pending if pod.role == "executor")
    return frozenset(pod.uid for pod in (*look.placed, *pending))


def is_back(look: ApplicationLook, calm_seconds: float) -> bool:
    """Whether it is as it should be, having been calm for so long."""
    enough = look.running >= look.need.minimum_executors
    return look.is_calm and calm_seconds >= (SETTLE_SECONDS if enough else QUIET_SECONDS)


def pods_back_at(
    story: OpenStory, look: ApplicationLook, calm_seconds: float, now: float
) -> datetime | None:
    """Since when its pods are back, None while they are not. Executors that come and go afterwards
    change nothing; a node that is lost or announced to go does, and a driver that does not run."""
    if story.makes_room or look.lost or look.announced or not look.driver_runs:
        return None
    if story.has_pods_back or not is_back(look, calm_seconds):
        return story.status.pods_back_at
    return moment(now - calm_seconds)


@dataclass(frozen=True, slots=True)
class IncidentNow:
    """What holds for all applications of a policy in its incident. `plan` is None while none is
    made: the policy is paused, or an approval is awaited (`why`). `nodes` are planned on (name ->
    free thousandths of a core); `lost_nodes_min` make an incident correlated. `room_makers` are
    the applications that make room now, by the name of the one for which they do; `undecided` is
    one for which that was not found out in time. Of the nodes that are `there`, these `notices` say
    that they will go."""

    now: float
    plan: ApplicationPlan | None
    nodes: Mapping[str, int]
    lost_total: int
    lost_nodes_min: int
    why: tuple[Phase, Reason | RecoveryReason, str] | None = None
    room_makers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    undecided: str | None = None
    notices: Mapping[str, LossNotice] = field(default_factory=dict)
    there: Collection[str] = ()


def tell(
    before: RecoveryStatus,
    look: ApplicationLook,
    scene: IncidentNow,
    *,
    pods_back: datetime | None = None,
    caught_up: CatchUp | None = None,
    displaced: Displaced | None = None,
    is_given_up: bool = False,
) -> RecoveryStatus:
    """The story after a look; the same value where nothing has changed. `pods_back` since then,
    and how far its queries are, where they are and something was lost. `is_given_up`: no new pod
    has come for too long."""
    at = moment(scene.now)
    name = look.application.place.application
    query = next(iter(before.queries), QueryRecovery(name, look.priority))
    lost_at = query.lost_at
    if lost_at is None and (not look.is_calm if displaced is None else not displaced.keeps):
        lost_at = at
    unharmed = lost_at is None and displaced is None
    recovered = caught_up is not None and caught_up.by is not None
    back = recovered or (unharmed and pods_back is not None)
    leaves = displaced is not None and displaced.gone_at is None
    admitted = scene.plan is not None and name not in scene.plan.skipped and not leaves
    planned_at = query.planned_at or (at if admitted and not unharmed else None)
    phase, word, text = _stage(
        look, scene, displaced, caught_up, over=back and unharmed, is_given_up=is_given_up
    )
    waits = not back and phase != "CatchingUp"
    lost = tuple(_lost(before.lost_nodes, look, scene.now))
    after = msgspec.structs.replace(
        before,
        phase=phase,
        kind=None if unharmed else _kind(scene),
        reason=camel_case(word),
        message=text,
        started_at=before.started_at or at,
        ended_at=at if back else None,
        lost_nodes=lost,
        announced_nodes=_announced(before.announced_nodes, look, scene, lost),
        displaced=displaced,
        pods_back_at=None if unharmed else pods_back,
        caught_up_by=None if caught_up is None else caught_up.by,
        plans=_plans(before, scene, name, planned=planned_at is not None and not query.planned_at),
        queries=(
            msgspec.structs.replace(
                query,
                priority=look.priority,
                lost_at=lost_at,
                planned_at=planned_at,
                back_at=at if recovered else None,
                reason=camel_case(word) if waits else None,
                message=text if waits else None,
            ),
        ),
    )
    said = (ConditionFinding(RECOVERED, recovered, _as_reason(word), text),)
    return _concluded(after, before, said, at)


def _concluded(
    after: RecoveryStatus,
    before: RecoveryStatus,
    said: tuple[ConditionFinding, ...],
    at: datetime,
) -> RecoveryStatus:
    """With its condition."""
    return msgspec.structs.replace(
        after,
        conditions=custom_resources.updated(
            before.conditions, said, before.observed_generation, at
        ),
    )


def _as_reason(word: Reason | RecoveryReason) -> Reason:
    """Conditions take any word of the lists; their type names the two of resources alone."""
    return word  # type: ignore[return-value]


def is_whole(status: RecoveryStatus) -> bool:
    """Whether a Recovery tells of a whole application. One that tells of queries has more
    conditions."""
    return [item.type for item in status.conditions] == [RECOVERED]


def holding_back(open_: Iterable[tuple[Place, Recovery]]) -> Iterator[str]:
    """Policies (namespace/name) whose incidents hold pods back, by the Recoveries that are open."""
    for place, item in open_:
        reason, queries = item.status.reason, item.status.queries
        comes = reason != camel_case(RecoveryReason.NO_NEW_PODS)
        if reason == camel_case(Reason.LOSS_ANNOUNCED):
            comes = any(query.lost_at is not None for query in queries)
        held = item.status.pods_back_at is None
        if comes and held and item.status.phase in ("Recovering", "CatchingUp"):
            yield f"{place.namespace}/{item.spec.policy_name}"


def _stage(
    look: ApplicationLook,
    scene: IncidentNow,
    displaced: Displaced | None,
    caught_up: CatchUp | None,
    *,
    over: bool,
    is_given_up: bool,
) -> tuple[Phase, Reason | RecoveryReason, str]:
    name = look.application.place.application
    if over:
        return NOTHING_LOST
    if caught_up is not None and caught_up.by is not None:
        rest = "and nothing of it waits"
        if look.awaited:
            rest = f"and {len(look.pending)} more wait for a node"
        elif look.pending:
            rest = f"and {len(look.pending)} more have been without a node for over an hour"
        text = f"Its driver and {counted(look.running, 'executor')} run, {rest}. {caught_up.text}"
        behind = caught_up.is_behind
        return "Recovered", RecoveryReason.STILL_BEHIND if behind else Reason.RECOVERED, text
    if scene.plan is None:
        assert scene.why is not None, "without a plan there is a reason"
        return scene.why
    if caught_up is not None:
        return "CatchingUp", RecoveryReason.CATCHING_UP, caught_up.text
    if is_given_up:
        minutes = f"{SILENT_SECONDS_MAX / 60:g} minutes"
        text = f"No new pod of it has come for {minutes}: its room is given to others."
        return "Recovering", RecoveryReason.NO_NEW_PODS, text
    why = scene.plan.skipped.get(name)
    if displaced is not None and (why is not None or displaced.gone_at is None):
        text = _made_room(displaced)
        if displaced.keeps and why is None:
            return "CatchingUp", RecoveryReason.DISPLACED, text
        if why is not None:
            text = f"{text} {_waits(look, scene, scene.plan, why)}"
        return "Recovering", RecoveryReason.DISPLACED, text
    if why is not None:
        return "Recovering", Reason.NO_CAPACITY, _waits(look, scene, scene.plan, why)
    if look.announced and look.is_calm:
        return "Recovering", Reason.LOSS_ANNOUNCED, _will_go(look)
    if look.lost and not look.waiting:
        text = f"New pods in place of those on {named(tuple(sorted(look.lost)))} are awaited."
        return "Recovering", Reason.WAITING_FOR_NODES, text
    millis = scene.plan.waiting_millis.get(name, 0)
    if millis:
        text = f"It is of use; executors of {_cores(millis)} more wait for room."
        return "CatchingUp", RecoveryReason.CATCHING_UP, text
    return "CatchingUp", RecoveryReason.ALL_PLACED, "All of it may run, and starts."


def _will_go(look: ApplicationLook) -> str:
    first = moment(min(notice.until for notice in look.announced.values()))
    names = named(tuple(sorted(look.announced)))
    pods = counted(len(look.going), "pod")
    return f"Announced to go: {names}, the first at {first:%H:%M:%S} UTC, with {pods} of it."


def _made_room(displaced: Displaced) -> str:
    going = counted(displaced.executors, "executor")
    stays = f"it keeps {displaced.keeps}" if displaced.keeps else "its driver stays"
    return f"It makes room for {displaced.by}, which matters more: {going} had to go, {stays}."


def making_room(names: tuple[str, ...]) -> str:
    """A sentence about applications that make room for another one."""
    return f"Less important ones make room for it: {named(names)}."


def _waits(look: ApplicationLook, scene: IncidentNow, plan: ApplicationPlan, why: str) -> str:
    behind = tuple(sorted(name for name in look.need.depends_on if name in plan.skipped))
    free = f"{counted(len(scene.nodes), 'node')} with {_cores(sum(scene.nodes.values()))} free"
    needs = sum(look.demand(affected=True).needed().values())
    text = f"It needs {_cores(needs)} for its driver and minimum; there are {free}."
    if why == DOES_NOT_FIT_A_NODE:
        text = f"A pod of it, or of what it depends on, fits on no node; there are {free}."
    name = look.application.place.application
    makers = scene.room_makers.get(name)
    if makers:
        text = f"{text} {making_room(makers)}"
    elif name == scene.undecided:
        text = f"{text} {UNDECIDED}"
    return f"{text} It depends on {named(behind)}, which waits too." if behind else text


def _cores(millis: int) -> str:
    return f"{millis / MILLIS_PER_CORE:g} cores"


def _plans(
    before: RecoveryStatus, scene: IncidentNow, name: str, *, planned: bool
) -> tuple[PlanMade, ...]:
    if not planned or scene.plan is None:
        return before.plans
    text, makers = scene.plan.text, scene.room_makers.get(name)
    if makers:
        text = f"{text} {making_room(makers)}"
    made = PlanMade(
        number=before.plans_dropped + len(before.plans) + 1,
        at=moment(scene.now),
        acknowledged_at=moment(scene.now),  # nobody else has to carry it out
        reason=camel_case(Reason.NODE_BACK),
        text=text,
        queries=scene.plan.chosen,
        queries_total=len(scene.plan.chosen),
        capacity_millicores=sum(scene.nodes.values()),
        priority_sum=scene.plan.priority_sum,
    )
    return (*before.plans, made)


def _lost(before: Iterable[LostNode], look: ApplicationLook, now: float) -> Iterable[LostNode]:
    known = {row.name: row for row in before}
    for name in sorted(known.keys() | look.lost.keys() | look.gone):
        row = known.get(name, LostNode(name, confirmed_at=moment(now)))
        if name in look.lost:
            yield msgspec.structs.replace(row, driver=row.driver or look.lost[name])
        else:
            yield row


def _kind(scene: IncidentNow) -> Literal["Independent", "Correlated"]:
    return "Correlated" if scene.lost_total >= scene.lost_nodes_min else "Independent"


def _announced(
    before: Iterable[AnnouncedNode],
    look: ApplicationLook,
    scene: IncidentNow,
    lost: Iterable[LostNode],
) -> tuple[AnnouncedNode, ...]:
    """Nodes with pods of it that were announced to go. One that is there without a notice stays,
    unless it was lost: then it is back, or another machine of that name."""
    back = set(scene.there) - scene.notices.keys() - {row.name for row in lost}
    return lost_nodes.announced_rows(before, look.announced, back)


def priorities_of(held: object, now: float) -> dict[str, float]:
    """Of applications by name, with those that people have set for now; none without a class."""
    if not isinstance(held, Effective):
        return {}
    set_now = {
        name: item.priority
        for name, item in held.overrides.items()
        if item.until is None or item.until > now
    }
    return {**held.policy.priorities, **set_now}


def ordered(looks: Iterable[ApplicationLook]) -> list[ApplicationLook]:
    """The most important first."""
    return sorted(looks, key=lambda look: (-look.priority, str(look.application.place)))


def lost_total(looks: Mapping[Place, ApplicationLook]) -> int:
    """How many nodes all of them have lost."""
    return len({name for look in looks.values() for name in look.lost})


def end_of(application: MatchedApplication | None, now: float) -> str | None:
    """Why nothing of it is to be brought back, by its SparkApplication: people may have suspended
    it. Without one it ends with its driver; but a Job or a workflow makes another pod after one
    that has failed, and has `SILENT_SECONDS_MAX` for that. None where it goes on."""
    if application is None:
        return "is not there any more"
    resource, driver = application.resource, application.driver
    if resource is None:
        is_over = application.kind == "Driver" and driver is not None and _is_last(driver, now)
        return "has ended" if is_over else None
    if resource.suspended:
        return "is suspended"
    return "has ended" if resource.ended else None


def _is_last(driver: PodSeen, now: float) -> bool:
    """Whether a driver without a SparkApplication has ended, and nobody makes another one."""
    is_made_again = driver.controlled and driver.phase != "Succeeded"
    return driver.ended and not (is_made_again and now - driver.ended_at < SILENT_SECONDS_MAX)


def is_open(node: ClusterNode) -> bool:
    """Whether pods are put on a node, as far as it depends on the node alone."""
    judged = node.judged
    return judged.ready == READY and not (judged.unschedulable or node.fenced)


def suits(node: ClusterNode, tolerates: tuple[str, ...], node_labels: Labels) -> bool:
    """Whether a pod may run on a node, by the taints that it tolerates and its node selector."""
    tolerated = "*" in tolerates or set(tolerates).issuperset(node.judged.taints)
    return tolerated and node.judged.labels.items() >= dict(node_labels).items()

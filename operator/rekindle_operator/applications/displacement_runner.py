"""Carries out choices of `displacement`: executors deleted, once their Recovery says why.

    chosen ──► noted ──► written in the Recovery ──► its executors deleted ──► gone
                 │             │                            │
                 └─────────────┴─── pause, dry run ─────────┴──► called off: the others stay

Another operator reads the Recovery and goes on. A choice that was not made in time is tried again
after a pause that grows. Before it is written nothing is deleted, and the
gates of the pods that need the room stay. Executors that Spark makes in their place wait for their
turn.

Why: docs/decisions/0054-whole-applications-wait-at-a-gate.md.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec

from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.api.recovery_resource import DISPLACED_MAX, Displaced, recovery_name
from rekindle_operator.applications import application_incident, application_plan, displacement
from rekindle_operator.applications.application_incident import ApplicationLook, OpenStory
from rekindle_operator.applications.displacement import Displacement, NotInTime, RoomMade
from rekindle_operator.cluster import api_client, cluster_view, object_kinds, pods, work_queue
from rekindle_operator.recovery.recovery_inputs import moment

# Executors that have not gone by then stay: somebody keeps it, or the Recovery cannot be written.
ROOM_SECONDS_MAX = 600.0
# Pauses after a choice that was not made in time: each twice as long as the one before.
PAUSE_SECONDS = 10.0
PAUSE_SECONDS_MAX = 600.0


@dataclass(frozen=True, slots=True)
class _Pause:
    """After a choice that was not made in time; `until` is of the solver's clock."""

    late: NotInTime
    seconds: float
    until: float


@dataclass(slots=True)
class DisplacementRunner:
    """Used by the deciding thread; pods are deleted in errands."""

    known: cluster_view.ClusterView
    api: api_client.Api
    errands: work_queue.WorkQueue
    log: Log
    # by policy
    _pauses: dict[str, _Pause] = field(default_factory=dict)

    def is_due(self, policy: str, now: float) -> bool:
        """Whether a choice that was not made in time is to be tried again; `now` is of the solver's
        clock."""
        pause = self._pauses.get(policy)
        return pause is not None and now >= pause.until

    def forget(self, policy: str) -> None:
        """Its incident has ended."""
        self._pauses.pop(policy, None)

    def choose(
        self,
        policy: str,
        applications: Mapping[str, application_plan.ApplicationDemand],
        made: application_plan.ApplicationPlan,
        before: RoomMade,
        may_run: Callable[[str], Collection[str]],
        solver: application_plan.PlanSolver,
    ) -> Displacement | NotInTime | None:
        """As `displacement.choose`; in a pause after one that was not made in time nothing is
        chosen."""
        pause = self._pauses.get(policy)
        if pause is not None and solver.clock() < pause.until:
            return pause.late
        found = displacement.choose(applications, made, before, may_run, solver)
        if isinstance(found, NotInTime):
            seconds = PAUSE_SECONDS if pause is None else 2 * pause.seconds
            seconds = min(seconds, PAUSE_SECONDS_MAX)
            self._pauses[policy] = _Pause(found, seconds, solver.clock() + seconds)
        else:
            self.forget(policy)
        return found

    def before(self, places: Iterable[Place], open_: Mapping[Place, OpenStory]) -> RoomMade | None:
        """Who has made room in this incident, which is at least as old as the oldest Recovery that
        is open; None while it is not known yet which executors go, so that no more is chosen."""
        if any(story.makes_room and story.leaving is None for story in open_.values()):
            return None
        since = min(
            (story.status.started_at for story in open_.values() if story.status.started_at),
            default=None,
        )
        found: dict[str, int] = {}
        for place in places:
            told = [item.status.displaced for item in self.known.recoveries.get(place, {}).values()]
            here = [item for item in told if item is not None and since and item.at >= since]
            story = open_.get(place)
            if story is not None and story.displaced is not None:
                here.append(story.displaced)
            if here:
                found[place.application] = min(item.keeps for item in here)
        return RoomMade(found, frozenset(room_makers(open_)))

    def begin(
        self, story: OpenStory, look: ApplicationLook, decided: Displacement, now: float
    ) -> None:
        """Note that an application makes room."""
        chosen = decided.goes[look.application.place.application]
        there = application_incident.may_leave(look)
        whole = chosen.issuperset(pod.uid for pod in look.placed)
        going = (there if whole else chosen) | {pod.uid for pod in look.leaving}
        keeps = len(there - going)
        uids = () if whole else tuple(sorted(going)[:DISPLACED_MAX])
        story.displaced = Displaced(moment(now), decided.by, len(going), keeps, uids)
        story.leaving = None
        self.log.write(
            "application-displaced",
            application=str(look.application.place),
            by=decided.by,
            executors=len(going),
            keeps=keeps,
        )

    def run(
        self, looks: Mapping[Place, ApplicationLook], open_: Mapping[Place, OpenStory], now: float
    ) -> None:
        """Have executors deleted that make room. Which ones is settled once: those that Spark makes
        in their place are not among them."""
        for place, story in open_.items():
            if story.displaced is None or not story.makes_room:
                continue
            if now - story.displaced.at.timestamp() >= ROOM_SECONDS_MAX:
                self.call_off((story,), now)
            if not story.makes_room or not self._is_told(place, story):
                continue
            look = looks[place]
            if story.leaving is None:
                there = application_incident.may_leave(look)
                story.leaving = frozenset(story.displaced.uids) if story.displaced.keeps else there
            elif not look.leaving:
                _end(story, now)
            for pod in (*look.placed, *look.pending, *look.leaving):
                if pod.uid in story.leaving and not pod.deleting_at:
                    errand = partial(self._delete, place, story, pod)
                    self.errands.leave(f"displace {pod.uid}", errand)

    def call_off(self, stories: Iterable[OpenStory], now: float) -> None:
        """Nothing is held back any more, so no further executor goes."""
        for story in stories:
            if story.makes_room:
                _end(story, now, called_off=True)
            story.leaving = None

    def _is_told(self, place: Place, story: OpenStory) -> bool:
        name = recovery_name(story.spec.application, story.spec.incident)
        recovery = self.known.recoveries.get(place, {}).get(name)
        return recovery is not None and recovery.status.displaced == story.displaced

    def _delete(self, place: Place, story: OpenStory, pod: pods.PodSeen) -> None:
        """Delete an executor, unless that was called off."""
        if pod.uid not in (story.leaving or ()):
            return
        path = api_client.path_of(object_kinds.PODS, pod.namespace, pod.name)
        try:
            there = self.api.delete(path, {"preconditions": {"uid": pod.uid}})
        except api_client.ObjectConflict:
            return  # another pod has its name by now
        if there:
            self.log.write(
                "executor-displaced", application=str(place), pod=pod.name, node=pod.node
            )


def _end(story: OpenStory, now: float, *, called_off: bool = False) -> None:
    assert story.displaced is not None, "it has made no room"
    story.displaced = msgspec.structs.replace(
        story.displaced, gone_at=moment(now), called_off=called_off
    )


def comes_first(open_: Mapping[Place, OpenStory]) -> set[str]:
    """Applications for which room was made, or is being made, in the incident that each has now."""
    began = {place.application: story.status.started_at for place, story in open_.items()}
    told = [story.displaced for story in open_.values() if story.displaced is not None]
    return {
        item.by
        for item in told
        if not item.called_off and (at := began.get(item.by)) is not None and at <= item.at
    }


def room_makers(open_: Mapping[Place, OpenStory]) -> dict[str, tuple[str, ...]]:
    """The applications that make room now, by the name of the one for which they do."""
    found: dict[str, tuple[str, ...]] = {}
    for place, story in sorted(open_.items()):
        if story.displaced is not None and story.makes_room:
            by = story.displaced.by
            found[by] = (*found.get(by, ()), place.application)
    return found

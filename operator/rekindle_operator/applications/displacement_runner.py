"""Carries out choices of `displacement`: executors deleted, once their Recovery says why.

    chosen ──► noted ──► written in the Recovery ──► its executors deleted ──► gone
                 │             │                            │
                 └─────────────┴─── pause, dry run ─────────┴──► called off: the others stay

Another operator reads the Recovery and goes on. Before it is written nothing is deleted, and the
gates of the pods that need the room stay. Executors that Spark makes in their place wait for their
turn.

Why: docs/decisions/0054-whole-applications-wait-at-a-gate.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import msgspec

from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.api.recovery_resource import Displaced, recovery_name
from rekindle_operator.applications import application_incident
from rekindle_operator.applications.application_incident import ApplicationLook, OpenStory
from rekindle_operator.applications.displacement import Displacement, RoomMade
from rekindle_operator.cluster import object_kinds
from rekindle_operator.cluster.api_client import Api, ObjectConflict, path_of
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.pods import PodSeen
from rekindle_operator.cluster.work_queue import WorkQueue
from rekindle_operator.recovery.recovery_inputs import moment

# Executors that have not gone by then stay: somebody keeps it, or the Recovery cannot be written.
ROOM_SECONDS_MAX = 600.0


@dataclass(slots=True)
class DisplacementRunner:
    """Used by the deciding thread; pods are deleted in errands."""

    known: ClusterView
    api: Api
    errands: WorkQueue
    log: Log

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
        keeps = decided.keeps[look.application.place.application]
        going = len(application_incident.to_leave(look, keeps)) + len(look.leaving)
        story.displaced = Displaced(moment(now), decided.by, going, keeps)
        story.leaving = None
        self.log.write(
            "application-displaced",
            application=str(look.application.place),
            by=decided.by,
            executors=going,
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
                story.leaving = application_incident.to_leave(look, story.displaced.keeps)
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
                _end(story, now)
            story.leaving = None

    def _is_told(self, place: Place, story: OpenStory) -> bool:
        name = recovery_name(story.spec.application, story.spec.incident)
        recovery = self.known.recoveries.get(place, {}).get(name)
        return recovery is not None and recovery.status.displaced == story.displaced

    def _delete(self, place: Place, story: OpenStory, pod: PodSeen) -> None:
        """Delete an executor, unless that was called off."""
        if pod.uid not in (story.leaving or ()):
            return
        path = path_of(object_kinds.PODS, pod.namespace, pod.name)
        try:
            there = self.api.delete(path, {"preconditions": {"uid": pod.uid}})
        except ObjectConflict:
            return  # another pod has its name by now
        if there:
            self.log.write(
                "executor-displaced", application=str(place), pod=pod.name, node=pod.node
            )


def _end(story: OpenStory, now: float) -> None:
    assert story.displaced is not None, "it has made no room"
    story.displaced = msgspec.structs.replace(story.displaced, gone_at=moment(now))


def room_makers(open_: Mapping[Place, OpenStory]) -> dict[str, tuple[str, ...]]:
    """The applications that make room now, by the name of the one for which they do."""
    found: dict[str, tuple[str, ...]] = {}
    for place, story in sorted(open_.items()):
        if story.displaced is not None and story.makes_room:
            by = story.displaced.by
            found[by] = (*found.get(by, ()), place.application)
    return found

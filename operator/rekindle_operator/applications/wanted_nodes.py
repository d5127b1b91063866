"""Nodes that whole applications lack: how many to ask for, and which pods autoscalers see.

    what the plan leaves waiting ──► nodes for each application, where a provider makes requests
                                 ──► else the pods of one application, without their gates
    nodes that will go           ──► nodes in their place

An application asks for as many nodes as it lacks, beside those that have come. Where that is more
than it ever lacked at once, it asks for no more than were lost in the incident: an executor that
ends again and again, or nodes that are of no use, would get ever more. All of that follows from
Recoveries, so another operator asks for the same.

Pure; `application_recovery` and `cluster_room` call it.
"""

import heapq
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from rekindle.coordination.announced_losses import SCALE_DOWN
from rekindle.protocol.store_paths import Place
from rekindle_operator.api.recovery_resource import NodeRequest, Recovery, RecoveryStatus
from rekindle_operator.applications.application_incident import ApplicationLook, OpenStory, ordered
from rekindle_operator.applications.application_plan import ApplicationPlan, upstream
from rekindle_operator.policies.effective_policy import Effective
from rekindle_operator.provisioning.node_demand import PENDING_PODS

# A node has come when it is Ready. It may have a taint for some seconds yet, as of its network.
USED_SECONDS: Final = 30.0


def replacements(
    looks: Iterable[ApplicationLook], free: Mapping[str, int], node_millis: int
) -> dict[str, int]:
    """How many nodes of a size to ask for on behalf of each application, the most important first,
    in place of nodes that are announced to go: as many as their pods need that find no room in what
    is `free` (thousandths of a core) on others. None in place of nodes that an autoscaler takes
    away: it has decided that there are too many, and would take away the next one."""
    # where most is free comes first, of the nodes that are there and of those that are asked for
    room = [(-millis, name) for name, millis in free.items()]
    heapq.heapify(room)
    found: dict[str, int] = {}
    for look in looks:
        for pod in sorted(look.going, key=lambda pod: (-pod.held_millis, pod.uid)):
            if look.announced[pod.node].source in SCALE_DOWN:
                continue
            name = look.application.place.application
            if room and -room[0][0] >= pod.held_millis:
                most, where = room[0]
                heapq.heapreplace(room, (most + pod.held_millis, where))
            else:
                found[name] = found.get(name, 0) + 1
                heapq.heappush(room, (pod.held_millis - node_millis, ""))
    return found


def nodes_wanted(plan: ApplicationPlan, order: Iterable[str], node_millis: int) -> dict[str, int]:
    """How many nodes of a size to ask for on behalf of each application, the most important first:
    together as many as all that waits needs."""
    found, total, nodes = {}, 0, 0
    for name in order:
        millis = plan.waiting_millis.get(name, 0)
        if millis and node_millis:
            total += millis
            wanted = -(-total // node_millis)
            found[name], nodes = wanted - nodes, wanted
    return {name: count for name, count in found.items() if count}


def lacking(
    order: Iterable[Place], wanted: Iterable[Mapping[str, int]], open_: Mapping[Place, OpenStory]
) -> dict[Place, int]:
    """How many nodes applications lack, the most important first: what is `wanted` (each by name),
    less the nodes that are on their way for others and that those need no more."""
    summands = [*wanted]
    found = {place: sum(item.get(place.application, 0) for item in summands) for place in order}
    coming = {
        place: _nodes(item for item in story.status.requests if item.outcome == "Pending")
        for place, story in open_.items()
    }
    spare = sum(max(0, count - found.get(place, 0)) for place, count in coming.items())
    for place, count in found.items():
        taken = min(spare, max(0, count - coming.get(place, 0)))
        found[place], spare = count - taken, spare - taken
    return found


def losses(open_: Iterable[RecoveryStatus], recoveries: Iterable[Recovery]) -> int:
    """How many nodes were lost or announced to go in an incident, by all Recoveries that were open
    in it. A node whose notice was withdrawn counts: the one that has come for it may be in use."""
    found = [*open_]
    began_at = min((status.started_at for status in found if status.started_at), default=None)
    for item in recoveries:
        ended_at = item.status.ended_at
        if ended_at is not None and began_at is not None and ended_at >= began_at:
            found.append(item.status)
    return sum(map(_harm, found))


def _harm(status: RecoveryStatus) -> int:
    lost = {row.name for row in status.lost_nodes}
    announced = sum(row.name not in lost for row in status.announced_nodes)
    return status.lost_nodes_total + announced


def ask(story: OpenStory, count: int, lost: int, now: float) -> None:
    """Enter how many nodes are lacking at this moment (seconds since 1970), where so many were
    `lost`. Nodes that have come are in use by then, so others are asked for beside them: nodes may
    be lost one after the other, or Spark may make their pods one after the other."""
    requests = story.status.requests
    got = _nodes(item for item in requests if _is_got(item, now))
    wanted = _nodes(item for item in requests if item.outcome in ("Pending", "Arrived"))
    story.nodes_asked = max(story.nodes_asked, wanted, count, min(got + count, lost))


def _is_got(request: NodeRequest, now: float) -> bool:
    """Whether nodes of a request have come, and the plan has had the time to use them."""
    came_at = request.ended_at if request.outcome == "Arrived" else None
    return came_at is not None and came_at.timestamp() <= now - USED_SECONDS


def _nodes(requests: Iterable[NodeRequest]) -> int:
    return sum(item.count for item in requests)


def seen_by_autoscalers(
    held: Effective,
    made: ApplicationPlan,
    looks: Mapping[Place, ApplicationLook],
    open_: Mapping[Place, OpenStory],
    now: float,
) -> frozenset[str]:
    """UIDs of pods that may look for a node beyond the plan, at this moment of `time.monotonic`;
    none where a provider makes requests."""
    if any(item.provider != PENDING_PODS for item in held.providers):
        return frozenset()
    return _most_important(made, looks, {p for p, story in open_.items() if story.is_coming(now)})


def _most_important(
    made: ApplicationPlan, looks: Mapping[Place, ApplicationLook], coming: Collection[Place]
) -> frozenset[str]:
    """The pods of the most important application that waits, with those of all that it depends on,
    which an autoscaler has to see. One at a time; less important ones that find no node keep nobody
    waiting. Applications whose pods are `coming` count as waiting: a less important pod would get
    the free node that is kept for them."""
    if made.admitted:
        return frozenset()
    by_name = {look.application.place.application: look for look in looks.values()}
    demands = {name: look.demand(affected=True) for name, look in by_name.items()}
    there = (
        look for place, look in looks.items() if look.waiting or look.pending or place in coming
    )
    for first in ordered(there):
        name = first.application.place.application
        group = upstream(name, demands)
        pending = (pod for other in group for pod in by_name[other].awaited)
        if any(not pod.gated_by_others for pod in pending):
            return frozenset()  # what is less important waits for it
        needed = {uid for other in group for uid in demands[other].needed()}
        found = {pod.uid for other in group for pod in by_name[other].waiting} & needed
        if not found and demands[name].is_of_use:
            found = {pod.uid for pod in first.waiting[:1]}
        if found:
            return frozenset(found)
        if not (first.waiting or first.pending):
            return frozenset()
    return frozenset()

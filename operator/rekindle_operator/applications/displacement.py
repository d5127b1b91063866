"""Which executors that run make room for an application that waits and matters more.

    an application that the plan skips ──► executors of less important ones, the least harm first
                                       ──► as few of them as it needs: Displacement

First go executors beyond the minimum of an application, and those of one that is of no use as it
is, one by one and on nodes where the room is needed: that stops nothing. Then an application goes
whole, which means all of its executors; its driver stays, for nobody makes another one of an
application that does not restart. Together they matter less than the one for which they make room.
Nothing goes on which another application depends. Pure.

Why: docs/decisions/0054-whole-applications-wait-at-a-gate.md.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from rekindle.model.plan_problem import Problem
from rekindle_operator.applications.application_plan import (
    MILLIS_PER_PERCENT,
    ApplicationDemand,
    ApplicationPlan,
    PlanSolver,
    PodHeld,
    to_problem,
    upstream,
    waits_for_room,
)

# So many applications that wait are tried with each plan, each with so many that go whole at most.
APPLICATIONS_MAX = 10
WHOLE_MAX = 50
# Of one application so many executors go one by one at most: the Recovery names them.
EXECUTORS_MAX = 500
FIT_SECONDS = 0.01
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Displacement:
    """Executors that make room for the application `by` (application -> UIDs)."""

    by: str
    goes: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class NotInTime:
    """Whether others can make room for the application `by` was not found out in time."""

    by: str


@dataclass(frozen=True, slots=True)
class RoomMade:
    """Who has made room in this incident (application -> how many executors it kept), and for
    which applications room is being `made` now."""

    kept: Mapping[str, int] = field(default_factory=dict)
    made: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Step:
    """One executor that goes, or all of an application; the plan's place for further ones of it is
    `placed`. `harm` is the priority that stops with it."""

    name: str
    pods: tuple[PodHeld, ...]
    harm: float
    priority: float
    placed: tuple[PodHeld, ...] = ()
    whole: bool = False

    @property
    def order(self) -> tuple[float, bool, float, int, str]:
        """The least harm first, then the least important, then the one that frees most."""
        freed = sum(pod.cpu_millis for pod in (*self.pods, *self.placed))
        return self.harm, self.whole, self.priority, -freed if self.whole else 0, self.name


class _LateError(Exception):
    """There is no time left for another look."""


def choose(
    applications: Mapping[str, ApplicationDemand],
    made: ApplicationPlan,
    before: RoomMade,
    may_run: Callable[[str], Collection[str]],
    solver: PlanSolver,
) -> Displacement | NotInTime | None:
    """For the most important application that the plan skips and that finds room by it. `may_run`
    gives the nodes on which all pods of an application that wait may be. For pods that Spark has
    not made yet nothing is stopped. Of those that have made
    room `before` only those that kept executors may do so again, and go whole where they have got
    others since."""
    waits = sorted(
        (
            name
            for name in made.skipped
            if name not in before.made and waits_for_room(name, applications)
        ),
        key=lambda name: (-applications[name].priority, name),
    )
    depended = _depended(applications, made, before.kept)
    until = solver.clock() + solver.budget_seconds
    for name in waits[:APPLICATIONS_MAX]:
        kept = depended | upstream(name, applications)
        problem = _problem(applications, name, made, may_run(name))
        steps = [
            step
            for other, item in applications.items()
            if other not in kept and item.priority < applications[name].priority
            for step in _steps(item, made, before.kept.get(other), problem.nodes or {})
        ]
        try:
            found = _search(problem, name, steps, partial(_fits, problem, solver, until))
        except _LateError:
            return NotInTime(name)
        if found:
            return Displacement(name, _by_application(found))
    return None


def _depended(
    applications: Mapping[str, ApplicationDemand], made: ApplicationPlan, kept: Mapping[str, int]
) -> frozenset[str]:
    """Applications on which others depend; one that has gone whole, has no executors and does not
    come back now does not count."""
    return frozenset(
        other
        for name, item in applications.items()
        if kept.get(name) != 0 or item.held or item.running or name in made.chosen
        for other in upstream(name, applications) - {name}
    )


def _steps(
    item: ApplicationDemand, made: ApplicationPlan, kept: int | None, nodes: Mapping[str, float]
) -> Iterator[_Step]:
    """The steps of an application that free CPU of these nodes (name -> free CPU, in percent of
    one core); `kept` is how many executors it kept when it made room."""
    if kept == 0 or not item.held:
        return
    comes_back = item.name in made.chosen
    if (kept is None or len(item.held) <= kept) and not comes_back:
        stay = max(item.keeps, 1) if item.is_of_use else 0
        beyond = max(0, len(item.held) - stay)
        for pod in _by_room(item.held, nodes)[: min(beyond, EXECUTORS_MAX)]:
            yield _Step(item.name, (pod,), 0.0, item.priority)
    placed = made.placed_of(item) if comes_back else ()
    if any(pod.node in nodes for pod in (*item.held, *placed)):
        harm = item.priority if item.is_of_use or comes_back else 0.0
        yield _Step(item.name, item.held, harm, item.priority, placed, whole=True)


def _by_room(held: Sequence[PodHeld], nodes: Mapping[str, float]) -> list[PodHeld]:
    """Executors on these nodes: first those on the node that would have most room, there the
    youngest first."""
    room = dict(nodes)
    there = [pod for pod in reversed(held) if pod.node in room]
    for pod in there:
        room[pod.node] += pod.cpu_millis / MILLIS_PER_PERCENT
    return sorted(there, key=lambda pod: (-room[pod.node], pod.node))


def _by_application(steps: Iterable[_Step]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for step in steps:
        found[step.name] = found.get(step.name, frozenset()) | {pod.uid for pod in step.pods}
    return found


def _problem(
    applications: Mapping[str, ApplicationDemand],
    name: str,
    made: ApplicationPlan,
    nodes: Iterable[str],
) -> Problem:
    """To place the pods that one application lacks on the CPU that the plan leaves."""
    placed = {part for parts in made.placement.values() for part in parts}
    lacking = sorted(
        part
        for other in upstream(name, applications)
        for part in applications[other].needed()
        if part not in placed
    )
    left = {node: made.left[node] for node in nodes if node in made.left}
    return to_problem(applications, {name: lacking}, left)


def _search(
    problem: Problem,
    name: str,
    steps: Iterable[_Step],
    fits: Callable[[Sequence[_Step]], bool],
) -> list[_Step]:
    """The least of the first steps that together do less harm than the application is worth; where
    that is not enough, of those that do none and one other."""
    ordered = sorted(steps, key=lambda step: step.order)
    single = [step for step in ordered if not step.whole]
    whole = [step for step in ordered if step.whole][:WHOLE_MAX]
    worth = problem.queries[name].priority
    count, harm = 0, 0.0
    while count < len(whole) and harm + whole[count].harm < worth:
        harm += whole[count].harm
        count += 1
    free = [*single, *(step for step in whole if not step.harm)]
    alone = ([*free, step] for step in whole[count:] if step.harm < worth)
    for tried in ([*single, *whole[:count]], *alone):
        if tried and fits(tried):
            return _least(tried, fits)
    return []


def _least(steps: Sequence[_Step], fits: Callable[[Sequence[_Step]], bool]) -> list[_Step]:
    """Those of the steps, in order, without any of which there is no room; none where that is not
    found."""
    found: list[_Step] = []
    while not fits(found):
        if not steps:
            return []
        # of the shortest beginning that is enough the last one is needed
        ends = range(1, len(steps))
        last = bisect_left(ends, True, key=lambda end: fits([*steps[:end], *found]))
        found.append(steps[last])
        steps = steps[:last]
    return found


def _fits(problem: Problem, solver: PlanSolver, until: float, steps: Iterable[_Step]) -> bool:
    """Whether the problem has an answer on the nodes as they are after these steps."""
    if solver.clock() >= until:
        raise _LateError
    free = dict(problem.nodes or {})
    # an executor is of two steps where its application goes whole
    gone = {pod.uid: pod for step in steps for pod in (*step.pods, *step.placed)}
    for pod in gone.values():
        if pod.node in free:
            free[pod.node] += pod.cpu_millis / MILLIS_PER_PERCENT
    # one application fits or does not: there is nothing to search
    quick = replace(solver, solver="best-density", budget_seconds=FIT_SECONDS)
    smallest = min(cost.cpu_percent for cost in problem.partitions.values())
    open_ = {node: percent for node, percent in free.items() if percent > 0}
    if smallest > 0:
        # many looks end here, without the planner
        places = {node: int(percent / smallest + ROUNDING) for node, percent in open_.items()}
        open_ = {node: percent for node, percent in open_.items() if places[node]}
        if sum(places.values()) < len(problem.partitions):
            return False
    return bool(quick.solve(replace(problem, nodes=open_)).queries)

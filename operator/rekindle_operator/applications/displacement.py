"""Which executors that run make room for an application that waits and matters more.

    an application that the plan skips ──► executors of less important ones, the least harm first
                                       ──► as few of them as it needs: Displacement

First go executors beyond the minimum of an application, and those of one that is of no use as it
is: that stops nothing. Then an application goes whole, which means all of its executors; its driver
stays, for nobody makes another one of an application that does not restart. Together they matter
less than the one for which they make room. Nothing goes on which another application depends. Pure.

Why: docs/decisions/0054-whole-applications-wait-at-a-gate.md.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from rekindle.model.plan_problem import Problem
from rekindle_operator.applications.application_plan import (
    MILLIS_PER_PERCENT,
    ApplicationDemand,
    ApplicationPlan,
    PlanSolver,
    to_problem,
    upstream,
)

# So many applications that wait are tried with each plan, each with so many steps at most.
APPLICATIONS_MAX = 10
STEPS_MAX = 50
FIT_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Displacement:
    """Applications that make room for `by` (name -> how many executors each keeps: its minimum,
    or none)."""

    by: str
    keeps: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RoomMade:
    """Who has made room in this incident (application -> how many executors it kept), and for
    which applications room is being `made` now."""

    kept: Mapping[str, int] = field(default_factory=dict)
    made: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Step:
    """One application down to so many executors; `freed` is CPU of nodes (thousandths of a core),
    beyond that of a step before. `harm` is the priority that stops with it."""

    name: str
    keeps: int
    harm: float
    priority: float
    freed: Mapping[str, int]

    @property
    def order(self) -> tuple[float, float, int, str, int]:
        """The least harm first, then the least important, then the one that frees most. Of one
        application executors beyond its minimum are first."""
        return self.harm, self.priority, -sum(self.freed.values()), self.name, -self.keeps


def choose(
    applications: Mapping[str, ApplicationDemand],
    made: ApplicationPlan,
    before: RoomMade,
    may_run: Callable[[str], Collection[str]],
    solver: PlanSolver,
) -> Displacement | None:
    """For the most important application that the plan skips and that finds room by it. `may_run`
    gives the nodes on which all pods of an application that wait may be. Of those that have made
    room `before` only those that kept executors may do so again, and then go whole."""
    waits = sorted(
        (name for name in made.skipped if name not in before.made and _waits(applications, name)),
        key=lambda name: (-applications[name].priority, name),
    )
    depended = _depended(applications, before.kept)
    until = solver.clock() + solver.budget_seconds
    for name in waits[:APPLICATIONS_MAX]:
        kept = depended | upstream(name, applications)
        steps = [
            step
            for other, item in applications.items()
            if other not in kept and item.priority < applications[name].priority
            for step in _steps(item, made, before.kept.get(other))
        ]
        problem = _problem(applications, name, made, may_run(name))
        found = _least(problem, _bearable(problem, name, steps), solver, until)
        if solver.clock() >= until:
            return None  # a choice that is not made in time is not made: it may be too large
        if found:
            return Displacement(name, {step.name: step.keeps for step in found})
    return None


def _waits(applications: Mapping[str, ApplicationDemand], name: str) -> bool:
    """Whether pods wait without which an application is of no use: for those that Spark has not
    made yet nothing is stopped."""
    group = (applications[other] for other in upstream(name, applications))
    return any(item.driver is not None or (item.executors and not item.is_of_use) for item in group)


def _depended(
    applications: Mapping[str, ApplicationDemand], kept: Mapping[str, int]
) -> frozenset[str]:
    """Applications on which others depend that have not gone whole."""
    return frozenset(
        other
        for name, item in applications.items()
        if kept.get(name) != 0
        for other in item.depends_on
    )


def _steps(item: ApplicationDemand, made: ApplicationPlan, kept: int | None) -> Iterator[_Step]:
    """The steps of an application; `kept` is how many executors it kept when it made room."""
    if kept == 0 or not item.held:
        return
    comes_back = item.name in made.chosen
    rest = item.held
    if item.is_of_use and item.keeps and kept is None:
        rest, beyond = item.held[: item.keeps], item.held[item.keeps :]
        if beyond:
            yield _Step(item.name, item.keeps, 0.0, item.priority, _by_node(beyond))
    placed = made.placed_of(item) if comes_back else ()
    harm = item.priority if item.is_of_use or comes_back else 0.0
    yield _Step(item.name, 0, harm, item.priority, _by_node((*rest, *placed)))


def _by_node(pods: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for node, millis in pods:
        found[node] = found.get(node, 0) + millis
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


def _bearable(problem: Problem, name: str, steps: Iterable[_Step]) -> list[_Step]:
    """The first steps that free something where an application may run, and that together do less
    harm than it is worth."""
    assert problem.nodes is not None, "applications are placed on nodes"
    found: list[_Step] = []
    harm = 0.0
    for step in sorted(steps, key=lambda step: step.order):
        if step.freed.keys().isdisjoint(problem.nodes):
            continue
        harm += step.harm
        if harm >= problem.queries[name].priority or len(found) == STEPS_MAX:
            break
        found.append(step)
    return found


def _least(problem: Problem, steps: list[_Step], solver: PlanSolver, until: float) -> list[_Step]:
    """Those of the steps, in order, without any of which the problem has no answer; none where it
    has none with all of them."""
    if not steps or not _fits(problem, steps, solver):
        return []
    found = steps
    for step in reversed(steps):
        if solver.clock() >= until:
            return []
        without = [item for item in found if item is not step]
        names = {item.name for item in without}
        if not (step.keeps and step.name in names) and _fits(problem, without, solver):
            found = without
    return found


def _fits(problem: Problem, steps: Iterable[_Step], solver: PlanSolver) -> bool:
    free = dict(problem.nodes or {})
    for step in steps:
        for node in step.freed.keys() & free.keys():
            free[node] += step.freed[node] / MILLIS_PER_PERCENT
    # one application fits or does not: there is nothing to search
    quick = replace(solver, solver="best-density", budget_seconds=FIT_SECONDS)
    open_ = {node: percent for node, percent in free.items() if percent > 0}
    return bool(quick.solve(replace(problem, nodes=open_)).queries)

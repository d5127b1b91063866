"""Which pods of whole applications may run now: the planner's problem, and its answer read back.

Each application is a query. Its partitions are the pods without which it is of no use: its driver
and `minimum` executors, and those of all applications that it depends on. A pod that Spark has not
made yet has a stand-in of the same size, so nothing is admitted below its minimum. What is left of
the nodes after that goes to further executors, each a query of its own, with the priority of its
application.

Costs are requests of CPU, as the scheduler counts them, and capacity is what no pod requests.
Memory is not planned: a pod that has CPU and no memory on a node stays Pending there. Pure.

Why: docs/decisions/0054-whole-applications-wait-at-a-gate.md.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from rekindle.model.plan_problem import Answer, PartitionCost, Problem, QueryDemand, describe
from rekindle.planning import solve

MILLIS_PER_PERCENT = 10


@dataclass(frozen=True, slots=True)
class PodDemand:
    """A pod that waits at the gate; `cpu_millis` is what it requests as a whole."""

    uid: str
    cpu_millis: int


class PodHeld(NamedTuple):
    """An executor that holds CPU of a node (thousandths of a core)."""

    uid: str
    node: str
    cpu_millis: int


@dataclass(frozen=True, slots=True)
class ApplicationDemand:
    """An application, with what of it waits and what runs.

    `driver` and `executors` wait. `running` executors count towards the `minimum`: they run, or
    have been admitted. `driver_runs` holds for one that was admitted as well. Stand-ins for pods
    that Spark has not made yet are of `driver_millis` and `executor_millis`. `held` are its
    executors on nodes, the oldest first; where some of them make room for an application that
    matters more, it keeps at least `keeps` of these, or none.
    """

    name: str
    priority: float
    driver: PodDemand | None = None
    executors: tuple[PodDemand, ...] = ()
    running: int = 0
    driver_runs: bool = False
    minimum: int = 1
    depends_on: tuple[str, ...] = ()
    driver_millis: int = 0
    executor_millis: int = 0
    held: tuple[PodHeld, ...] = ()
    keeps: int = 0

    @property
    def is_of_use(self) -> bool:
        """Whether what it cannot do without runs already."""
        return self.driver_runs and self.running >= self.minimum

    def needed(self) -> dict[str, int]:
        """Pods and stand-ins (name -> thousandths of a core) that it cannot do without."""
        missing = max(0, self.minimum - self.running)
        found = {pod.uid: pod.cpu_millis for pod in islice(self.executors, missing)}
        for number in range(missing - len(found)):
            found[f"{self.name}/executor-{number}"] = self.executor_millis
        if self.driver is not None:
            found[self.driver.uid] = self.driver.cpu_millis
        elif not self.driver_runs:
            found[f"{self.name}/driver"] = self.driver_millis
        return found


@dataclass(frozen=True, slots=True)
class ApplicationPlan:
    """`admitted` are the UIDs of pods whose gates may be lifted, `further` those of them that an
    application can do without. `chosen` applications are of use with them, the most important
    first; `skipped` gives the planner's reason for each other one. `text` is the plan in a
    sentence; `waiting_millis` (application -> thousandths of a core) is what waits on, with what
    Spark has not made yet. `placement` (node -> pods and stand-ins) is of those that applications
    cannot do without, and `left` is the CPU of each node beside it, in percent of one core."""

    admitted: frozenset[str] = frozenset()
    further: frozenset[str] = frozenset()
    chosen: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    priority_sum: float = 0.0
    waiting_millis: Mapping[str, int] = field(default_factory=dict)
    placement: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    left: Mapping[str, float] = field(default_factory=dict)

    def placed_of(self, item: ApplicationDemand) -> tuple[PodHeld, ...]:
        """Where the plan has placed pods and stand-ins that an application cannot do without."""
        needed = item.needed()
        return tuple(
            PodHeld(part, node, needed[part])
            for node, parts in self.placement.items()
            for part in parts
            if part in needed
        )


@dataclass(frozen=True, slots=True)
class PlanSolver:
    """How the planner is called: `solver` and `budget_seconds` are the policy's."""

    clock: Callable[[], float]
    solver: str = "auto"
    budget_seconds: float = 1.0

    def solve(self, problem: Problem) -> Answer:
        """The planner's answer."""
        return solve(
            problem, clock=self.clock, solver=self.solver, budget_seconds=self.budget_seconds
        )


def plan(
    applications: Iterable[ApplicationDemand],
    nodes: Mapping[str, int],
    solver: PlanSolver,
    first: Collection[str] = (),
) -> ApplicationPlan:
    """Choose applications, then further executors, for `nodes` (name -> free thousandths of a
    core). An application that waits for nothing is not in the plan. Those of `first` are chosen
    before all others, for room was made for them; not before pods that wait and matter more."""
    known = {item.name: item for item in applications}
    needed = {name: item.needed() for name, item in known.items()}
    parts = {
        name: sorted(part for other in upstream(name, known) for part in needed[other])
        for name, item in known.items()
        if not item.is_of_use
    }
    left = {name: free / MILLIS_PER_PERCENT for name, free in nodes.items()}
    taken: frozenset[str] = frozenset()
    placement: dict[str, tuple[str, ...]] = {}
    answers: list[Answer] = []
    for names in _turns(known, parts, first):
        missing = {name: [part for part in parts[name] if part not in taken] for name in names}
        problem = to_problem(known, missing, left)
        answers.append(solver.solve(problem))
        taken |= {*answers[-1].partitions}
        left = _left(left, answers[-1].placement, problem.partitions)
        for node, placed in answers[-1].placement.items():
            placement[node] = (*placement.get(node, ()), *placed)
    chosen = [name for name in parts if taken.issuperset(parts[name])]
    more = _further(known, taken, chosen, left, solver)
    waiting = {pod.uid for item in known.values() for pod in _pods(item)}
    admitted = (taken & waiting) | more
    skipped = {name: why for answer in answers for name, why in answer.skipped.items()}
    return ApplicationPlan(
        admitted=admitted,
        further=more,
        chosen=tuple(sorted(chosen, key=lambda name: (-known[name].priority, name))),
        skipped={name: why for name, why in skipped.items() if name not in chosen},
        text=" ".join(
            describe(
                answer, verb="Admit", one="waiting application", several="waiting applications"
            )
            for answer in answers
        ),
        priority_sum=sum(answer.priority_sum for answer in answers),
        waiting_millis=_waiting(known.values(), admitted | taken),
        placement=placement,
        left=left,
    )


def _turns(
    applications: Mapping[str, ApplicationDemand], names: Iterable[str], first: Collection[str]
) -> list[list[str]]:
    """Applications of these names that are planned together, the first ones first: those of `first`
    only after those that matter more and of which pods wait."""
    found: list[list[str]] = []
    rest = [*names]
    ahead = {name: applications[name].priority for name in rest if name in first}
    waiting = {
        name: applications[name].priority
        for name in rest
        if first and waits_for_room(name, applications)
    }
    for priority in sorted({*ahead.values()}, reverse=True):
        found.append([name for name in rest if waiting.get(name, priority) > priority])
        found.append([name for name in rest if ahead.get(name) == priority])
        done = {*found[-2], *found[-1]}
        rest = [name for name in rest if name not in done]
    return [names for names in (*found, rest) if names] or [[]]


def to_problem(
    applications: Mapping[str, ApplicationDemand],
    parts: Mapping[str, Sequence[str]],
    nodes: Mapping[str, float],
) -> Problem:
    """RECOVERY SCHEDULING for applications that lack these `parts` (pods and stand-ins) on the free
    CPU of `nodes`, in percent of one core. In a cycle of dependencies all come together; a name
    that is not there is passed over."""
    asked = {part for lacking in parts.values() for part in lacking}
    costs = {
        part: PartitionCost(millis / MILLIS_PER_PERCENT)
        for item in applications.values()
        for part, millis in item.needed().items()
        if part in asked
    }
    return Problem(
        partitions={part: costs[part] for part in sorted(asked)},
        queries={
            name: QueryDemand(applications[name].priority, tuple(lacking))
            for name, lacking in parts.items()
            if lacking
        },
        failed=frozenset(asked),
        nodes=dict(nodes),
    )


def upstream(name: str, applications: Mapping[str, ApplicationDemand]) -> set[str]:
    """An application with all that it depends on, directly or not."""
    found, open_ = {name}, [name]
    while open_:
        for other in applications[open_.pop()].depends_on:
            if other in applications and other not in found:
                found.add(other)
                open_.append(other)
    return found


def waits_for_room(name: str, applications: Mapping[str, ApplicationDemand]) -> bool:
    """Whether pods wait, and not stand-ins alone, without which an application is of no use."""
    group = (applications[other] for other in upstream(name, applications))
    return any(item.driver is not None or (item.executors and not item.is_of_use) for item in group)


def _further(
    applications: Mapping[str, ApplicationDemand],
    taken: frozenset[str],
    chosen: Iterable[str],
    left: Mapping[str, float],
    solver: PlanSolver,
) -> frozenset[str]:
    """Executors beyond the minimum, of applications that are of use, on what is left."""
    useful = {name for name, item in applications.items() if item.is_of_use} | {*chosen}
    extras = {
        pod.uid: (applications[name].priority, pod.cpu_millis)
        for name in sorted(useful)
        for pod in applications[name].executors
        if pod.uid not in taken
    }
    # what waits of a driver is never an extra: without it the application is not of use
    answer = solver.solve(
        Problem(
            partitions={
                uid: PartitionCost(millis / MILLIS_PER_PERCENT)
                for uid, (_, millis) in extras.items()
            },
            queries={uid: QueryDemand(priority, (uid,)) for uid, (priority, _) in extras.items()},
            failed=frozenset(extras),
            nodes=dict(left),
        )
    )
    return frozenset(answer.partitions)


def _left(
    nodes: Mapping[str, float],
    placement: Mapping[str, Iterable[str]],
    partitions: Mapping[str, PartitionCost],
) -> dict[str, float]:
    """Free CPU of each node, in percent of one core, beside what is placed there."""
    return {
        name: max(0.0, free - sum(partitions[part].cpu_percent for part in placement.get(name, ())))
        for name, free in nodes.items()
    }


def _pods(item: ApplicationDemand) -> tuple[PodDemand, ...]:
    return item.executors if item.driver is None else (item.driver, *item.executors)


def _waiting(applications: Iterable[ApplicationDemand], admitted: frozenset[str]) -> dict[str, int]:
    found = {}
    for item in applications:
        parts = {**item.needed(), **{pod.uid: pod.cpu_millis for pod in _pods(item)}}
        millis = sum(cost for part, cost in parts.items() if part not in admitted)
        if millis:
            found[item.name] = millis
    return found


def reserve(nodes: Mapping[str, int], pods: Iterable[int]) -> dict[str, int]:
    """What is left of the nodes (name -> thousandths of a core) when pods that may run and have no
    node yet, each of so many thousandths, are on them: the largest first, where most is free. One
    that fits nowhere takes nothing."""
    left = dict(nodes)
    for millis in sorted(pods, reverse=True):
        node = max(left, key=lambda name: (left[name], name), default=None)
        if node is not None and left[node] >= millis:
            left[node] -= millis
    return left

"""Checks each plan against its problem: its promises must follow from its input.

Pure. Trusts no field of an answer that can be counted again. `check` calls it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rekindle.model import plan_problem as recovery_problem
from rekindle.model import run_events
from rekindle.model.plan_problem import Answer, Problem
from rekindle.model.run_events import Event
from rekindle.verification.figure_differences import Difference, differences

# Sums of CPU percent, added in another order than the planner's.
TOLERANCE_CPU_PERCENT = 1e-6

Record = Mapping[str, Any]


def check(
    events: Sequence[Event], problems: Mapping[int, Record], answers: Mapping[int, Record]
) -> list[Difference]:
    """Give what is wrong with any plan; InputError for records that are no problem or answer."""
    found = [
        Difference(f"problems/{number}.json", "a problem", f"no answers/{number}.json")
        for number in sorted(set(problems) - set(answers))
    ]
    found += [
        Difference(f"answers/{number}.json", "an answer", f"no problems/{number}.json")
        for number in sorted(set(answers) - set(problems))
    ]
    for number in sorted(set(problems) & set(answers)):
        problem = recovery_problem.from_record(problems[number], f"problems/{number}.json")
        where = f"answers/{number}.json"
        answer = recovery_problem.answer_from_record(answers[number], where)
        found += _pair(problem, answer, where)
        found += _announced(events, number, answer, where)
    return found


def _pair(problem: Problem, answer: Answer, where: str) -> list[Difference]:
    unknown = sorted(set(answer.queries) - set(problem.queries))
    placed = {name for held in answer.placement.values() for name in held}
    unknown += sorted({*answer.partitions, *placed} - set(problem.partitions))
    if unknown:
        return [Difference(where, f"plans {unknown[0]}", "the problem does not have it")]
    used = sum(problem.partitions[name].cpu_percent for name in answer.partitions)
    priority_sum = sum(problem.queries[query].priority for query in answer.queries)
    return [
        *_closed(problem, answer, where),
        *differences(answer.priority_sum, priority_sum, f"{where}: priority_sum"),
        *differences(answer.used_cpu_percent, used, f"{where}: used_cpu_percent"),
        *differences(answer.gap, _gap(answer, priority_sum), f"{where}: gap"),
        *_capacity(problem, answer, used, where),
    ]


def _closed(problem: Problem, answer: Answer, where: str) -> list[Difference]:
    needed = problem.failed.intersection(
        name for query in answer.queries for name in problem.queries[query].partitions
    )
    found = [
        Difference(f"{where}: partitions", "without it", f"{name} is needed")
        for name in sorted(needed - set(answer.partitions))
    ]
    return found + [
        Difference(f"{where}: partitions", name, "runs already or serves no planned query")
        for name in sorted(set(answer.partitions) - needed)
    ]


def _gap(answer: Answer, priority_sum: float) -> float:
    bound = answer.upper_bound
    return (bound - priority_sum) / bound if bound > 0 else 0.0


def _capacity(problem: Problem, answer: Answer, used: float, where: str) -> list[Difference]:
    found = []
    if answer.upper_bound < answer.priority_sum and not math.isclose(
        answer.upper_bound, answer.priority_sum
    ):
        found.append(
            Difference(
                f"{where}: upper_bound", str(answer.upper_bound), f"at least {answer.priority_sum}"
            )
        )
    if problem.nodes is None:
        return found + _over(used, problem.capacity_cpu_percent or 0.0, f"{where}: capacity")
    placed = sorted(name for held in answer.placement.values() for name in held)
    if placed != sorted(answer.partitions):
        found.append(
            Difference(f"{where}: placement", f"{len(placed)} placed", "each partition once")
        )
    for node, held in answer.placement.items():
        cost = sum(problem.partitions[name].cpu_percent for name in held)
        found += _over(cost, problem.nodes.get(node, 0.0), f"{where}: placement.{node}")
    return found


def _over(used: float, capacity: float, where: str) -> list[Difference]:
    if used <= capacity + TOLERANCE_CPU_PERCENT:
        return []
    return [Difference(where, f"uses {used:.6g} %", f"free are {capacity:.6g} %")]


def _announced(
    events: Sequence[Event], number: int, answer: Answer, where: str
) -> list[Difference]:
    announced = [
        event for event in run_events.of_kind(events, "plan") if event.extra["n"] == number
    ]
    surplus = sorted(
        {query for event in announced for query in event.extra["queries"]} - set(answer.queries)
    )
    return [
        Difference(f"events.jsonl: plan {number}", f"brings back {query}", f"not in {where}")
        for query in surplus
    ]

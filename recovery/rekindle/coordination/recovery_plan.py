"""A recovery plan as a value: which query partitions to activate now, and each partition's node.

Made by `next_plan`, carried out by the driver, which checks it again just before.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rekindle.model import plan_problem as recovery_problem
from rekindle.model.plan_problem import Answer, Problem
from rekindle.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class Plan:
    """`query_partitions` are those that become active with it; `placement` (partition -> node)
    names only partitions that become active, never one that runs. `waiting` counts all query
    partitions that wait, though the problem may leave out some for which there is no room anyway.

    `at` is in seconds; `incident` is its number, None for the first plan of a fresh start;
    `rollback` tells survivors to go back to the restore point first (adaptive buffering only).
    """

    plan_epoch: int
    at: float
    incident: int | None
    strategy: str
    query_partitions: tuple[str, ...]
    placement: Mapping[str, str]
    waiting: int
    problem: Problem
    answer: Answer
    reason: Reason
    rollback: bool = False


def describe(plan: Plan) -> str:
    """The plan as one sentence."""
    name = f"Plan {plan.plan_epoch}"
    if plan.incident is not None:
        name += f" of incident {plan.incident}"
    rollback = " Survivors roll back first." if plan.rollback else ""
    what = recovery_problem.describe(
        plan.answer, one="query partition", several="query partitions", lost=plan.waiting
    )
    return f"{name} ({plan.reason}): {what}{rollback}"

"""Instructions from the coordinator to its shells, one value each, with its reason.

Only values; the shells carry them out in the order given.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rekindle.model import plan_problem as recovery_problem
from rekindle.model.plan_problem import Answer, Problem
from rekindle.model.reasons import Reason

# A recovery plan as a value: which query partitions to activate now, and each partition's node.
#
# Made by `next_plan`, carried out by the driver, which checks it again just before.


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
        plan.answer,
        # at a fresh start nothing was there before, and a driver that starts again has lost no node
        verb="Start" if plan.incident is None else "Bring back",
        one="waiting query partition",
        several="waiting query partitions",
        waiting=plan.waiting,
    )
    return f"{name} ({plan.reason}): {what}{rollback}"


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """Carry out a plan; it carries its own reason."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class MovePartitions:
    """Let partitions that run go on elsewhere (partition -> node), without an interruption."""

    placement: Mapping[str, str]
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True)
class SetBuffering:
    """Retain outputs since the last restore points from now on, or stop: `mode` "on" or "off"."""

    mode: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class SetOrdering:
    """Process inputs in one fixed order from now on, or as they arrive: "on" or "off"."""

    mode: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class SetLagGoals:
    """Count the time in which queries are further behind than these goals (query -> seconds)."""

    goals: Mapping[str, float]
    reason: Reason


@dataclass(frozen=True, slots=True)
class DropExecutors:
    """Take the executors of lost nodes out of the scheduler, at once."""

    nodes: tuple[str, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class RequestNodes:
    """Get `count` more nodes, outside of the impaired failure domains."""

    count: int
    outside_domains: tuple[str, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class RestartDriver:
    """Get the application a driver again."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Tell people: `kind` is a kebab-case word of its own, `text` a sentence, `details` JSON."""

    kind: str
    reason: Reason
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)


Instruction = (
    PublishPlan
    | MovePartitions
    | SetBuffering
    | SetOrdering
    | SetLagGoals
    | DropExecutors
    | RequestNodes
    | RestartDriver
    | RecordEvent
)

"""Instructions from the coordinator to its shells, one value each, with its reason.

Only values; the shells carry them out in the order given.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rekindle.coordination.recovery_plan import Plan
from rekindle.model.reasons import Reason


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
    | DropExecutors
    | RequestNodes
    | RestartDriver
    | RecordEvent
)

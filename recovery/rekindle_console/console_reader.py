"""The source of the console's data: a protocol, and the values that it returns.

A coordinator and an operator implement it, and whoever else has cases and reports. The console
calls it on a thread of its own, never on one that decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rekindle.coordination.incident_history import ProgressPoint
from rekindle.coordination.session import ApplicationReading, Case
from rekindle.protocol import Acknowledgement, Directive


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """Who serves the console: `kind` is "coordinator" or "operator"; `leads` says that it decides,
    and not another one."""

    kind: str
    identity: str
    leads: bool
    store_reachable: bool


@dataclass(frozen=True, slots=True)
class ApplicationRecord:
    """What is known of an application. `reading` is None before its driver has reported; `trouble`
    says why nothing can be decided about it, "" while all is well. Values: nobody changes them."""

    name: str
    case: Case
    reading: ApplicationReading | None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan's directive, and the driver's answer to it."""

    directive: Directive
    answer: Acknowledgement | None = None


@dataclass(frozen=True, slots=True)
class PastPlan:
    """A plan of an incident; `at` is None where nobody has noted when it was made."""

    number: int
    reason: str
    text: str
    at: float | None = None
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class PastQuery:
    """What became of a query in an incident, where that is recorded; moments in seconds since
    1970."""

    name: str
    priority: float
    lost_at: float | None = None
    planned_at: float | None = None
    back_at: float | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class PastIncident:
    """An incident, open or over, as far as it is recorded; `source` says where.

    `outcome` is a word for how it stands or ended. What nobody has recorded is None or empty.
    """

    number: int
    outcome: str
    source: str
    kind: str = ""
    began_at: float | None = None
    ended_at: float | None = None
    lost: tuple[str, ...] = ()
    domains: str = ""
    plans: tuple[PastPlan, ...] = ()
    queries: tuple[PastQuery, ...] = ()
    points: tuple[ProgressPoint, ...] = ()


class Reader(Protocol):
    """Each may take a while, and may raise RekindleError, which the console shows."""

    def process(self) -> ProcessRecord:
        """Who answers, and how it is."""

    def applications(self) -> Sequence[ApplicationRecord]:
        """All that are known, by name. Asks nobody: it gives what the process has."""

    def plans(self, application: str) -> Sequence[PlanRecord]:
        """The newest plans of an application, the newest first, a limited number of them."""

    def incidents(self, application: str) -> Sequence[PastIncident]:
        """Its incidents, the newest first, also the open one."""

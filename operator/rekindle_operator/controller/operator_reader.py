"""Data of the operator's console: Recovery objects beside the coordinator's state.

A Recovery has more of an incident than the process has seen, and outlives it. `wiring` makes this
reader; the console calls it on a thread of its own, which takes each value whole.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rekindle.coordination.incident_history import ProgressPoint
from rekindle.protocol import store_paths
from rekindle_console import console_reader
from rekindle_console.coordinator_reader import CoordinatorReader
from rekindle_operator.api.recovery_resource import PlanMade, Recovery
from rekindle_operator.cluster.cluster_view import ClusterView


@dataclass(slots=True)
class OperatorReader:
    """`inner` reads what the coordinator's loop knows, `known` has the Recovery objects."""

    inner: CoordinatorReader
    known: ClusterView

    def process(self) -> console_reader.ProcessRecord:
        """Who answers, and how it is."""
        return self.inner.process()

    def applications(self) -> Sequence[console_reader.ApplicationRecord]:
        """All that are in the store, by name."""
        return self.inner.applications()

    def plans(self, application: str) -> Sequence[console_reader.PlanRecord]:
        """The newest plans in the store, the newest first."""
        return self.inner.plans(application)

    def incidents(self, application: str) -> Sequence[console_reader.PastIncident]:
        """As the Recoveries tell them, with their course where this process has seen it; others as
        the store and this process know them."""
        seen = {item.number: item for item in self.inner.incidents(application)}
        told = self.known.recoveries.get(store_paths.place(application), {})
        for recovery in tuple(told.values()):
            before = seen.get(recovery.spec.incident)
            seen[recovery.spec.incident] = _told(recovery, () if before is None else before.points)
        return [seen[number] for number in sorted(seen, reverse=True)]


def _told(recovery: Recovery, points: Iterable[ProgressPoint]) -> console_reader.PastIncident:
    status = recovery.status
    return console_reader.PastIncident(
        number=recovery.spec.incident,
        outcome=(status.phase or "ended") if status.has_ended else "open",
        source=f"Recovery {recovery.metadata.namespace}/{recovery.metadata.name}",
        kind=status.kind or "",
        began_at=_seconds(status.started_at),
        ended_at=_seconds(status.ended_at),
        lost=tuple(node.name for node in status.lost_nodes),
        domains=status.domains_impaired,
        plans=tuple(map(_plan, status.plans)),
        queries=tuple(
            console_reader.PastQuery(
                name=query.name,
                priority=query.priority,
                lost_at=_seconds(query.lost_at),
                planned_at=_seconds(query.planned_at),
                back_at=_seconds(query.back_at),
                text=query.message or "",
            )
            for query in status.queries
        ),
        points=tuple(points),
    )


def _plan(plan: PlanMade) -> console_reader.PastPlan:
    taken = "done" if plan.acknowledged_at is not None else "awaited"
    outcome = taken if plan.refused is None else f"refused: {plan.refused}"
    return console_reader.PastPlan(plan.number, plan.reason, plan.text, _seconds(plan.at), outcome)


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()

"""The queries of a recovery that wait, and the causes, from the API's objects.

What the next plan will be is decided with what each partition costs, as measured, and with the free
CPU of nodes. Both are in the coordination store and not in the API, so nothing here guesses: it
says what the operator has said last, and in which order the planner looks at what waits. Pure; the
command `plan` shows it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rekindle_operator.api.recovery_resource import Recovery
from rekindle_operator.api.recovery_status import ENDED, NodeRequest, PlanMade, QueryRecovery

UNKNOWN = (
    "Which of them fit is decided with measured CPU of partitions and nodes, which the API does "
    "not have; `rekindle explain NAMESPACE/APPLICATION QUERY --zookeeper HOST:PORT` computes it."
)


@dataclass(frozen=True, slots=True)
class WaitOutlook:
    """`waiting` are queries that no plan has, the most important first; `catching_up` those that
    one has and that are behind. `hindrance` is what keeps any plan from being made, a reason and a
    sentence, None where nothing does. `unanswered` is a plan that the driver has not acknowledged,
    `last` the newest one. `coming` are requests for nodes that are on their way."""

    over: bool
    waiting: tuple[QueryRecovery, ...] = ()
    catching_up: tuple[QueryRecovery, ...] = ()
    hindrance: tuple[str, str] | None = None
    last: PlanMade | None = None
    unanswered: PlanMade | None = None
    coming: tuple[NodeRequest, ...] = ()

    @property
    def reasons(self) -> dict[str, str]:
        """Why queries wait: reason -> sentence, of the most important query that says so."""
        found: dict[str, str] = {}
        for query in self.waiting:
            if query.reason:
                found.setdefault(query.reason, query.message or "")
        return found


HINDERED = ("Suspected", "Held", "AwaitingApproval", "AwaitingDriver")


def outlook(recovery: Recovery) -> WaitOutlook:
    """What is known of the next plan of a recovery."""
    status = recovery.status
    if status.phase in ENDED:
        return WaitOutlook(over=True)
    hindrance = None
    if status.phase in HINDERED:
        hindrance = (status.reason or str(status.phase), status.message or "")
    last = status.plans[-1] if status.plans else None
    unanswered = last is not None and last.acknowledged_at is None and not last.refused
    return WaitOutlook(
        over=False,
        waiting=tuple(_lost(recovery, planned=False)),
        catching_up=tuple(_lost(recovery, planned=True)),
        hindrance=hindrance,
        last=last,
        unanswered=last if unanswered else None,
        coming=tuple(item for item in status.requests if item.outcome == "Pending"),
    )


def _lost(recovery: Recovery, *, planned: bool) -> Iterator[QueryRecovery]:
    """Queries that are not back, by whether a plan has them, the most important first."""
    ordered = sorted(recovery.status.queries, key=lambda query: (-query.priority, query.name))
    for query in ordered:
        lost = query.lost_at is not None and query.back_at is None
        if lost and (query.planned_at is not None) is planned:
            yield query

"""How each application stands, worked out again only when its records have changed.

    record ──► `rekindle.coordination.application_status` ──► summary, kept until case or reading
    are others

One thread uses it. What time alone changes, such as a priority that ends, is seen a minute later.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from rekindle.coordination import application_status
from rekindle.coordination.application_status import (
    ApplicationStatus,
    ApplicationView,
    Notice,
    Phase,
    QueryProgress,
)
from rekindle.coordination.coordination_state import CoordinationState, NodeStatus
from rekindle.model.errors import RekindleError
from rekindle.model.reasons import Reason
from rekindle_console.console_reader import ApplicationRecord, PlanRecord

KEPT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Summary:
    """How an application stands; `counts` are its queries by state, `worst` the query that is
    furthest behind with its lag in seconds."""

    record: ApplicationRecord
    standing: ApplicationStatus
    made_at: float
    counts: Mapping[Phase, int]
    worst: tuple[str, float] | None
    nodes: Mapping[NodeStatus, int]

    @property
    def name(self) -> str:
        """NAMESPACE/APPLICATION."""
        return self.record.name

    @property
    def urgency(self) -> tuple[bool, bool, bool, bool]:
        """Ascending: what has to be looked at first comes first."""
        short = self.counts.get(Phase.WAITING, 0) + self.counts.get(Phase.STOPPED, 0)
        found = self.standing
        return (
            not self.record.trouble,
            found.incident is None,
            not short,
            not found.notices,
        )


@dataclass(slots=True)
class Summaries:
    """`monotonic` gives seconds for the deadlines of what is worked out on the way."""

    monotonic: Callable[[], float]
    _kept: dict[str, Summary] = field(default_factory=dict)

    def of(self, record: ApplicationRecord, now: float) -> Summary:
        """The summary of an application."""
        known = self._kept.get(record.name)
        if known is not None and _is_fresh(known, record, now):
            return known
        made = self._made(record, now)
        self._kept[record.name] = made
        return made

    def all(
        self, records: Iterable[ApplicationRecord], now: float, rest: Callable[[], None]
    ) -> list[Summary]:
        """Those of all applications, the most urgent first; `rest` is called between two, so that
        a thousand of them leave time for others."""
        found = []
        for record in records:
            found.append(self.of(record, now))
            rest()
        names = {summary.name for summary in found}
        for name in self._kept.keys() - names:
            del self._kept[name]
        return sorted(found, key=lambda summary: (*summary.urgency, summary.name))

    def _made(self, record: ApplicationRecord, now: float) -> Summary:
        found = _standing(record, now, self.monotonic)
        lags = [
            (query.lag_seconds, query.name)
            for query in found.queries
            if query.lag_seconds is not None and query.phase is not Phase.FINISHED
        ]
        lag, name = max(lags, default=(0.0, ""))
        return Summary(
            record=record,
            standing=found,
            made_at=now,
            counts=Counter(query.phase for query in found.queries),
            worst=(name, lag) if name else None,
            nodes=Counter(found.nodes.values()),
        )


def view_of(record: ApplicationRecord, plans: Iterable[PlanRecord] = ()) -> ApplicationView | None:
    """What `standing` and `explanation` look at; None before the driver has reported."""
    if record.reading is None:
        return None
    newest = next(iter(plans), None)
    return ApplicationView(
        application=record.name,
        case=record.case,
        reading=record.reading,
        plan=None if newest is None else newest.directive,
        answer=None if newest is None else newest.answer,
    )


def by_importance(queries: Iterable[QueryProgress]) -> list[QueryProgress]:
    """The most important first, those of equal priority by name."""
    return sorted(queries, key=lambda query: (-query.priority, query.name))


def state_of(
    record: ApplicationRecord, now: float, clock: Callable[[], float]
) -> CoordinationState | None:
    """The core's state of an application; None before its driver has reported."""
    view = view_of(record)
    return None if view is None else application_status.case_of(view, now, clock=clock).state


def _is_fresh(known: Summary, record: ApplicationRecord, now: float) -> bool:
    before = known.record
    same = before.case is record.case and before.reading is record.reading
    return same and before.trouble == record.trouble and 0 <= now - known.made_at < KEPT_SECONDS


def _standing(
    record: ApplicationRecord, now: float, clock: Callable[[], float]
) -> ApplicationStatus:
    """How it stands by its last sound records, with the trouble first where there is any."""
    view = view_of(record)
    try:
        found = (
            ApplicationStatus(application=record.name)
            if view is None
            else application_status.of(view, now, clock=clock)
        )
    except RekindleError as error:
        return application_status.broken(
            record.name, record.trouble or str(error), coordinator=True
        )
    if not record.trouble:
        return found
    trouble = Notice(Reason.BAD_RECORD, record.trouble)
    return replace(found, notices=(trouble, *found.notices))

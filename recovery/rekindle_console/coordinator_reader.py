"""A coordinator's data for its console: cases and reports in memory, plans in the store.

The loop of `rekindle_coordinator.coordinator_loop` goes on while this reads: each value is taken
whole, and nothing is locked. The store is asked for directives alone, which never change, and once
for each.
"""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter

from rekindle.coordination.incident_history import SeenIncident
from rekindle.coordination.session import Case
from rekindle.model.errors import RekindleError
from rekindle.protocol import Acknowledgement, Directive, PlanOrder, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_console.console_reader import (
    ApplicationRecord,
    PastIncident,
    PastPlan,
    PlanRecord,
    ProcessRecord,
)
from rekindle_coordinator.coordinator_loop import CoordinatorLoop
from rekindle_coordinator.status_reader import numbered

DIRECTIVES_MAX = 60
APPLICATIONS_MAX = 64
# an answer that is not there yet may still come to the newest ones
ANSWERS_AWAITED_MAX = 5
SOURCE = "seen by this process"
UNSEEN = "from plans in the store; nobody who saw the incident runs any more"


@dataclass(slots=True)
class CoordinatorReader:
    """Over the loop of a coordinator, or of an operator (`kind`). Used by one thread."""

    shell: CoordinatorLoop
    kind: str = "coordinator"
    _plans: "OrderedDict[Place, dict[int, PlanRecord | None]]" = field(default_factory=OrderedDict)

    def process(self) -> ProcessRecord:
        """Who answers, and how it is."""
        shell = self.shell
        return ProcessRecord(self.kind, shell.identity, shell.leading, shell.connection.reachable)

    def applications(self) -> Sequence[ApplicationRecord]:
        """All that are in the store, by name."""
        found = []
        for place, desk in sorted(self.shell.desks.items(), key=itemgetter(0)):
            known, trouble = desk.known, self.shell.stopped.get(place, "")
            case, reading = (Case(), None) if known is None else (known.case, known.reading)
            found.append(ApplicationRecord(str(place), case, reading, trouble))
        return found

    def plans(self, application: str) -> Sequence[PlanRecord]:
        """The newest plans in the store, the newest first; those known while it is away."""
        place = store_paths.place(application)
        known = self._plans.setdefault(place, {})
        self._plans.move_to_end(place)
        while len(self._plans) > APPLICATIONS_MAX:
            self._plans.popitem(last=False)
        if self.shell.connection.reachable:
            with suppress(RekindleError):  # what was read before is shown
                self._read(place, known)
        return [record for _, record in sorted(known.items(), reverse=True) if record is not None]

    def incidents(self, application: str) -> Sequence[PastIncident]:
        """What this process has seen, and, of earlier incidents, what their plans in the store
        say."""
        place, plans = store_paths.place(application), self.plans(application)
        of_incident: dict[int, list[PastPlan]] = {}
        for record in plans:
            number = getattr(record.directive.order, "incident", None)
            if number:
                of_incident.setdefault(number, []).insert(0, _past_plan(record))
        seen = {item.incident.number: item for item in self.shell.history.of(place)}
        return [
            _past(number, seen.get(number), tuple(of_incident.get(number, ())))
            for number in sorted({*seen, *of_incident}, reverse=True)
        ]

    def _read(self, place: Place, known: dict[int, PlanRecord | None]) -> None:
        connection = self.shell.connection
        names = connection.children(place.path(store_paths.DIRECTIVES))
        numbers = sorted(store_paths.numbers(names))[-DIRECTIVES_MAX:]
        for gone in known.keys() - set(numbers):
            del known[gone]
        for number in numbers:
            record = known.get(number)
            if number not in known:
                directive = numbered(connection, place, store_paths.DIRECTIVES, number, Directive)
                is_plan = directive is not None and isinstance(directive.order, PlanOrder)
                record = PlanRecord(directive) if is_plan and directive is not None else None
                known[number] = record
                asked = True
            else:
                asked = number in numbers[-ANSWERS_AWAITED_MAX:]
            if asked and record is not None and record.answer is None:
                answer = numbered(connection, place, store_paths.ACKS, number, Acknowledgement)
                known[number] = PlanRecord(record.directive, answer)


def _past_plan(record: PlanRecord) -> PastPlan:
    directive = record.directive
    outcome = "awaited" if record.answer is None else record.answer.outcome
    return PastPlan(directive.plan_epoch, directive.reason, directive.text, None, outcome)


def _past(number: int, seen: SeenIncident | None, plans: tuple[PastPlan, ...]) -> PastIncident:
    if seen is None:
        return PastIncident(number, "over", UNSEEN, plans=plans)
    incident = seen.incident
    moments = {point.plan_epoch: point.at for point in reversed(seen.points)}
    return PastIncident(
        number=number,
        outcome="open" if seen.ended_at is None else "over",
        source=SOURCE,
        kind=str(incident.kind),
        began_at=incident.began_at,
        ended_at=seen.ended_at,
        lost=incident.lost,
        domains=", ".join(incident.domains),
        plans=tuple(
            PastPlan(plan.number, plan.reason, plan.text, moments.get(plan.number), plan.outcome)
            for plan in plans
        ),
        points=seen.points,
    )

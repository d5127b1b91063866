"""The contact of each driver with its coordinator, and the risks that follow from it.

Kept from decisions; `coordination_risks` has the words. Used by the deciding thread alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rekindle.coordination.session import Driver
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_ports import Look
from rekindle_operator.controller import coordination_risks
from rekindle_operator.controller.coordination_risks import Coordination, DriverContact
from rekindle_operator.recovery.recovery_inputs import Danger


@dataclass(slots=True)
class DriverContacts:
    """`coordination` says how store and operators are; `stopped` (application -> why) are those
    about which nothing can be decided."""

    coordination: Callable[[], Coordination]
    stopped: Mapping[Place, str]
    _contacts: dict[Place, DriverContact] = field(default_factory=dict)
    _unanswered: dict[Place, float] = field(default_factory=dict)

    def decided(self, place: Place, look: Look) -> None:
        """What a decision says of an application's driver."""
        case, progress = look.decision.case, look.reading.progress
        alone = progress is not None and progress.alone
        self._contacts[place] = DriverContact(place.application, case.driver, alone=alone)
        there = case.driver is Driver.THERE and case.state is not None
        if there and case.state is not None and case.state.unacknowledged:
            self._unanswered.setdefault(place, look.at)
        else:
            self._unanswered.pop(place, None)

    def answered(self, place: Place) -> None:
        """Nobody waits for an answer of it any more."""
        self._unanswered.pop(place, None)

    def forget_answers(self) -> None:
        """Another one acts: what is awaited is that one's to say."""
        self._unanswered.clear()

    @property
    def state(self) -> tuple[object, ...]:
        """Another one whenever dangers may be others than before, but for what drivers say."""
        return self.coordination(), tuple(self.stopped.items())

    @property
    def unanswered_since(self) -> float | None:
        """Since when (seconds since 1970) the oldest plan has no answer; None without one."""
        return min(self._unanswered.values(), default=None)

    def dangers(self, places: Iterable[Place]) -> tuple[Danger, ...]:
        """What may make coordination fail for these applications."""
        return coordination_risks.dangers(self.coordination(), self._of(places))

    def _of(self, places: Iterable[Place]) -> Iterator[DriverContact]:
        for place in places:
            contact, trouble = self._contacts.get(place), self.stopped.get(place, "")
            if trouble:
                yield DriverContact(place.application, Driver.THERE, trouble=trouble)
            elif contact is not None:
                yield contact

"""How drivers are in touch, and what may make coordination fail for them.

Kept from decisions; `dangers` has the words. Used by the deciding thread alone.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rekindle.coordination.application import Driver
from rekindle.protocol.tree import Place
from rekindle_coordinator.providers import Look
from rekindle_operator import dangers
from rekindle_operator.dangers import Contact, Coordination
from rekindle_operator.story.scene import Danger

__all__ = ["Contacts"]


@dataclass(slots=True)
class Contacts:
    """`coordination` says how the store is."""

    coordination: Callable[[], Coordination]
    _contacts: dict[Place, Contact] = field(default_factory=dict)
    _unanswered: dict[Place, float] = field(default_factory=dict)

    def decided(self, place: Place, look: Look) -> None:
        """What a decision says of an application's driver."""
        case, progress = look.decision.case, look.reading.progress
        alone = progress is not None and progress.alone
        self._contacts[place] = Contact(place.application, case.driver, alone=alone)
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
    def unanswered_since(self) -> float | None:
        """Since when (seconds since 1970) the oldest plan has no answer; None without one."""
        return min(self._unanswered.values(), default=None)

    def dangers(self, places: Iterable[Place]) -> tuple[Danger, ...]:
        """What may make coordination fail for these applications."""
        contacts = (self._contacts[place] for place in places if place in self._contacts)
        return dangers.dangers(self.coordination(), contacts)

"""What an application's records say to a person: read here, judged by `rekindle.coordination`.

Reads the same records as a coordinator does, and writes none. `rekindle status` and `rekindle
explain` call it, the operator for plans alone.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from rekindle import protocol
from rekindle.coordination import standing
from rekindle.coordination.application import Driver
from rekindle.coordination.standing import Standing, View
from rekindle.errors import RekindleError
from rekindle.protocol import Acknowledgement, Directive, tree
from rekindle.protocol.tree import Place
from rekindle_coordinator.gathering import NAMES, Records
from rekindle_zookeeper import Connection, StoreUnreachable

__all__ = ["Viewer", "numbered"]

Kind = TypeVar("Kind")


@dataclass(slots=True)
class Viewer:
    """Over one connection; what it has read before is not decoded again."""

    connection: Connection
    _records: dict[Place, Records] = field(default_factory=dict)

    def coordinators(self) -> int:
        """How many coordinators take part in the election."""
        return len(self.connection.children(tree.ELECTION))

    def view(self, place: Place) -> View | None:
        """All records of an application now; None when no driver has told its topology yet.

        Raises StoreUnreachable, and the trouble with a record.
        """
        records = self._records.setdefault(place, Records(self.connection, place))
        records.mark(NAMES)
        records.refresh()
        reading = records.reading(frozenset(), False)
        if reading is None:
            return None
        case, _ = records.take_case()
        gone = case.driver is Driver.GONE and case.generation == reading.topology.generation
        if gone:
            reading = records.reading(frozenset(), True) or reading
        return View(
            application=str(place),
            case=case,
            reading=reading,
            plan=numbered(self.connection, place, tree.DIRECTIVES, case.plan_sequence, Directive),
            answer=numbered(self.connection, place, tree.ACKS, case.plan_sequence, Acknowledgement),
            coordinator=self.coordinators() > 0,
        )

    def standing(self, place: Place, now: float) -> Standing:
        """How an application stands; where a record cannot be read, that.

        Raises StoreUnreachable.
        """
        try:
            view = self.view(place)
            if view is not None:
                return standing.of(view, now, clock=time.monotonic)
        except StoreUnreachable:
            raise
        except RekindleError as trouble:
            return standing.broken(str(place), str(trouble), coordinator=self.coordinators() > 0)
        return Standing(application=str(place), coordinator=self.coordinators() > 0)

    def standings(self, places: list[Place], now: float) -> Iterator[Standing]:
        """How several stand."""
        for place in places:
            yield self.standing(place, now)


def numbered(
    connection: Connection, place: Place, folder: str, sequence: int, kind: type[Kind]
) -> Kind | None:
    """A directive, or the answer to it; None for the number 0, and where there is none."""
    path = place.path(folder, tree.numbered(sequence))
    found = connection.get(path) if sequence else None
    return None if found is None else protocol.decode(found[0], kind, path)

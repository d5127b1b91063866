"""Reads an application's records for people; `rekindle.coordination` judges them.

Reads the same records as a coordinator does, and writes none. `rekindle status` and `rekindle
explain` call it, the operator for plans alone.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from rekindle import protocol
from rekindle.coordination import application_status
from rekindle.coordination.application_status import ApplicationStatus, ApplicationView
from rekindle.coordination.session import Driver
from rekindle.model.errors import RekindleError
from rekindle.protocol import Acknowledgement, Directive, store_paths
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.record_cache import NAMES, RecordCache
from rekindle_zookeeper import Connection, StoreUnreachable

Kind = TypeVar("Kind")


@dataclass(slots=True)
class StatusReader:
    """Over one connection; what it has read before is not decoded again."""

    connection: Connection
    _records: dict[Place, RecordCache] = field(default_factory=dict)

    def coordinators(self) -> int:
        """How many coordinators take part in the election."""
        return len(self.connection.children(store_paths.ELECTION))

    def view(self, place: Place) -> ApplicationView | None:
        """All records of an application now; None when no driver has told its topology yet.

        Raises StoreUnreachable, and the trouble with a record.
        """
        records = self._records.setdefault(place, RecordCache(self.connection, place))
        records.mark(NAMES)
        records.refresh()
        reading = records.reading(frozenset(), False)
        if reading is None:
            return None
        case, _ = records.take_case()
        gone = case.driver is Driver.GONE and case.generation == reading.topology.generation
        if gone:
            reading = records.reading(frozenset(), True) or reading
        return ApplicationView(
            application=str(place),
            case=case,
            reading=reading,
            plan=numbered(
                self.connection, place, store_paths.DIRECTIVES, case.plan_sequence, Directive
            ),
            answer=numbered(
                self.connection, place, store_paths.ACKS, case.plan_sequence, Acknowledgement
            ),
            coordinator=self.coordinators() > 0,
        )

    def standing(self, place: Place, now: float) -> ApplicationStatus:
        """How an application stands; where a record cannot be read, that.

        Raises StoreUnreachable.
        """
        try:
            view = self.view(place)
            if view is not None:
                return application_status.of(view, now, clock=time.monotonic)
        except StoreUnreachable:
            raise
        except RekindleError as trouble:
            return application_status.broken(
                str(place), str(trouble), coordinator=self.coordinators() > 0
            )
        return ApplicationStatus(application=str(place), coordinator=self.coordinators() > 0)

    def standings(self, places: list[Place], now: float) -> Iterator[ApplicationStatus]:
        """How several stand."""
        for place in places:
            yield self.standing(place, now)


def numbered(
    connection: Connection, place: Place, folder: str, sequence: int, kind: type[Kind]
) -> Kind | None:
    """A directive, or the answer to it; None for the number 0, and where there is none."""
    path = place.path(folder, store_paths.numbered(sequence))
    found = connection.get(path) if sequence else None
    return None if found is None else protocol.decode(found[0], kind, path)

"""Reports and acknowledgements into the store, each only when it is newer than what stands there.

Everything here asks the store and waits for it, so `store_sync` calls it on a thread.
"""

from rekindle.protocol import store_paths
from rekindle_sidecar import record_precedence
from rekindle_sidecar.held_reports import HeldReport
from rekindle_sidecar.record_precedence import Precedence, Stamp
from rekindle_zookeeper import Conflict, Connection

__all__ = ["ReportDelivery"]


class ReportDelivery:
    """What it has read and written it remembers until `forget`; the store checks each time that it
    is still so."""

    def __init__(self, connection: Connection, place: store_paths.Place) -> None:
        self._connection = connection
        self._place = place
        self._known: dict[str, tuple[int | None, Stamp | None]] = {}

    def forget(self) -> None:
        """Read everything again: the store was away, or others have written."""
        self._known = {}

    def topology(self) -> Stamp | None:
        """The stamp of the topology in the store."""
        return self._standing(store_paths.TOPOLOGY)[1]

    def write(self, report: HeldReport) -> tuple[Precedence, Stamp | None]:
        """Write a report if it is newer; what was decided, and the stamp that stands now. Raises
        Conflict when somebody else has written it, or the topology, meanwhile."""
        path = self._place.path(report.name)
        version, standing = self._standing(report.name)
        decided = record_precedence.compare(standing, report.stamp)
        if decided in (Precedence.FENCED, Precedence.FOREIGN):
            self.forget()  # no driver ends for what has been removed since it was read
            version, standing = self._standing(report.name)
            decided = record_precedence.compare(standing, report.stamp)
        if decided is not Precedence.WRITE:
            return decided, standing
        topology = self._place.path(store_paths.TOPOLOGY)
        expected = {topology: self._standing(store_paths.TOPOLOGY)[0], path: version}
        try:
            versions = self._connection.transact(expected, {path: report.data})
        except Conflict:
            self.forget()
            raise
        self._known[report.name] = (versions[path], report.stamp)
        return decided, report.stamp

    def acknowledge(self, sequence: int, data: bytes) -> None:
        """Write an acknowledgement, unless there is one."""
        path = self._place.path(store_paths.ACKS, store_paths.numbered(sequence))
        try:
            self._connection.transact({path: None}, {path: data})
        except Conflict:
            return

    def _standing(self, name: str) -> tuple[int | None, Stamp | None]:
        """Version and stamp of a record, as they were when it was last looked at."""
        known = self._known.get(name)
        if known is None:
            found = self._connection.get(self._place.path(name))
            stamp = None if found is None else record_precedence.stamp_of(found[0])
            known = (None if found is None else found[1], stamp)
            self._known[name] = known
        return known

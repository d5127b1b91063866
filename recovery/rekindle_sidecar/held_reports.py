"""Reports and acknowledgements that the store has not taken yet.

Of each kind only the newest report is held, for it says all that the earlier ones said; of each
directive the first acknowledgement, for a repeated directive is refused. So an outage of any length
takes no more room, and what is written after it is how things are then. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rekindle.protocol import (
    CheckpointReport,
    ProgressReport,
    StatisticsReport,
    TopologyReport,
    store_paths,
)
from rekindle_sidecar.record_precedence import Stamp

ACKS_MAX = 1_000
# In the order in which they are written: no coordinator meets a report without its topology.
KINDS = {
    TopologyReport: store_paths.TOPOLOGY,
    StatisticsReport: store_paths.STATISTICS,
    ProgressReport: store_paths.PROGRESS,
    CheckpointReport: store_paths.CHECKPOINT,
}


@dataclass(frozen=True, slots=True)
class HeldReport:
    """A report for the record `name`, as it will stand there."""

    name: str
    stamp: Stamp
    data: bytes


class HeldReports:
    """What one driver has said."""

    def __init__(self) -> None:
        self._reports: dict[str, HeldReport] = {}
        self._newest: dict[str, Stamp] = {}
        self._acks: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._reports) + len(self._acks)

    @property
    def acks(self) -> Mapping[int, bytes]:
        """Acknowledgements by the number of their directive."""
        return self._acks

    def begin_again(self) -> None:
        """The driver is about to say everything again: what the store has is compared there."""
        self._newest = {name: report.stamp for name, report in self._reports.items()}

    def take(self, report: HeldReport) -> bool:
        """Hold a report; whether it is newer than all of its kind before."""
        newest = self._newest.get(report.name)
        if newest is not None and report.stamp <= newest:
            return False
        self._newest[report.name] = report.stamp
        self._reports[report.name] = report
        return True

    def acknowledge(self, sequence: int, data: bytes) -> bool:
        """Hold an acknowledgement; whether it is the first of its directive."""
        if sequence in self._acks:
            return False
        self._acks[sequence] = data
        if len(self._acks) > ACKS_MAX:
            del self._acks[min(self._acks)]
        return True

    def holds(self, name: str) -> bool:
        """Whether a report for the record `name` is held."""
        return name in self._reports

    def next(self, topology: Stamp | None) -> HeldReport | None:
        """The report to write now, the store's topology being `topology`: any other than a topology
        waits until that of its generation is there."""
        for name in KINDS.values():
            report = self._reports.get(name)
            if report is None:
                continue
            readable = topology is not None and topology.generation == report.stamp.generation
            if name == store_paths.TOPOLOGY or readable:
                return report
        return None

    def settled(self, report: HeldReport) -> None:
        """The store has it, or a newer one; one that has come since stays held."""
        if self._reports.get(report.name) == report:
            del self._reports[report.name]

    def acknowledged(self, sequence: int) -> None:
        """The store has the acknowledgement."""
        self._acks.pop(sequence, None)

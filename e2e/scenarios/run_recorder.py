"""What driver, operator and scenario say, as one record of a run, by wall clock.

The driver's event file lies on the shared claim; operators write theirs to standard output.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rekindle_cli.jsonl_tail import EventFile
from scenarios import helm_chart
from scenarios.pod_logs import PodLogs

Record = dict[str, Any]


@dataclass(slots=True)
class RunRecorder:
    """`records` grows with each `look`. `namespace` is the application's."""

    logs: PodLogs
    events: Path
    namespace: str
    records: list[Record] = field(default_factory=list)
    _files: dict[Path, EventFile] = field(default_factory=dict)
    _heard: set[str] = field(default_factory=set)

    def look(self) -> None:
        """Take in what has been said since the last look."""
        self.logs.look(helm_chart.NAMESPACE, self.namespace)
        operators = self.logs.folder.glob(
            f"{helm_chart.NAMESPACE}_{helm_chart.RELEASE}-operator-*.log"
        )
        for path in (self.events, *operators):
            file = self._files.setdefault(path, EventFile(path))
            self.records += self._news(file.fresh())

    def note(self, kind: str, at: float | None = None, **fields: Any) -> None:
        """Something that the scenario itself has done or seen."""
        self.records.append({"version": 1, "at": at or time.time(), "kind": kind, **fields})

    def of_kind(self, kind: str, since: float = 0.0) -> list[Record]:
        """Records of a kind from a moment on."""
        return [one for one in self.records if one["kind"] == kind and one["at"] >= since]

    def _news(self, records: list[Record]) -> Iterator[Record]:
        """Records that were not heard before: a log that broke off is in two files."""
        for record in records:
            text = json.dumps(record, sort_keys=True)
            if "kind" in record and text not in self._heard:
                self._heard.add(text)
                yield record

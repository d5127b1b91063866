"""What a run has committed: its checkpoints, and from when on the output of each was public.

The enumerators of the sources tell of a checkpoint once the JobManager has completed it; soon after
that the sinks give the files that it closed their names. So the output of a query is public at
completion, or when its last file of that checkpoint got its name. Reads a store, also while the job
runs; writes nothing. Called by `flink_driver`.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rekindle_cli.jsonl_tail import EventFile

# For so long after a checkpoint files are looked for that it makes public. A node with half a core
# needs some tenths of a second; those of the next checkpoint come after that one's completion.
PUBLIC_SECONDS_MAX = 1.0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """It reflects the first `rows` rows of the run, and with `last` all of them.

    It began `at`; `public_at` is when the output of each query counted, in seconds since 1970.
    """

    number: int
    rows: int
    last: bool
    at: float
    complete_at: float
    public_at: dict[str, float]


@dataclass(slots=True)
class FollowedStore:
    """A store whose checkpoints are read as they come. `sources` are those that the job has."""

    store: Path
    queries: Sequence[str]
    sources: Sequence[str]
    _files: dict[str, EventFile] = field(default_factory=dict)
    _told: dict[int, dict[str, dict[str, Any]]] = field(default_factory=dict)
    _named: dict[str, dict[str, float]] = field(default_factory=dict)

    def fresh(self, now: float) -> Iterator[Checkpoint]:
        """Those that have been completed by all sources, and whose output is public by now."""
        for source in self.sources:
            path = self.store / "told" / f"{source}.jsonl"
            file = self._files.setdefault(source, EventFile(path))
            for record in file.fresh():
                self._told.setdefault(record["checkpoint"], {})[source] = record
        complete = [number for number in sorted(self._told) if self._is_complete(number)]
        if not complete:
            return
        self._look_at_outputs()
        for number, following in zip(complete, [*complete[1:], None], strict=True):
            until = now
            if following is not None:
                until = self._complete_at(following)
            elif now < self._complete_at(number) + PUBLIC_SECONDS_MAX:
                return
            for earlier in [one for one in self._told if one < number]:
                del self._told[earlier]  # it failed, or one of the sources had ended
            yield self._checkpoint(number, until)
            del self._told[number]

    def _is_complete(self, number: int) -> bool:
        return len(self._told[number]) == len(self.sources)

    def _complete_at(self, number: int) -> float:
        return max(float(record["complete_at"]) for record in self._told[number].values())

    def _checkpoint(self, number: int, until: float) -> Checkpoint:
        records = self._told[number].values()
        complete_at = self._complete_at(number)
        public_at = {}
        for query in self.queries:
            named = self._named.get(query, {})
            times = [at for at in named.values() if complete_at <= at < until]
            public_at[query] = max(times, default=complete_at)
        return Checkpoint(
            number=number,
            rows=min(record["rows"] for record in records),
            last=all(record["last"] for record in records),
            at=min(record["at"] for record in records),
            complete_at=complete_at,
            public_at=public_at,
        )

    def _look_at_outputs(self) -> None:
        """Note when files got their names. Renaming touches st_ctime alone."""
        for query in self.queries:
            seen = self._named.setdefault(query, {})
            folder = self.store / "outputs" / query
            if not folder.exists():
                continue
            for name in os.listdir(folder):
                if not name.startswith(".") and name not in seen:
                    seen[name] = (folder / name).stat().st_ctime

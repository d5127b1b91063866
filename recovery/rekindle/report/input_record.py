"""The record `input.json` as values: the files that were read, how far, and their queries.

Reads no file itself. `report_figures` uses the topology, `verification` all of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from rekindle.model.errors import InputError

VERSION = 1


@dataclass(frozen=True, slots=True)
class InputFile:
    """A Parquet file that was replayed as the source `name`.

    `path` is relative to the report's directory. Row i of the stream is row i % rows of the
    file, its `event_time` column later by (i // rows) * repeat_every_seconds (None: the file
    is read once).
    """

    name: str
    path: str
    sha256: str
    rows: int
    repeat_every_seconds: float | None
    event_time: str | None


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that went into a run.

    `offsets` gives the rows read per source, `keys` the key columns of each query (none:
    whole rows are compared), `closures` the partitions of each query partition with
    everything upstream, `priorities` the priority of each query, `lag_goals` the goals in seconds
    of queries that have one.
    """

    files: tuple[InputFile, ...]
    offsets: Mapping[str, int]
    rows_per_second: float
    keys: Mapping[str, tuple[str, ...]]
    closures: Mapping[str, tuple[str, ...]]
    priorities: Mapping[str, float]
    lag_goals: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_record(cls, record: Mapping[str, Any], where: str = "input.json") -> "Inputs":
        """Check the record and take it in; InputError names the field that is wrong."""
        if record.get("version") != VERSION:
            raise _bad(where, "version", f"is {record.get('version')!r}, known is {VERSION}")
        topology = _field(record, where, "topology", dict)
        queries = _field(record, where, "queries", dict)
        inputs = cls(
            files=tuple(
                _file(entry, f"{where}: files[{n}]")
                for n, entry in enumerate(_field(record, where, "files", list))
            ),
            offsets=dict(_field(record, where, "offsets", dict)),
            rows_per_second=float(_field(record, where, "rows_per_second", int | float)),
            keys={name: tuple(entry.get("keys") or ()) for name, entry in queries.items()},
            closures={
                name: tuple(partitions)
                for name, partitions in _field(
                    topology, f"{where}: topology", "closures", dict
                ).items()
            },
            priorities=dict(_field(topology, f"{where}: topology", "priorities", dict)),
            # older records have none
            lag_goals=dict(
                _field({"lag_goals": {}, **topology}, f"{where}: topology", "lag_goals", dict)
            ),
        )
        inputs.check(where)
        return inputs

    def check(self, where: str) -> None:
        """Raise InputError where files, offsets, queries and topology do not fit together."""
        if not self.priorities:
            raise _bad(where, "topology.priorities", "names no query")
        for query, priority in self.priorities.items():
            if not isinstance(priority, int | float) or not priority > 0:
                raise _bad(where, f"topology.priorities.{query}", f"is {priority!r}, not above 0")
            if not self.partitions(query):
                raise _bad(where, "topology.closures", f"has no partition of the query {query}")
        for query, goal in self.lag_goals.items():
            place = f"topology.lag_goals.{query}"
            if query not in self.priorities:
                raise _bad(where, place, "names no query")
            if not isinstance(goal, int | float) or not goal > 0:
                raise _bad(where, place, f"is {goal!r}, not above 0")
        for file in self.files:
            if not isinstance(self.offsets.get(file.name), int):
                raise _bad(where, f"offsets.{file.name}", "is missing or no whole number")

    def partitions(self, query: str) -> tuple[str, ...]:
        """Give the query partitions of a query, sorted."""
        return tuple(sorted(name for name in self.closures if query_of(name) == query))

    def closure(self, query: str) -> frozenset[str]:
        """Give all partitions that a query needs."""
        return frozenset(
            partition for name in self.partitions(query) for partition in self.closures[name]
        )


def query_of(query_partition: str) -> str:
    """Give the query of "QUERY/INDEX"."""
    return query_partition.rpartition("/")[0]


def _file(entry: Mapping[str, Any], where: str) -> InputFile:
    file = InputFile(
        name=_field(entry, where, "name", str),
        path=_field(entry, where, "path", str),
        sha256=_field(entry, where, "sha256", str),
        rows=_field(entry, where, "rows", int),
        repeat_every_seconds=entry.get("repeat_every_seconds"),
        event_time=entry.get("event_time"),
    )
    if file.rows < 1:
        raise _bad(where, "rows", f"is {file.rows}, not above 0")
    if file.repeat_every_seconds is not None and not file.event_time:
        raise _bad(where, "event_time", "is missing, though the file repeats")
    return file


def _field(record: Mapping[str, Any], where: str, name: str, kind: Any) -> Any:
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, kind):
        raise _bad(where, name, "is missing" if value is None else f"is {value!r}")
    return value


def _bad(where: str, field: str, what: str) -> InputError:
    return InputError(
        where=f"{where}: {field}",
        what=what,
        remedy="restore the file from the run, or run the demo again",
    )


# Facts about a run that none of its records contains.
#
# Holds values and checks them; computes nothing. The demo fills it in, `verification` takes it
# from `report.json` as it stands.

# Plans use at most this share of a node's CPU (DESIGN 5).
NODE_CAP = 0.8
# Times its normal worst lag: above it a query is unavailable (DESIGN 2).
THETA = 1.2


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The run as it was asked for, and the machine it ran on.

    `cpu_quota` is the number of cores of each node, `theta` the factor over the normal worst
    lag from which a query counts as unavailable; `stabilisation_seconds` is how long the
    coordinator waits for further returns before it plans.
    """

    commit: str
    seed: int
    machine: Any
    strategy: str
    engine: str
    buffering: str
    ordering: str
    nodes: int
    quota_enforced: bool
    cpu_quota: float
    theta: float = THETA
    stabilisation_seconds: float = 0.0

    @property
    def node_capacity_percent(self) -> float:
        """CPU of one node that plans may use, in percent of one core."""
        return self.cpu_quota * 100 * NODE_CAP

    @classmethod
    def from_record(cls, record: Mapping[str, Any], where: str = "report.json") -> "RunFacts":
        """Take the facts out of a report; InputError names a field that is not there."""
        missing = [field.name for field in fields(cls) if field.name not in record]
        if missing:
            raise InputError(
                where=f"{where}: {missing[0]}",
                what="is missing",
                remedy="restore the file from the run, or run the demo again",
            )
        facts = cls(**{field.name: record[field.name] for field in fields(cls)})
        facts.check(where)
        return facts

    def check(self, where: str) -> None:
        """Raise InputError for a number that no run can have."""
        numbers = {"nodes": self.nodes, "cpu_quota": self.cpu_quota, "theta": self.theta}
        for name, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise InputError(
                    where=f"{where}: {name}",
                    what=f"is {value!r}",
                    remedy="give a number above 0",
                )

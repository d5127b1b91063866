"""Makes a history of a run: from the store's commit records, and from the run's events.

    event cut                       the input of an epoch is logged
    commit record: finished         what each operator partition gave, each time it ran an epoch
    commit record: outputs          the rows that are released; epochs without rows have none
    commit record without content   a new driver has started: a failure of everything
    event kill, confirmed           a failure; recovered ends it
    event checkpoint, finish        a snapshot; the end

Records that are in segments have no digests: what they say was computed is left out, and so is
not compared with what was computed later.

Reads neither store nor files. Who runs an application calls `record` with what it has read, writes
`history_file.serialize` of it beside its report, and has `history_check.check` judge it.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from rekindle.history.history_steps import (
    Computed,
    End,
    EpochInput,
    EpochOutput,
    EpochSnapshot,
    ExpectedOutput,
    Graph,
    History,
    HistoryFailure,
    HistoryRecovery,
)
from rekindle.history.operations import RECORDED, Operation
from rekindle.model import topology as topologies
from rekindle.model.topology import Topology

NO_ROWS = "no-rows"  # the digest of an epoch in which a query partition has nothing to say
# Of rows whose commit record is in a segment, which keeps no digests.
NOT_KNOWN = "not-known"
LOSSES = ("confirmed", "state-lost")
# At one moment an input comes before what was made of it, and that before what was released.
RANKS: Mapping[type, int] = {EpochInput: 0, Computed: 1, EpochOutput: 2}

_Happening = HistoryFailure | HistoryRecovery | EpochSnapshot


def record(
    topology: Topology,
    commits: Iterable[Mapping[str, Any]],
    events: Iterable[Mapping[str, Any]],
    *,
    zero_at: float,
    logged: Iterable[Mapping[str, Any]] = (),
    references: Mapping[tuple[str, int], tuple[str, int]] = MappingProxyType({}),
) -> History:
    """The history of a run; `t` counts from the wall-clock time `zero_at`, in seconds.

    `commits` are all commit records in order of their numbers (docs/formats.md), `events` the
    driver's and the demo's, with wall-clock `at`. `logged` are offset records of the store: a
    driver may have died before it could tell of its cut. `references` are digest and number of
    rows by query partition and epoch, computed independently of the run.
    """
    told = list(events)
    steps = [
        *_inputs(told, logged, zero_at),
        *_happenings(told, zero_at),
        *_results(topology, commits, zero_at),
    ]
    steps.sort(key=lambda step: (step.t, RANKS.get(type(step), 3)))
    finished = [_t(event, zero_at) for event in told if event["kind"] == "finish"]
    end = [End(max(finished[-1], steps[-1].t if steps else 0.0))] if finished else []
    of_segments = {
        (step.channel, step.epoch)
        for step in steps
        if isinstance(step, EpochOutput) and step.digest == NOT_KNOWN
    }
    known = [
        ExpectedOutput(channel, epoch, digest, rows)
        for (channel, epoch), (digest, rows) in sorted(references.items())
        if (channel, epoch) not in of_segments
    ]
    return History(_graph(topology), (*steps, *end, *known))


def _graph(topology: Topology) -> Graph:
    """Every operator partition reads every partition of the operators before its own."""
    counts = {operator.name: operator.parallelism for operator in topology.operators}
    sources: dict[str, list[str]] = {name: [] for name in counts}
    for producer, consumer in topology.edges:
        sources[consumer] += [f"{producer}/{i}" for i in range(counts[producer])]
    operations = tuple(
        Operation(name, RECORDED, tuple(sources[name.rpartition("/")[0]]))
        for name in topologies.partitions(topology)
    )
    outputs = {
        f"{query.name}/{i}": f"{query.operator}/{i}"
        for query in topology.queries
        for i in range(counts[query.operator])
    }
    return Graph((), operations, outputs)


def _inputs(
    events: Iterable[Mapping[str, Any]], logged: Iterable[Mapping[str, Any]], zero_at: float
) -> list[EpochInput]:
    """The first word of each epoch's input counts: it is logged once."""
    at: dict[int, float] = {}
    for event in events:
        if event["kind"] == "cut":
            at.setdefault(event["epoch"], _t(event, zero_at))
    for offsets in logged:
        at.setdefault(offsets["epoch"], round(offsets["cut_at"] - zero_at, 6))
    return [EpochInput(t, epoch) for epoch, t in sorted(at.items())]


def _happenings(events: Iterable[Mapping[str, Any]], zero_at: float) -> list[_Happening]:
    steps: dict[_Happening, None] = {}  # nodes that are killed together fail once
    killed: set[str] = set()
    failed = False
    for event in sorted(events, key=lambda event: float(event["at"])):
        kind, t = event["kind"], _t(event, zero_at)
        if kind == "kill" or (kind in LOSSES and event["node"] not in killed):
            steps[HistoryFailure(t)] = None
            failed = True
        elif kind == "recovered" and failed:
            steps[HistoryRecovery(t)] = None
            failed = False
        elif kind == "checkpoint":
            steps[EpochSnapshot(t, event["epoch"])] = None
        if kind == "kill":
            killed.add(event["node"])
        elif kind == "joined":
            killed.discard(event["node"])
    return list(steps)


def _results(
    topology: Topology, commits: Iterable[Mapping[str, Any]], zero_at: float
) -> Iterator[HistoryFailure | Computed | EpochOutput]:
    sinks: dict[str, list[str]] = {}
    channels = _graph(topology).outputs
    for channel, operation in channels.items():
        sinks.setdefault(operation, []).append(channel)
    reached: dict[str, int] = {}
    for commit in commits:
        t = _t(commit, zero_at)
        if not commit["finished"]:
            yield HistoryFailure(t)  # a new driver seals the log: the older one is gone
        for name, (first, last, digests) in commit["finished"].items():
            epochs = range(first, last + 1) if digests else ()
            for epoch, digest in zip(epochs, digests, strict=True):
                yield Computed(t, name, epoch, digest)
        # dead letters come out of no query
        counted = (row for row in commit["outputs"] if row[0] in channels)
        released = [(row[0], row[1], row[4] or NOT_KNOWN, row[2]) for row in counted]
        told = {(channel, epoch) for channel, epoch, _, _ in released}
        for name, (first, last, _) in commit["finished"].items():
            for channel in sinks.get(name, ()):
                fresh = range(max(first, reached.get(channel, first - 1) + 1), last + 1)
                released += [
                    (channel, epoch, NO_ROWS, 0) for epoch in fresh if (channel, epoch) not in told
                ]
                reached[channel] = max(last, reached.get(channel, last))
        for channel, epoch, digest, rows in sorted(released):
            yield EpochOutput(t, channel, epoch, digest, rows)


def _t(told: Mapping[str, Any], zero_at: float) -> float:
    return round(float(told["at"]) - zero_at, 6)

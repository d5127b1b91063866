"""The summary of all commit records, so that nobody has to keep them or read them twice.

    commits 1 ... N ──take_in──► Fold ──record──► a checkpoint's record ──from_record──► Fold

Its size goes with the number of partitions, and with the epochs behind restore points, of which it
has digests; not with the number of records. It goes by names, so that it holds for a changed
pipeline as well; what it means for a program is for `output_commit.read_back` and
`late_row_counts`. The `checkpoint_store` takes in what it commits, writes the fold into each
checkpoint's record, and begins with that of the newest one when it is opened. Format:
docs/formats.md.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekindle_spark.checkpoint import restore_points
from rekindle_store import checkpoint_records
from rekindle_store.checkpoint_records import Seal
from rekindle_store.committed_files import DEAD_LETTERS

Record = Mapping[str, Any]
Places = tuple[list[int], list[int]]


@dataclass(slots=True)
class Reached:
    """How far one partition has got, by the records of drivers that had made chains of the same
    number of branches: its `last` finished epoch; of outputs of which less was finished at some
    time how far these have got (`parts`); and the digests of the epochs that may be run again.
    `spans` (first, last) are of epochs that counted as soon as they had run, and which a branch of
    the partition's chain may run again."""

    last: int = 0
    parts: dict[str, int] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    spans: list[tuple[int, int]] = field(default_factory=list)

    def take_in(self, last: int, left_out: Mapping[str, int]) -> None:
        """Add that epochs up to `last` are finished, of some outputs of the partition less."""
        before = self.last
        for part in {*self.parts, *left_out}:
            reached = min(last, left_out.get(part, last))
            self.parts[part] = max(self.parts.get(part, before), reached)
        self.last = max(last, before)

    def count(self, first: int, last: int, sums: Sequence[str]) -> None:
        """Add that epochs counted as soon as they had run, with their digests. There are none of
        records that are in a segment: what they say is not compared."""
        self.digests.update(zip(range(first, last + 1) if sums else (), sums, strict=True))
        if self.spans and first <= self.spans[-1][1] + 1:
            begin, end = self.spans.pop()
            first, last = min(first, begin), max(last, end)
        self.spans.append((first, last))

    def counted(self, begin: int, end: int) -> Iterator[int]:
        """Yield the epochs behind `begin`, up to `end`, that counted as soon as they had run."""
        for first, last in self.spans:
            yield from range(max(first, begin + 1), min(last, end) + 1)

    def forget(self, begin: int, oldest: int) -> None:
        """Let go what is known of epochs that nobody runs again: those up to `begin`, and of
        branches those up to `oldest`."""
        for epoch in [epoch for epoch in self.digests if epoch <= begin]:
            del self.digests[epoch]
        self.spans = [(max(first, oldest + 1), last) for first, last in self.spans if last > oldest]


@dataclass(slots=True)
class Late:
    """How many rows came too late for a step, and when the newest of them were committed."""

    rows: int = 0
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class BeyondGoals:
    """For how many `seconds` each query has been further behind than its goal, up to the moment
    `at`; `goals` (query -> seconds) are those that held then."""

    at: float = 0.0
    goals: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    def with_record(self, said: Record) -> "BeyondGoals":
        """With the totals of a commit record that have changed, and its goals if they have."""
        seconds = {**self.seconds, **said["seconds"]}
        return BeyondGoals(max(self.at, said["at"]), said.get("goals", self.goals), seconds)


@dataclass(slots=True)
class CommitSummary:
    """All commit records up to the number `commits`.

    `public` is the checkpoint with which output has become public last, 0 without one; `finished`
    has partition names, and for each by how many branches the drivers knew how far it has got;
    `late` has steps; `named` is the newest epoch with output of each query partition. `choices`
    has, of each output of dead letters, by epoch the places of the rows that were left out and that
    were taken alone (`LeftOutRows`), None where that is not known. `seal` says which
    records of older drivers count; None where no driver has said so. `lag_goals` are as the newest
    record with some has them.
    """

    commits: int = 0
    plan_epoch: int = 0
    public: int = 0
    finished: dict[str, dict[int, Reached]] = field(default_factory=dict)
    late: dict[str, Late] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)
    choices: dict[str, dict[int, Places | None]] = field(default_factory=dict)
    seal: Seal | None = None
    lag_goals: BeyondGoals = field(default_factory=BeyondGoals)

    def take_in(self, number: int, record: Record) -> None:
        """Add the next commit record."""
        assert number == self.commits + 1, f"commit {number} behind {self.commits}"
        self.commits = number
        self.plan_epoch = max(self.plan_epoch, record["plan_epoch"])
        self.public = max(self.public, record.get("checkpoint", 0))
        left_out = _by_index(record.get("left_out", {}))
        for name, (first, last, sums) in record["finished"].items():
            by_branches = self.finished.setdefault(name, {})
            reached = by_branches.setdefault(record.get("branches", 0), Reached())
            reached.take_in(last, left_out.get(_index(name), {}))
            # what was run unordered, and is public with a checkpoint, may differ in a repeat
            if "checkpoint" not in record:
                reached.count(first, last, sums)
        for name, _, rows in record.get("late", ()):
            late = self.late.setdefault(name.rpartition("/")[0], Late())
            late.rows, late.at = late.rows + rows, record["at"]
        for part, epoch, *_ in record["outputs"]:
            self.named[part] = max(epoch, self.named.get(part, 0))
            if part.rpartition("/")[0].endswith(DEAD_LETTERS) and "checkpoint" not in record:
                self.choices.setdefault(part, {}).setdefault(epoch, None)
        for part, epoch, left, alone in record.get("choices", ()):
            self.choices.setdefault(part, {})[epoch] = (left, alone)
        if "lag_goals" in record:
            self.lag_goals = self.lag_goals.with_record(record["lag_goals"])
        self.seal = checkpoint_records.seal_of(record) or self.seal

    def forget(self, checkpoint: Record) -> None:
        """Let go what is known of epochs that are not run again from a checkpoint, by its
        record."""
        oldest = checkpoint_records.oldest(checkpoint)
        for name, by_branches in self.finished.items():
            begin = restore_points.begin(checkpoint, name)
            for reached in by_branches.values():
                reached.forget(begin, oldest)
        for part, by_epoch in list(self.choices.items()):
            for epoch in [epoch for epoch in by_epoch if epoch <= oldest]:
                del by_epoch[epoch]
            if not by_epoch:
                del self.choices[part]

    def last(self, name: str) -> int:
        """The last finished epoch of a partition, 0 without one."""
        return max((one.last for one in self.finished.get(name, {}).values()), default=0)

    @property
    def has_digests(self) -> bool:
        """Whether epochs may run again whose output is to be what it was."""
        return any(one.digests for known in self.finished.values() for one in known.values())

    @property
    def newest(self) -> int:
        """The last epoch that is finished for any partition, 0 without one."""
        return max(map(self.last, self.finished), default=0)

    def record(self) -> dict[str, Any]:
        """As a checkpoint's record has it."""
        return {
            "commits": self.commits,
            "plan_epoch": self.plan_epoch,
            "public": self.public,
            "finished": {
                name: [
                    [known, one.last, dict(one.parts), _runs(one.digests), list(one.spans)]
                    for known, one in sorted(by_branches.items())
                ]
                for name, by_branches in self.finished.items()
            },
            "late": {step: [late.rows, late.at] for step, late in self.late.items()},
            "named": dict(self.named),
            "choices": {part: list(of.items()) for part, of in self.choices.items()},
            "seal": None if self.seal is None else _seal_record(self.seal),
            "lag_goals": {
                "at": self.lag_goals.at,
                "seconds": dict(self.lag_goals.seconds),
                "goals": dict(self.lag_goals.goals),
            },
        }


def from_record(record: Record) -> CommitSummary:
    """Read back what a checkpoint's record says; of one without a fold, which an older version has
    written: nothing has been taken in."""
    content = record.get("fold")
    if content is None:
        return CommitSummary()
    return CommitSummary(
        content["commits"],
        content["plan_epoch"],
        content["public"],
        {
            name: {
                known: Reached(last, dict(parts), _epochs(runs), [(a, b) for a, b in spans])
                for known, last, parts, runs, spans in of
            }
            for name, of in content["finished"].items()
        },
        {step: Late(*late) for step, late in content["late"].items()},
        dict(content["named"]),
        {
            part: {epoch: None if places is None else tuple(places) for epoch, places in of}
            for part, of in content["choices"].items()
        },
        None if content["seal"] is None else _seal(*content["seal"]),
        # an older version counts none
        BeyondGoals(**content.get("lag_goals", {})),
    )


def _seal_record(seal: Seal) -> list[Any]:
    found: list[Any] = [seal.generation, sorted(seal.checkpoints)]
    return found if seal.branches is None else [*found, sorted(seal.branches)]


def _seal(
    generation: int, checkpoints: Iterable[int], branches: Iterable[int] | None = None
) -> Seal:
    known = None if branches is None else frozenset(branches)
    return Seal(generation, frozenset(checkpoints), known)


def _by_index(left_out: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Outputs by the index that they share with the partition that writes them."""
    found: dict[str, dict[str, int]] = {}
    for part, epoch in left_out.items():
        found.setdefault(_index(part), {})[part] = epoch
    return found


def _index(name: str) -> str:
    return name.rpartition("/")[2]


def _runs(digests: Mapping[int, str]) -> list[list[Any]]:
    """[[first epoch, digest, ...], ...], a list for epochs that follow each other."""
    runs: list[list[Any]] = []
    for epoch in sorted(digests):
        if not runs or epoch != runs[-1][0] + len(runs[-1]) - 1:
            runs.append([epoch])
        runs[-1].append(digests[epoch])
    return runs


def _epochs(runs: Iterable[list[Any]]) -> dict[int, str]:
    return {first + index: sum_ for first, *sums in runs for index, sum_ in enumerate(sums)}

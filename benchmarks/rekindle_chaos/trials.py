"""A trial: the pipeline, the load, the settings and the faults of one run, as plain data.

Made by `trial_generator` from a seed, or read from a file. Times are seconds since the trial began
to be live; sizes of windows are seconds of event time.
"""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from rekindle.model.errors import InputError

TRIAL_VERSION = 1
# Of a step with dead letters the rows whose column is a multiple of it are looked up.
LOOKED_UP_EVERY = 97

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,100}$")]
Number = Annotated[int, Meta(ge=0, le=2**31)]
Count = Annotated[int, Meta(ge=1, le=10**8)]
Parallelism = Annotated[int, Meta(ge=1, le=1_024)]
TopicPartitions = Annotated[int, Meta(ge=0, le=100)]
Whole = Annotated[int, Meta(ge=-(2**31), le=2**31)]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]


class TrialSource(msgspec.Struct, frozen=True, tag="source", forbid_unknown_fields=True):
    """`rows` with the columns at, key (one of `keys`, or null), code and value (or null): a file,
    or a topic of Kafka with so many partitions."""

    name: Name
    rows: Count
    keys: Count
    parallelism: Parallelism
    topic: TopicPartitions = 0


class Filter(msgspec.Struct, frozen=True, tag="filter", forbid_unknown_fields=True):
    """Rows with a whole number above another; nulls are not."""

    name: Name
    input: str
    column: str
    above: Whole


class ScaleStep(msgspec.Struct, frozen=True, tag="scale", forbid_unknown_fields=True):
    """A further column: a whole number times a factor, plus a number.

    With `letters` it has dead letters: rows that it cannot look up while `lookup-away` lasts.
    """

    name: Name
    input: str
    column: str
    factor: Whole
    plus: Whole
    into: str
    letters: bool = False


class Pick(msgspec.Struct, frozen=True, tag="pick", forbid_unknown_fields=True):
    """Some columns under other names, {name: new name}; the event time is among them."""

    name: Name
    input: str
    columns: dict[str, str]


class WindowStep(msgspec.Struct, frozen=True, tag="window", forbid_unknown_fields=True):
    """Aggregates, {name: (function, column)}, per keys and window."""

    name: Name
    input: str
    keys: tuple[str, ...]
    size_seconds: Count
    slide_seconds: Count | None
    aggregates: dict[str, tuple[str, str | None]]
    parallelism: Parallelism


class TopStep(msgspec.Struct, frozen=True, tag="top", forbid_unknown_fields=True):
    """The rows with the largest `by` per event time and keys."""

    name: Name
    input: str
    by: str
    count: Count
    keys: tuple[str, ...]
    parallelism: Parallelism


class Rises(msgspec.Struct, frozen=True, tag="rises", forbid_unknown_fields=True):
    """Custom state: by how much a whole number is above the one before it of the same keys."""

    name: Name
    input: str
    column: str
    keys: tuple[str, ...]
    parallelism: Parallelism


class Join(msgspec.Struct, frozen=True, tag="join", forbid_unknown_fields=True):
    """Pairs of rows with equal keys, close in event time."""

    name: Name
    left: str
    right: str
    keys: tuple[str, ...]
    within_seconds: Number
    parallelism: Parallelism


class Union(msgspec.Struct, frozen=True, tag="union", forbid_unknown_fields=True):
    """Several streams of the same columns, for a step with keys."""

    name: Name
    inputs: tuple[str, ...]


class Sink(msgspec.Struct, frozen=True, tag="sink", forbid_unknown_fields=True):
    """A query; its rows are in a topic of Kafka too where that has partitions. With a `key`, a
    column of texts, rows of one key go to one of them."""

    name: Name
    input: str
    priority: int
    topic: TopicPartitions = 0
    key: str = ""


Step = TrialSource | Filter | ScaleStep | Pick | WindowStep | TopStep | Rises | Join | Union | Sink


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is harmed `at` which time: some nodes by their numbers, or no node in particular.

    `seconds` is how long it lasts, for what passes by itself. `what` is which of several things a
    fault of this kind harms, or in which way.
    """

    at: Seconds
    kind: str
    nodes: tuple[Number, ...] = ()
    seconds: Seconds = 0.0
    what: str = ""


class ChaosTrial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that decides a run, but for what the machine does meanwhile."""

    version: int
    seed: Number
    seconds: Annotated[float, Meta(gt=0, le=86_400)]
    rows_per_second: Count
    nodes: Annotated[int, Meta(ge=1, le=50)]
    processes: bool
    steps: tuple[Step, ...]
    policy: dict[str, float | int | str]
    runtime: dict[str, float | int | str]
    faults: tuple[Fault, ...]

    @property
    def sources(self) -> list[TrialSource]:
        """Its sources."""
        return [step for step in self.steps if isinstance(step, TrialSource)]

    @property
    def has_links(self) -> bool:
        """Whether links between its nodes are cut."""
        return any(fault.kind == "cut-link" for fault in self.faults)

    @property
    def topics(self) -> dict[str, int]:
        """The topics of its sources and queries, with how many partitions each has."""
        found = [(source.name, source.topic) for source in self.sources]
        found += [(sink.name, sink.topic) for sink in self.sinks]
        return {name: partitions for name, partitions in found if partitions}

    @property
    def lettered(self) -> list[ScaleStep]:
        """Its steps with dead letters."""
        return [step for step in self.steps if isinstance(step, ScaleStep) and step.letters]

    @property
    def sinks(self) -> list[Sink]:
        """Its queries."""
        return [step for step in self.steps if isinstance(step, Sink)]


def inputs(step: Step) -> tuple[str, ...]:
    """The steps that a step reads."""
    match step:
        case TrialSource():
            return ()
        case Join():
            return (step.left, step.right)
        case Union():
            return step.inputs
    return (step.input,)


def serialize(trial: ChaosTrial) -> str:
    """As JSON, for a file."""
    return msgspec.json.format(msgspec.json.encode(trial), indent=1).decode() + "\n"


def load(path: Path) -> ChaosTrial:
    """Read a trial back. Raises InputError where the file is none."""
    try:
        trial = msgspec.json.decode(path.read_bytes(), type=ChaosTrial)
    except OSError as error:
        raise _unusable(path, f"cannot be read ({error.strerror})") from error
    except ValueError as error:  # also where it is no text
        raise _unusable(path, f"is no trial ({error})") from error
    if trial.version != TRIAL_VERSION:
        raise _unusable(path, f"has version {trial.version}, known is {TRIAL_VERSION}")
    return trial


def _unusable(path: Path, what: str) -> InputError:
    remedy = "give a file that `rekindle chaos` has written"
    return InputError(where=f"trial {path}", what=what, remedy=remedy)

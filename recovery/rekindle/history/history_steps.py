"""A recorded history as values: the physical graph and the steps that were seen from outside.

    modelled    operations of the closed list; inputs and outputs are single elements
    recorded    opaque operations of an application in epochs; outputs are known by their digests

`t` is logical time; several steps may share one, their order in the history decides. `line` is
where a step stood in its file and no part of its value. `history_file` reads and writes one;
everything else here takes a `History`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rekindle.history.operations import RECORDED, Operation, Value


@dataclass(frozen=True, slots=True)
class Input:
    """An element enters."""

    t: float
    channel: str
    value: Value
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class HistoryOutput:
    """An element leaves. `unseen_before`: others of its channel may have left before it."""

    t: float
    channel: str
    value: Value
    unseen_before: bool = False
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """States are saved: of one operation, or of all (null). `state` has one element when the
    state itself was recorded, otherwise none.
    """

    t: float
    operation: str | None
    state: tuple[Value, ...] = ()
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class HistoryFailure:
    """Something of the working set is lost."""

    t: float
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class HistoryRecovery:
    """The working set is restored, in whatever way."""

    t: float
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class End:
    """Nothing more enters or leaves. `unseen_before`: outputs that are not shown may have left."""

    t: float
    unseen_before: bool = False
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class EpochInput:
    """The input of an epoch is logged: from here on it is fixed."""

    t: float
    epoch: int
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Computed:
    """An operation was through with an epoch, for the first time or again."""

    t: float
    operation: str
    epoch: int
    digest: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class EpochOutput:
    """A query partition's rows of an epoch are released."""

    t: float
    channel: str
    epoch: int
    digest: str
    rows: int
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class EpochSnapshot:
    """All states after an epoch are saved."""

    t: float
    epoch: int
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """What a query partition has to give in an epoch, computed independently of the run."""

    channel: str
    epoch: int
    digest: str
    rows: int
    line: int = field(default=0, compare=False)


ModelledStep = Input | HistoryOutput | Snapshot
Happening = HistoryFailure | HistoryRecovery | End
RecordedStep = EpochInput | Computed | EpochOutput | EpochSnapshot | ExpectedOutput
Step = ModelledStep | Happening | RecordedStep


@dataclass(frozen=True, slots=True)
class Graph:
    """The physical graph: `operations` in topological order, `outputs` with their operation.

    `inputs` are the channels through which elements enter; with recorded operations there are
    none, their input comes in epochs.
    """

    inputs: tuple[str, ...]
    operations: tuple[Operation, ...]
    outputs: Mapping[str, str]

    @property
    def recorded(self) -> bool:
        """Whether the operations are opaque; they all are, or none is."""
        return self.operations[0].kind == RECORDED

    def upstream(self) -> dict[str, frozenset[str]]:
        """Per operation all operations from which a path leads to it, itself not included."""
        above: dict[str, frozenset[str]] = {}
        for operation in self.operations:
            direct = {source for source in operation.sources if source in above}
            above[operation.name] = frozenset(direct).union(*(above[name] for name in direct))
        return above


@dataclass(frozen=True, slots=True)
class History:
    """A graph and what was seen of it, in order."""

    graph: Graph
    steps: tuple[Step, ...]

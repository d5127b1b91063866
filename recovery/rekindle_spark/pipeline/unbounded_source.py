"""The contract of sources whose future is unknown: what has arrived is known, what comes is not.

    initial_offsets()            where reading begins, per source partition
    latest_offsets()             what can be read now: the driver asks, some times in an epoch
    read(partition, start, end)  the rows of a range, the same at any time: on the nodes
    commit(offsets)              what nobody will read again

A source has *source partitions*, named by texts, that may become more. Offsets are the source's
own: they grow, and a range of them may have fewer rows than numbers. A replay has a clock of its
own instead, which says what has arrived (`epoch_cutter`). The driver's part is in `source_intake`
and `source_polls`.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from inspect import signature
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from rekindle.model.errors import refuse
from rekindle_spark.user_code import argument_checks
from rekindle_store.store_files import Files

FAIL, SKIP = "fail", "skip"
SECONDS_MAX = 30 * 86_400.0
# Some 300 years, for sources whose event times are not those of clocks.
FUTURE_SECONDS_MAX = 1e10
ROWS_MAX, BYTES_MAX = 10**9, 2**40


@dataclass(slots=True)
class PrefetchBudget:
    """How many bytes all sources of a process may fetch before anybody asks for them; None: nothing
    limits them. Hosts set it, from the limit of their memory."""

    bytes_max: int | None = None


prefetch = PrefetchBudget()


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """What can be read of one source partition: the offsets [oldest, latest). `identity` is another
    one once the partition has been recreated under the same name. `why` says what became of those
    before `oldest`, where the source knows. Where `latest` `only_grows`, a smaller one than before
    says that rows are gone, and that others get their offsets."""

    oldest: int
    latest: int
    identity: str = ""
    why: str = ""
    only_grows: bool = False


@dataclass(frozen=True, slots=True)
class RowsAndRejects:
    """The rows of a range, and what of it could not be made rows: with the columns of the source's
    `reject_schema`, and a last one that says why. A `RejectRepeating` source gives `offsets` too,
    one of its own for each reject."""

    rows: pa.Table
    rejects: pa.Table
    offsets: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class SourceTerms:
    """How a source is read.

    `lateness_seconds`: the watermark stays so far behind the greatest event time of each source
    partition. Rows whose event time is more than `future_seconds_max` ahead of the clock of the
    node that reads them do not count for it. A partition with nothing to read for `idle_seconds`
    does not hold it up any more. An epoch takes at most so many rows and bytes of the source. A
    source that cannot be reached is asked again for `patience_seconds`. Where rows are gone that no
    epoch has read, the run ends (`on_data_loss` FAIL), or goes on behind them and records it
    (SKIP).
    """

    lateness_seconds: float = 0.0
    idle_seconds: float = 30.0
    rows_per_epoch_max: int = 2_000_000
    bytes_per_epoch_max: int = 256 * 2**20
    patience_seconds: float = 600.0
    on_data_loss: str = FAIL
    future_seconds_max: float = 86_400.0

    def check(self, where: str) -> None:
        """Raise InputError for a number out of range, or another word."""
        for name, low, high in (
            ("lateness_seconds", 0.0, SECONDS_MAX),
            ("future_seconds_max", 0.0, FUTURE_SECONDS_MAX),
            ("idle_seconds", 0.1, SECONDS_MAX),
            ("patience_seconds", 0.0, SECONDS_MAX),
        ):
            remedy = f"give seconds from {low:g} to {high:,.0f}"
            argument_checks.check_number(f"{where}: {name}", getattr(self, name), low, high, remedy)
        argument_checks.check_whole(
            f"{where}: rows_per_epoch_max", self.rows_per_epoch_max, ROWS_MAX
        )
        argument_checks.check_whole(
            f"{where}: bytes_per_epoch_max", self.bytes_per_epoch_max, BYTES_MAX
        )
        if self.on_data_loss not in (FAIL, SKIP):
            what = f"is {argument_checks.shown(self.on_data_loss)}"
            refuse(f"{where}: on_data_loss", what, f"choose one of: {FAIL}, {SKIP}")


@runtime_checkable
class UnboundedSource(Protocol):
    """Where rows come from that nobody knows beforehand.

    `schema` has a timestamp("us") column named `event_time`. `read` gives the rows of the offsets
    [start, end), the same rows in the same order at any time and on any node; it is called on the
    nodes. One with `reject_schema` may return RowsAndRejects. The others are called in the driver,
    by one thread. Each raises SourceAwayError where the source cannot be reached now, DataLossError
    where it does not have the rows any more.
    """

    schema: pa.Schema
    event_time: str
    terms: SourceTerms

    def check(self, step: str) -> None: ...
    def initial_offsets(self) -> Mapping[str, int]: ...
    def latest_offsets(self) -> Mapping[str, PartitionOffsets]: ...
    def read(self, partition: str, start: int, end: int) -> pa.Table | RowsAndRejects: ...
    def commit(self, offsets: Mapping[str, int]) -> None: ...


@runtime_checkable
class RejectRepeating(Protocol):
    """A source that knows the offset of each reject. Whether a record can be decoded may depend on
    a service that is away for a moment, so rejects are committed with an epoch (`dead_letters`).
    `read` gives `RowsAndRejects` with their offsets."""

    def read_again(self, partition: str, start: int, end: int, left: Set[int]) -> RowsAndRejects:
        """As `read`, but the records at the offsets `left`, which it has rejected before, are
        rejects, even if they can be decoded now."""


def rejects_alike(source: object) -> bool:
    """Whether a source rejects the same records whenever it reads them, whatever is away then: it
    says so itself, by a `rejects_alike`."""
    return bool(getattr(source, "rejects_alike", False))


@runtime_checkable
class IdentityChecking(Protocol):
    """A source whose partitions can be recreated under their names, with the same offsets for other
    rows. It is asked on the nodes, once behind the rows of all ranges that were read together."""

    def check_identities(self, logged: Sequence[tuple[str, str]]) -> None:
        """Raise DataLossError where one of these partitions has another identity now than the one
        beside it, SourceAwayError where that cannot be found out."""


@runtime_checkable
class RecordKeeping(Protocol):
    """A source that keeps records of its own in the checkpoint store. The driver says where, before
    it asks for offsets and before the source is sent to nodes, and whether what cannot be decoded
    is kept as dead letters. That keyword is left out for a source that does not take it
    (`keep_records`). Raises OSError while the store is away.
    """

    def keep_in(self, store: Files, step: str, *, dead_letters: bool = False) -> None: ...


@runtime_checkable
class RecordChecking(Protocol):
    """A source that keeps records, and can see beforehand whether those in a store are its own."""

    def check_records(self, store: Files, step: str) -> None:
        """Raise InputError where the store has records of another source under this name. The
        driver calls it before it takes a generation."""


@runtime_checkable
class Resuming(Protocol):
    """A source that a first start takes for wrongly configured, where a later start waits."""

    def resume(self) -> None:
        """The store has offsets of it. The driver calls it before it first asks for offsets."""


@dataclass(frozen=True, slots=True)
class SourceWork:
    """What a source is at, and how much of it is done: a number that grows while it gets on."""

    done: int
    text: str


@runtime_checkable
class WorkReporting(Protocol):
    """A source whose `latest_offsets` may rightly take long. Another thread asks what it is at
    meanwhile, None while that is nothing; one that gets on is not away."""

    def work(self) -> SourceWork | None: ...


def check_terms(where: str, source: Any) -> None:
    """Raise InputError for a source whose terms are none, or out of range."""
    remedy = "give it terms = SourceTerms(...)"
    argument_checks.check_kind(f"{where}: terms", source.terms, SourceTerms, remedy)
    source.terms.check(where)


def keep_records(source: RecordKeeping, store: Files, step: str, *, dead_letters: bool) -> None:
    """Call `keep_in` as the source takes it. Raises what that raises."""
    taken = signature(source.keep_in).parameters.values()
    if any(one.name == "dead_letters" or one.kind is one.VAR_KEYWORD for one in taken):
        source.keep_in(store, step, dead_letters=dead_letters)
    else:
        source.keep_in(store, step)


def is_unbounded(source: Any) -> bool:
    """Whether a step's source is of this contract."""
    return isinstance(source, UnboundedSource)

"""Classifies a failure, from which nodes were lost when.

The first line of this table that holds decides (DESIGN 2; paper, section 4.2.1):

    nodes lost since the last        nodes       unfinished             kind
    global checkpoint, in window     left        incident
    ---------------------------      --------    ------------------     -----------
    none                             some        announced              announced
    none                             -           none                   suspected
    any                              none        any                    complete
    any                              some        complete               complete
    at least X                       some        any                    correlated
    any                              some        correlated             correlated
    fewer than X, of which the       some        independent            correlated
    newest is a loss of its own
    fewer than X                     some        none or independent    independent

Losses that follow each other within a second are one. An incident in which losses are announced and
none has come is no unfinished one when the first comes. Pure functions of values; the coordinator
calls them and acts on the answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rekindle.model.reasons import Reason

ONE_EVENT_SECONDS = 1.0


class IncidentKind(StrEnum):
    """A failure as the coordinator sees it."""

    SUSPECTED = "suspected"
    ANNOUNCED = "announced"
    INDEPENDENT = "independent"
    CORRELATED = "correlated"
    COMPLETE = "complete"

    @classmethod
    def _missing_(cls, value: object) -> "IncidentKind":
        """A word of a newer release, in a record that it has written: handled with most care."""
        del value
        return cls.CORRELATED


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """A node and the moment (seconds) at which its loss was known."""

    node: str
    at: float


@dataclass(frozen=True, slots=True)
class Incident:
    """A failure that is not over.

    `lost` are its nodes in order of loss, `domains` those among their failure domains that count
    as impaired. `nodes_wanted` is how many nodes were up before it, `behind_since` the moment
    that restored partitions start from, `plans` the number of plans made so far. Times in seconds.
    `announced` are the nodes that were announced to go and for which others have been requested,
    `moved` the partitions that had moved off those of them that are lost, `saved` the query
    partitions that would have stopped otherwise. `retained`: it follows an incident without a
    pause, so outputs have been retained since that one and survivors need not roll back. A report
    that buffering is off ends it. `cluster_nodes` is what the cluster calls the lost nodes (node ->
    name), as far as that was known: a driver that starts again forgets where its executors were.
    `repeated` counts losses of nodes that it had lost before: a name comes again with another
    executor.
    """

    number: int
    kind: IncidentKind
    began_at: float
    newest_loss_at: float
    behind_since: float
    nodes_wanted: int
    lost: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    plans: int = 0
    announced: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    saved: tuple[str, ...] = ()
    retained: bool = False
    cluster_nodes: Mapping[str, str] = field(default_factory=dict)
    repeated: int = 0

    @property
    def is_announced(self) -> bool:
        """Whether nothing is lost yet."""
        return self.kind is IncidentKind.ANNOUNCED


def classify(
    losses: Sequence[NodeLoss],
    unfinished: Incident | None,
    *,
    nodes_left: int,
    correlated_nodes_min: int,
    window_seconds: float,
) -> IncidentKind:
    """The kind of an incident after the newest of `losses` (ascending by time).

    `losses` are those since the last global checkpoint, `nodes_left` counts nodes that are up or
    only suspected, `correlated_nodes_min` is X.
    """
    if not losses and unfinished is None:
        return IncidentKind.SUSPECTED
    if unfinished is not None and unfinished.kind is IncidentKind.ANNOUNCED:
        if not losses:
            return IncidentKind.ANNOUNCED
        unfinished = None
    before = None if unfinished is None else unfinished.kind
    if nodes_left == 0 or before is IncidentKind.COMPLETE:
        return IncidentKind.COMPLETE
    recent = since(losses, losses[-1].at - window_seconds) if losses else ()
    if (
        len({loss.node for loss in recent}) >= correlated_nodes_min
        or before is IncidentKind.CORRELATED
    ):
        return IncidentKind.CORRELATED
    if unfinished and losses and losses[-1].at - unfinished.newest_loss_at > ONE_EVENT_SECONDS:
        return IncidentKind.CORRELATED
    return IncidentKind.INDEPENDENT


def since(losses: Iterable[NodeLoss], at: float) -> tuple[NodeLoss, ...]:
    """The losses at or after a moment."""
    return tuple(loss for loss in losses if loss.at >= at)


def reason(kind: IncidentKind) -> Reason:
    """The word for decisions that an incident of this kind causes."""
    return {
        IncidentKind.SUSPECTED: Reason.SUSPECTED_FAILURE,
        IncidentKind.ANNOUNCED: Reason.LOSS_ANNOUNCED,
        IncidentKind.INDEPENDENT: Reason.INDEPENDENT_FAILURE,
        IncidentKind.CORRELATED: Reason.CORRELATED_FAILURE,
        IncidentKind.COMPLETE: Reason.COMPLETE_FAILURE,
    }[kind]

"""Events from the shells to the coordinator, one value each.

Only values; `state_machine` gives each its meaning.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rekindle.model.settings import Policy
from rekindle.model.switch_mode import ON


@dataclass(frozen=True, slots=True)
class Started:
    """A driver has started on `nodes_expected` nodes.

    `resumed`: it found earlier work in the checkpoint store; `checkpoint_at` is then when its
    newest global checkpoint was taken (seconds, as `now`), None when there is none.
    """

    nodes_expected: int
    resumed: bool = False
    checkpoint_at: float | None = None


@dataclass(frozen=True, slots=True)
class NodeSuspected:
    """A node is silent; nobody has confirmed that it is lost."""

    node: str


@dataclass(frozen=True, slots=True)
class NodePaced:
    """A node is slow, so that it holds up what runs on others, or is so no more."""

    node: str
    slow: bool


@dataclass(frozen=True, slots=True)
class NodesLocated:
    """The failure domain of nodes is known, or another one than before."""

    domains: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NodesNamed:
    """What the cluster calls nodes is known, or another name than before (node -> name)."""

    cluster_nodes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LossNotice:
    """A node is announced to go at `until` (seconds, as `now`), by whom or what `source` says.

    `held` are the partitions that it ran when the notice came; `requested`: another node has been
    requested in its place. Whoever announces leaves both to the coordinator.
    """

    source: str
    until: float
    held: tuple[str, ...] = ()
    requested: bool = False


@dataclass(frozen=True, slots=True)
class LossesAnnounced:
    """All nodes that are announced to go (node -> notice). Of others no notice holds any more."""

    notices: Mapping[str, LossNotice]


@dataclass(frozen=True, slots=True)
class NodesLost:
    """Nodes are lost for good, with all that their executors held."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeBack:
    """A node's executor is there: new, back and empty, still there after a suspicion, or with
    another capacity. `capacity_percent` is all its CPU in percent of one core, before the cap.
    `incarnation` tells one start of its executor from another.
    """

    node: str
    capacity_percent: float
    domain: str | None = None
    incarnation: str | None = None


@dataclass(frozen=True, slots=True)
class StatisticsReported:
    """Measured CPU (percent of one core) and state of partitions; those left out keep theirs.
    `overhead_percent` is what an executor takes beside its partitions, however many it has."""

    costs: Mapping[str, float]
    state_bytes: Mapping[str, int] = field(default_factory=dict)
    overhead_percent: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """The checkpoint of an epoch is global."""

    epoch: int


@dataclass(frozen=True, slots=True)
class PlacementReported:
    """What the driver says is active (`placement`), in every epoch (`live`), and `resident`.

    It has carried out every plan up to `plan_epoch`, its own ones included. `moving` are moves that
    it has yet to make; None when it can make none. `stopped` (query partition -> why) cannot go on
    with the functions that there are. `buffering` is whether it retains outputs.
    """

    placement: Mapping[str, str]
    live: frozenset[str]
    resident: Mapping[str, str]
    plan_epoch: int
    moving: Mapping[str, str] | None = None
    stopped: Mapping[str, str] = field(default_factory=dict)
    buffering: str = ON


@dataclass(frozen=True, slots=True)
class QueryCaughtUp:
    """A planned query partition has joined the epochs of the others."""

    query_partition: str


@dataclass(frozen=True, slots=True)
class PlanAcknowledged:
    """The driver has taken up a plan."""

    plan_epoch: int


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """Somebody has changed the policy."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class StoreReachable:
    """The coordination store answers again."""


@dataclass(frozen=True, slots=True)
class StoreLost:
    """The coordination store does not answer."""


@dataclass(frozen=True, slots=True)
class DriverLost:
    """The driver is gone, and with it all executors and exchanges of the application."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; after a batch of other events, and at least once a second. `may_move`: what
    runs may be moved. `knows_domains`: failure domains are as whoever asks has been told; a node of
    none is one by itself. `may_recover`: plans and moves may be made while an incident is open,
    also one that a notice opens with this tick."""

    may_move: bool = True
    knows_domains: bool = True
    may_recover: bool = True


Running = (
    NodeSuspected
    | NodePaced
    | NodesLocated
    | NodesNamed
    | LossesAnnounced
    | NodesLost
    | NodeBack
    | StatisticsReported
    | CheckpointCompleted
    | PlacementReported
    | QueryCaughtUp
    | PlanAcknowledged
    | PolicyChanged
    | StoreReachable
    | StoreLost
    | DriverLost
    | Tick
)
Event = Started | Running

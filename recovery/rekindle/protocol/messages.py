"""The messages of the protocol, one type each, with the limits of every field.

A report is complete: it says how things are, not what has changed, so a lost, repeated or late one
does no harm; `generation` and `sequence` tell which is newer. A directive is an order to one
generation of a driver, numbered in its application. Fields are added, never renamed; readers
ignore those that they do not know. Times in seconds since 1970, CPU in percent of one core.
"""

from typing import Annotated, Any, Literal, NoReturn, TypeVar

import msgspec

from rekindle.model.errors import InputError
from rekindle.model.settings import Policy
from rekindle.model.topology import LAG_GOAL_SECONDS_MAX, LAG_GOAL_SECONDS_MIN, Topology

# Which version of the protocol two sides speak: the newest that both know.
#
# A version is given up only after a release in which its successor was known, so a side that is
# one release older or newer is understood.

VERSION, VERSION_OLDEST = 1, 1


def agree(oldest: int, newest: int, *, own: tuple[int, int] = (VERSION_OLDEST, VERSION)) -> int:
    """The version to speak with a side that knows `oldest` to `newest`; InputError when none."""
    version = min(newest, own[1])
    if version < max(oldest, own[0]) or oldest > newest:
        raise InputError(
            where="handshake",
            what=f"the other side speaks versions {oldest} to {newest} of the protocol, "
            f"this one {own[0]} to {own[1]}",
            remedy="bring the older side to a release that is at most one behind",
        )
    return version


ITEMS_MAX = 100_000
TEXT_MAX = 20_000
COUNT_MAX = 2**53 - 1  # what JSON numbers hold exactly everywhere

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
# Kubernetes gives a node's name 253 characters.
NodeName = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
Text = Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
Generation = Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)]
Percent = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
GoalSeconds = Annotated[float, msgspec.Meta(ge=LAG_GOAL_SECONDS_MIN, le=LAG_GOAL_SECONDS_MAX)]
# Of a checkpoint store (`rekindle_store.commit_log.identity`); empty from older drivers.
StoreIdentity = Annotated[str, msgspec.Meta(max_length=200)]
Names = Annotated[tuple[Name, ...], msgspec.Meta(max_length=ITEMS_MAX)]
Placement = Annotated[dict[Name, Name], msgspec.Meta(max_length=ITEMS_MAX)]
Mode = Literal["on", "off"]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What all messages have in common: they are values."""


class Handshake(Message, frozen=True):
    """A driver introduces itself: who it is, and which versions of the protocol it speaks.

    `host` and `process_id` are for whoever has to find out whether it is gone. `store` tells its
    checkpoint store from others: generations count within one.
    """

    oldest: Generation
    newest: Generation
    namespace: Name
    application: Name
    generation: Generation
    host: str = ""
    process_id: Count = 0
    store: StoreIdentity = ""


class HandshakeAnswer(Message, frozen=True):
    """`version` is spoken from now on; a driver that is not heard of for `contact_seconds` counts
    as gone."""

    version: Generation
    contact_seconds: Seconds
    store_reachable: bool


class NodeSeen(Message, frozen=True):
    """A node with an executor of ours. `incarnation` names this start of executor and host.

    `silent_seconds` is how long ago the driver last heard from that executor, when it made this
    report. Only time in which the driver listened counts. `cluster_node` is what the cluster calls
    the node: on Kubernetes the name of the Node object. Both are None where that is not known.
    `slow`: its tasks end so much later than those of others that it holds epochs up.
    """

    incarnation: Name
    capacity_percent: Percent
    suspected: bool = False
    domain: Name | None = None
    silent_seconds: Seconds | None = None
    cluster_node: NodeName | None = None
    slow: bool = False


class SourceSeen(Message, frozen=True):
    """A source whose future is unknown: `waiting` are offsets that had arrived and are in no epoch
    yet, `lag_seconds` since all that had arrived was in an epoch; `away` says why it cannot be
    reached, and is empty while it can."""

    waiting: Count = 0
    lag_seconds: Seconds = 0.0
    away: Text = ""


class Report(Message, frozen=True):
    """Something that a driver tells: the one with the highest (generation, sequence) holds."""

    generation: Generation
    sequence: Count


# The program of an application whose queries are Spark's own, kept by `rekindle.protect`.
PROTECTED_QUERIES = "protected-queries"


class TopologyReport(Report, frozen=True, tag="topology", tag_field="kind"):
    """The pipeline and its policy, once per start. `hints` (partition -> CPU percent) count until
    costs are measured.

    `resumed`: there was earlier work in the checkpoint store, the newest checkpoint of which was
    taken at `checkpoint_at`. `store` tells that store from others.
    """

    program: Name
    topology: Topology
    policy: Policy
    nodes_expected: Generation
    hints: dict[Name, Percent] = {}
    resumed: bool = False
    checkpoint_at: Seconds | None = None
    store: StoreIdentity = ""


class ProgressReport(Report, frozen=True, tag="progress", tag_field="kind"):
    """Where everything is now.

    `placement` (partition -> node) are the active partitions, `live` those that run in every
    epoch, `resident` (partition -> node) inactive ones whose state survived. `plan_epoch` is of the
    newest plan carried out, `directive` the sequence number of the newest one taken. `alone`: the
    driver has no orders from a coordinator and plans by itself. `finished`: the run has ended in
    order, and nothing is to be brought back. `stopped` (query partition -> why) cannot go on until
    a driver starts with a mended function. `suspected` (partition -> why) run apart from all
    others, as a process died while it ran a function of theirs. `moving` (partition -> node) are
    moves that it has taken and yet to make; None while it can make none. `lags` are in seconds at
    the moment `at`, by the driver's clock; None where an older driver does not report it.
    `lag_goals` (query -> seconds) are those that hold, None where an older driver knows of none;
    `beyond_goal_seconds` has for each of these queries how long it has been further behind, ever
    since it had a goal, up to the moment `at`.
    `late_rows` (step -> rows) came too late for a step, in all epochs that count; steps without
    are left out. `epoch_seconds` is how long the newest epoch took to run, `store_away_at` since
    when the checkpoint store does not answer, by the driver's clock; `refused` (kind of report ->
    why) are those that the sidecar has refused, and not taken since.
    `sources` are those that are no replays.
    """

    nodes: Annotated[dict[Name, NodeSeen], msgspec.Meta(max_length=ITEMS_MAX)]
    placement: Placement
    live: Names
    resident: Placement = {}
    plan_epoch: Count = 0
    directive: Count = 0
    epoch: Count = 0
    buffering: Mode = "on"
    ordering: Mode = "on"
    paused: bool = False
    alone: bool = False
    finished: bool = False
    stopped: Annotated[dict[Name, Text], msgspec.Meta(max_length=ITEMS_MAX)] = {}
    lags: dict[Name, Seconds] = {}
    moving: Placement | None = None
    at: Seconds | None = None
    late_rows: Annotated[dict[Name, Count], msgspec.Meta(max_length=ITEMS_MAX)] = {}
    suspected: Annotated[dict[Name, Text], msgspec.Meta(max_length=ITEMS_MAX)] = {}
    epoch_seconds: Seconds | None = None
    store_away_at: Seconds | None = None
    refused: Annotated[dict[Name, Text], msgspec.Meta(max_length=ITEMS_MAX)] = {}
    sources: Annotated[dict[Name, SourceSeen], msgspec.Meta(max_length=ITEMS_MAX)] = {}
    lag_goals: dict[Name, GoalSeconds] | None = None
    beyond_goal_seconds: dict[Name, Seconds] = {}


class StatisticsReport(Report, frozen=True, tag="statistics", tag_field="kind"):
    """Measured CPU and bytes of state by partition; those left out keep theirs. `overhead_percent`
    is what an executor takes beside its partitions, however many it has."""

    costs: dict[Name, Percent]
    overhead_percent: Percent = 0.0
    state_bytes: dict[Name, Count] = {}


class CheckpointReport(Report, frozen=True, tag="checkpoint", tag_field="kind"):
    """The newest global checkpoint."""

    epoch: Count
    at: Seconds


class Heartbeat(Message, frozen=True):
    """Says that a driver is there; gone with its session. `process_id` is of the driver, `store`
    tells its checkpoint store from others."""

    generation: Generation
    since: Seconds
    host: str = ""
    process_id: Count = 0
    store: StoreIdentity = ""


class PlanOrder(Message, frozen=True, tag="plan", tag_field="kind"):
    """Bring back `query_partitions`: put these partitions onto these nodes.

    It is made for a driver whose newest plan is `builds_on`; one that has made another by itself
    since then refuses it. `drops` are executors (node -> incarnation) that the plan counts as lost:
    a driver that still has one drops it first. It may have refused the order to drop them, under a
    number that a store gave again after it was restored from an older copy.
    """

    query_partitions: Names
    placement: Placement
    builds_on: Count
    incident: Count | None = None
    rollback: bool = False
    drops: Placement = {}


class MoveOrder(Message, frozen=True, tag="move", tag_field="kind"):
    """Let partitions that run go on elsewhere (partition -> node), each from a checkpoint that has
    its state, so that no query misses anything. A loss, a pause or another plan ends it."""

    placement: Placement


class BufferingOrder(Message, frozen=True, tag="buffering", tag_field="kind"):
    """Retain outputs from now on, or stop."""

    mode: Mode


class OrderingOrder(Message, frozen=True, tag="ordering", tag_field="kind"):
    """Process inputs in one fixed order from now on, or as they arrive."""

    mode: Mode


class LagGoalsOrder(Message, frozen=True, tag="lag-goals", tag_field="kind"):
    """Count from now on the time in which queries are further behind than these goals (query ->
    seconds), and than no others."""

    goals: Annotated[dict[Name, GoalSeconds], msgspec.Meta(max_length=ITEMS_MAX)]


class DropOrder(Message, frozen=True, tag="drop-executors", tag_field="kind"):
    """Take executors out of the scheduler: (node -> incarnation) that must not be there."""

    nodes: Placement


class PauseOrder(Message, frozen=True, tag="pause", tag_field="kind"):
    """Finish the epoch in flight, then start no other."""


class ResumeOrder(Message, frozen=True, tag="resume", tag_field="kind"):
    """Go on after a pause."""


Order = (
    PlanOrder
    | MoveOrder
    | BufferingOrder
    | OrderingOrder
    | LagGoalsOrder
    | DropOrder
    | PauseOrder
    | ResumeOrder
)


class Directive(Message, frozen=True):
    """An order to the driver of `generation`. Plan epochs only grow. `after` is the sequence
    number of the directive before it, 0 for the first one to this generation: it waits until that
    one has been taken."""

    sequence: Generation
    after: Count
    generation: Generation
    plan_epoch: Count
    reason: Name
    text: Text
    order: Order


class Acknowledgement(Message, frozen=True):
    """What a driver did about a directive, at which epoch."""

    sequence: Generation
    generation: Generation
    outcome: Literal["done", "refused"]
    epoch: Count
    plan_epoch: Count
    text: Text = ""


class PriorityOverride(Message, frozen=True):
    """A query's priority instead of its own, until a moment or (None) for ever."""

    priority: Annotated[float, msgspec.Meta(ge=1, le=10)]
    until: Seconds | None = None


class Orders(Message, frozen=True):
    """What people have said about an application."""

    priorities: dict[Name, PriorityOverride] = {}
    paused: bool = False


# Bytes from outside into messages, and messages into bytes.
#
# Whatever comes is checked against the message's type before anything looks at it: size, nesting,
# kinds, limits. InputError names the field. `schema` publishes the same rules as JSON Schema.

MESSAGE_BYTES_MAX = 16 << 20

PUBLISHED: tuple[Any, ...] = (
    Handshake,
    HandshakeAnswer,
    TopologyReport,
    ProgressReport,
    StatisticsReport,
    CheckpointReport,
    Directive,
    Acknowledgement,
    Heartbeat,
    Orders,
)
Kind = TypeVar("Kind")


def encode(message: Any) -> bytes:
    """JSON, fields in the order of the type."""
    return msgspec.json.encode(message)


def decode(data: bytes, kind: type[Kind], where: str) -> Kind:
    """The message in `data`; InputError names the place `where`, the field and what is wrong."""
    if len(data) > MESSAGE_BYTES_MAX:
        _refuse(where, f"has {len(data)} bytes, {MESSAGE_BYTES_MAX} are the limit")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        what = str(error) or type(error).__name__
        _refuse(where, what[:1].lower() + what[1:200])


def schema() -> dict[str, Any]:
    """JSON Schema of all messages, by name under `$defs`."""
    _, definitions = msgspec.json.schema_components(PUBLISHED, ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rekindle's protocol",
        "$defs": definitions,
    }


def _refuse(where: str, what: str) -> NoReturn:
    raise InputError(where=where, what=what, remedy="send it as docs/protocol.md says")

"""An application in a steady state, as a file: the start of a simulated failure.

The format is written out in docs/simulation.md. A placement may be given; without one the
coordinator core places everything, as it does when an application starts.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Annotated, Any

import msgspec

from rekindle.coordination import CoordinationState, advance, initial
from rekindle.coordination import coordination_events as happened
from rekindle.coordination.coordination_state import inactive
from rekindle.coordination.instructions import PublishPlan
from rekindle.model import settings
from rekindle.model import topology as graph
from rekindle.model.errors import refuse
from rekindle.model.topology import Topology

VERSION = 1
FILE = "situation.json"  # in the directory of a report
PERCENT_MAX = 1e9
BYTES_MAX = 2**62

Percent = Annotated[float, msgspec.Meta(ge=0, le=PERCENT_MAX)]
Capacity = Annotated[float, msgspec.Meta(gt=0, le=PERCENT_MAX)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=BYTES_MAX)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class _Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cpu_percent: Capacity
    domain: Name | None = None


class _Situation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    topology: msgspec.Raw
    nodes: dict[Name, _Node]
    cpu_percent: dict[Name, Percent]
    overhead_percent: Percent = 0.0
    state_bytes: dict[Name, Bytes] = {}
    placement: dict[Name, Name] | None = None
    policy: dict[str, Any] = {}


def parse(content: bytes, where: str, *, clock: Callable[[], float]) -> CoordinationState:
    """The steady state that a file describes; raises InputError with file, field and remedy."""
    remedy = "write a situation as in docs/simulation.md"
    try:
        found = msgspec.json.decode(content, type=_Situation)
        record = msgspec.json.decode(found.topology)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        refuse(where, f"is not a situation ({str(error)[:200]})", remedy)
    if found.version != VERSION:
        refuse(f"{where}: version", f"is {found.version}", f"use version {VERSION}")
    topology = graph.from_record(record, f"{where}: topology")
    policy = settings.from_record({"policy": found.policy}, where).policy
    partitions = graph.partitions(topology)
    if not found.nodes:
        refuse(f"{where}: nodes", "names none", "give at least one")
    for name, given in (
        ("cpu_percent", found.cpu_percent),
        ("state_bytes", found.state_bytes),
        ("placement", found.placement or {}),
    ):
        _check_known(f"{where}: {name}", given, partitions, "partition")
    used = () if found.placement is None else found.placement.values()
    _check_known(f"{where}: placement", used, tuple(found.nodes), "node")
    at_once = replace(policy, stabilisation_seconds=0.0)
    state = initial(topology, at_once, len(found.nodes), hints=found.cpu_percent)
    events: list[happened.Event] = [
        happened.NodeBack(name, node.cpu_percent, node.domain, name)
        for name, node in sorted(found.nodes.items())
    ]
    measured = happened.StatisticsReported(
        found.cpu_percent, found.state_bytes, overhead_percent=found.overhead_percent
    )
    events.append(measured)
    if found.placement is not None:
        live = frozenset(found.placement)
        events.append(happened.PlacementReported(found.placement, live, {}, plan_epoch=1))
    return replace(_steady(_told(state, events, clock), clock), policy=policy)


def _steady(state: CoordinationState, clock: Callable[[], float]) -> CoordinationState:
    """The state at 0 seconds, once everything has been placed and has caught up. The core places
    what runs without a failure even where it does not fit under the cap."""
    before = len(state.placement) - 1
    while inactive(state) and len(state.placement) > before:
        before = len(state.placement)
        state = _told(state, [happened.Tick(may_move=False)], clock)
    assert not inactive(state), "a fresh start places everything"
    return _told(state, [happened.CheckpointCompleted(1)], clock)


def to_record(
    topology: Topology,
    *,
    capacities: Mapping[str, float],
    domains: Mapping[str, str],
    costs: Mapping[str, float],
    placement: Mapping[str, str],
    policy: Mapping[str, Any],
    state_bytes: Mapping[str, int] | None = None,
    overhead_percent: float = 0.0,
) -> dict[str, Any]:
    """What `parse` reads, of an application as it runs: `capacities` are its nodes with all their
    CPU, `costs` those of partitions, `overhead_percent` that of each executor, in percent of one
    core; `domains` those of nodes, as far as they are known. Without `state_bytes` states count as
    empty."""
    return {
        "version": VERSION,
        "topology": graph.to_record(topology),
        "nodes": {
            node: {"cpu_percent": cpu, **({"domain": domains[node]} if node in domains else {})}
            for node, cpu in sorted(capacities.items())
        },
        "cpu_percent": dict(sorted(costs.items())),
        "overhead_percent": overhead_percent,
        "state_bytes": dict(sorted((state_bytes or {}).items())),
        "placement": dict(sorted(placement.items())),
        "policy": dict(policy),
    }


def _told(
    state: CoordinationState, events: Collection[happened.Event], clock: Callable[[], float]
) -> CoordinationState:
    """The state after events at 0 seconds; plans are carried out at once."""
    for event in events:
        state, told = advance(state, event, 0.0, clock=clock)
        for instruction in told:
            if isinstance(instruction, PublishPlan):
                plan = instruction.plan
                caught_up = [happened.QueryCaughtUp(query) for query in plan.query_partitions]
                state = _told(
                    state, [happened.PlanAcknowledged(plan.plan_epoch), *caught_up], clock
                )
    return state


def _check_known(
    where: str, given: Collection[str] | Mapping[str, Any], known: Collection[str], what: str
) -> None:
    for name in given:
        if name not in known:
            shown = ", ".join(sorted(known)[:10])
            refuse(f"{where}: {name[:60]}", f"is no {what}", f"name one of: {shown}")
